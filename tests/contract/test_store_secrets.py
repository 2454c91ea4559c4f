"""Secrets are kept by name and revision, known by the jobs that name them, and rewrapped without being touched otherwise."""

from __future__ import annotations

import asyncio

from cronwell.model.envelope import Place
from cronwell.store.port import KeptSecret, Rewrapped, Store
from tests.contract.desk import MINUTE, NOON, OTHER_TENANT, Desk, new_secret


async def test_a_secret_is_put_in_place_of_the_revision_before_it_alone(store: Store) -> None:
    assert await store.put_secret(new_secret("token", revision=2), NOON) is None
    assert await store.put_secret(new_secret("token"), NOON) == KeptSecret("token", 1, "k1", NOON, NOON)
    assert await store.put_secret(new_secret("token"), NOON) is None
    assert await store.put_secret(new_secret("token", revision=3), NOON) is None
    later = NOON + MINUTE
    again = new_secret("token", revision=2, key_id="k2")
    kept = KeptSecret("token", 2, "k2", NOON, later)
    assert await store.put_secret(again, later) == kept
    assert await store.get_secret(1, "token") == kept
    assert await store.sealed_secrets([(1, "token"), (1, "none"), (OTHER_TENANT, "token")]) == [again]


async def test_secrets_are_listed_by_name_from_behind_the_last(store: Store) -> None:
    for name in ("b", "a", "c"):
        await store.put_secret(new_secret(name), NOON)
    assert [each.name for each in await store.list_secrets(1, None, 2)] == ["a", "b"]
    assert [each.name for each in await store.list_secrets(1, "b", 2)] == ["c"]
    async with store.transaction() as transaction:
        assert await transaction.secret_names(1, 2) == ["a", "b"]
        assert await transaction.hold_secrets(1, ["c", "x", "a"]) == {"a", "c"}


async def test_a_secret_that_a_job_names_goes_only_by_force(desk: Desk, store: Store) -> None:
    first, second = await desk.job("first"), await desk.job("second")
    await store.put_secret(new_secret("token"), NOON)
    async with store.transaction() as transaction:
        uses = [("token", first.id), ("token", second.id), ("other", first.id)]
        await transaction.note_secret_uses(1, [first.id, second.id], uses)
    assert await store.secret_users(1, "token", 10) == ["first", "second"]
    assert await store.drop_secret(1, "token", is_forced=False) is False
    async with store.transaction() as transaction:
        await transaction.note_secret_uses(1, [second.id], [])
    assert await store.secret_users(1, "token", 10) == ["first"]
    assert await store.drop_secret(1, "token", is_forced=True) is True
    assert await store.secret_users(1, "token", 10) == ["first"]
    assert await store.drop_secret(1, "token", is_forced=True) is False


async def test_a_secret_is_not_deleted_under_a_job_that_is_being_made(desk: Desk, store: Store) -> None:
    """The delete waits for the job, and sees then that it names the secret."""
    job = await desk.job()
    await store.put_secret(new_secret("token"), NOON)
    async with store.transaction() as transaction:
        assert await transaction.hold_secrets(1, ["token"]) == {"token"}
        dropping = asyncio.create_task(store.drop_secret(1, "token", is_forced=False))
        done, _ = await asyncio.wait({dropping}, timeout=0.2)
        assert not done
        # Setting it anew waits for nobody.
        assert await store.put_secret(new_secret("token", revision=2), NOON) is not None
        await transaction.note_secret_uses(1, [job.id], [("token", job.id)])
    assert await dropping is False


async def test_keys_are_put_in_place_of_others_and_a_secret_that_was_set_anew_is_left_alone(
    store: Store,
) -> None:
    for tenant_id, name, key in ((1, "a", "k1"), (1, "b", "k2"), (OTHER_TENANT, "a", "k1"), (1, "c", "k1")):
        await store.put_secret(new_secret(name, tenant_id=tenant_id, key_id=key), NOON)
    found = await store.wrapped_otherwise("k2", None, 2)
    assert [each.place for each in found] == [Place(1, "a", 1), Place(1, "c", 1)]
    assert [each.place for each in await store.wrapped_otherwise("k2", (1, "c"), 2)] == [
        Place(OTHER_TENANT, "a", 1)
    ]
    await store.put_secret(new_secret("c", revision=2), NOON)
    made = [Rewrapped(each.place, "k1", "k2", b"other") for each in found]
    assert await store.rewrap_secrets(made) == 1
    assert await store.count_secrets() == {"k1": 2, "k2": 2}
    [kept] = await store.sealed_secrets([(1, "a")])
    assert (kept.sealed.wrapped_key, kept.sealed.ciphertext) == (b"other", b"ciphertext")
