"""Keys and tenants: found by what is shown, over when they are over, and numbered once."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from uuid import uuid4

import asyncpg
import pytest

from cronwell import errors
from cronwell.model.access import NO_QUOTAS, Quotas
from cronwell.store.port import Store
from tests.contract.desk import HOUR, MINUTE, NOON, Desk, new_job, new_key
from tests.support.waiting import until_async


async def test_a_key_is_found_by_its_prefix_whoevers_it_is(store: Store) -> None:
    key = new_key("mine")
    await store.insert_key(key)
    assert await store.find_key(key.prefix) == (key, NO_QUOTAS)
    assert await store.find_key("cw_other") is None


async def test_keys_are_listed_newest_first_page_by_page(store: Store) -> None:
    keys = sorted((new_key(f"key-{n}") for n in range(5)), key=lambda key: key.id, reverse=True)
    for key in keys:
        await store.insert_key(key)
    first = await store.list_keys(1, None, 3)
    assert first + await store.list_keys(1, first[-1].id, 3) == keys


async def test_a_revoked_key_is_not_good_and_the_first_time_stays(store: Store) -> None:
    key = new_key("mine")
    await store.insert_key(key)
    revoked = await store.revoke_key(1, key.id, NOON)
    again = await store.revoke_key(1, key.id, NOON + HOUR)
    assert revoked == again
    assert revoked is not None
    assert (revoked.revoked_at, revoked.is_good(NOON)) == (NOON, False)


async def test_a_replaced_key_is_good_until_the_overlap_ends(store: Store) -> None:
    old, new = new_key("old"), dataclasses.replace(new_key("new"), id=uuid4())
    await store.insert_key(old)
    assert await store.replace_key(old.id, new, good_until=NOON + HOUR)
    left = await store.get_key(1, old.id)
    assert left is not None
    assert [left.is_good(NOON + HOUR - MINUTE), left.is_good(NOON + HOUR)] == [True, False]
    assert await store.get_key(1, new.id) == new


@pytest.mark.parametrize("end", ["revoked", "expired"])
async def test_a_key_that_is_over_is_not_replaced(end: str, store: Store) -> None:
    old = dataclasses.replace(new_key("old"), expires_at=NOON if end == "expired" else None)
    await store.insert_key(old)
    if end == "revoked":
        await store.revoke_key(1, old.id, NOON - HOUR)
    new = new_key("new")
    assert not await store.replace_key(old.id, new, good_until=NOON + HOUR)
    assert await store.get_key(1, new.id) is None


async def test_an_earlier_end_of_a_key_is_not_put_off(store: Store) -> None:
    old = dataclasses.replace(new_key("old"), expires_at=NOON + MINUTE)
    await store.insert_key(old)
    assert await store.replace_key(old.id, new_key("new"), good_until=NOON + HOUR)
    left = await store.get_key(1, old.id)
    assert left is not None
    assert left.expires_at == NOON + MINUTE


async def test_the_last_use_is_written_once_a_minute(store: Store) -> None:
    key = new_key("mine")
    await store.insert_key(key)
    seen = []
    for at in (NOON, NOON + MINUTE / 2, NOON + 2 * MINUTE):
        await store.note_key_use(1, key.id, at)
        found = await store.get_key(1, key.id)
        assert found is not None
        seen.append(found.last_used_at)
    assert seen == [NOON, NOON, NOON + 2 * MINUTE]


async def test_whether_anybody_could_show_a_key(store: Store) -> None:
    assert not await store.has_keys(NOON)
    key = dataclasses.replace(new_key("mine"), expires_at=NOON + HOUR)
    await store.insert_key(key)
    assert [await store.has_keys(NOON), await store.has_keys(NOON + HOUR)] == [True, False]
    await store.revoke_key(1, key.id, NOON)
    assert not await store.has_keys(NOON)


async def test_tenants_made_at_once_get_numbers_of_their_own(store: Store) -> None:
    made = await asyncio.gather(*(store.insert_tenant(f"team-{n}", 1.0, "whsec_x", NOON) for n in range(5)))
    assert len({each.id for each in made if each is not None}) == 5
    assert await store.insert_tenant("team-0", 1.0, "whsec_x", NOON) is None
    names = [each.name for each in await store.list_tenants(None, 100)]
    assert names == sorted(names)
    assert [each.name for each in await store.list_tenants("team-3", 100)] == ["team-4"]


async def test_a_tenants_share_changes(store: Store) -> None:
    await store.insert_tenant("team", 1.0, "whsec_x", NOON)
    changed = await store.change_tenant("team", 2.5, {})
    assert changed is not None
    assert changed == await store.get_tenant("team")
    assert changed.weight == 2.5
    assert await store.change_tenant("nobody", 2.5, {}) is None


async def test_a_role_that_runs_cronwell_sees_all_and_as_a_tenant_its_own(migrated_url: str) -> None:
    """Who runs Cronwell is no superuser as a rule: force makes the policies theirs as well, and these let them do all."""
    connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(migrated_url)
    counted = "select count(*) from calendars"
    try:
        await connection.execute("insert into calendars values (1, 'closed', 1, '{}', now(), now())")
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(
            "create role plain nologin; grant cronwell_service, cronwell_tenant to plain"
        )
        seen = []
        for said in ("role plain", "role cronwell_tenant", "cronwell.tenant = '1'", "cronwell.tenant = '2'"):
            await connection.execute(f"set local {said}")
            seen.append(await connection.fetchval(counted))
        await transaction.rollback()
    finally:
        await connection.close()
    assert seen == [1, 0, 1, 0]


async def test_quotas_change_one_by_one_and_jobs_are_counted_from_then_on(desk: Desk, store: Store) -> None:
    for n in range(3):
        await desk.job(f"job-{n}")
    async with store.transaction() as transaction:
        await transaction.count_jobs(1, 100)
    await store.change_tenant("default", None, {"jobs": 5})
    changed = await store.change_tenant("default", None, {"requests_per_second": 2.5})
    assert changed is not None
    assert (changed.weight, changed.quotas) == (1.0, Quotas(jobs=5, requests_per_second=2.5))
    async with store.transaction() as transaction:
        await transaction.count_jobs(1, 2)
    with pytest.raises(errors.QuotaExceeded, match="has 5 jobs and may have 5") as full:
        async with store.transaction() as transaction:
            await transaction.count_jobs(1, 1)
    assert full.value.room == 0
    async with store.transaction() as transaction:
        await transaction.count_jobs(1, -1)
        await transaction.count_jobs(1, 1)


@pytest.fixture
async def beside(migrated_url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(migrated_url)
    yield connection
    await connection.close()


async def test_a_job_that_is_being_added_while_quotas_are_given_is_counted(
    desk: Desk, beside: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with desk.store.transaction() as transaction:
        added = await transaction.insert_jobs([new_job()], NOON)
        await transaction.count_jobs(1, len(added))
        changing = asyncio.create_task(desk.store.change_tenant("default", None, {"jobs": 1}))
        await until_async(lambda: _waits_for_a_lock(beside))
    await changing
    assert await beside.fetchval("select jobs from tenants where id = 1") == 1


async def test_quotas_that_are_given_while_a_job_is_being_added_hold_for_it(
    desk: Desk, beside: asyncpg.Connection[asyncpg.Record]
) -> None:
    async def add() -> None:
        async with desk.store.transaction() as transaction:
            added = await transaction.insert_jobs([new_job()], NOON)
            await transaction.count_jobs(1, len(added))

    async with beside.transaction():
        await beside.execute("select from tenants where id = 1 for update")
        adding = asyncio.create_task(add())
        await until_async(lambda: _waits_for_a_lock(beside))
        await beside.execute("update tenants set max_jobs = 0 where id = 1")
    with pytest.raises(errors.QuotaExceeded, match="has 0 jobs and may have 0"):
        await adding


async def test_a_job_has_a_tenant_that_is_there_and_keeps_it(
    desk: Desk, beside: asyncpg.Connection[asyncpg.Record]
) -> None:
    with pytest.raises(asyncpg.ForeignKeyViolationError, match="there is no tenant 77"):
        await desk.job(tenant_id=77)
    job = await desk.job()
    for change in (
        "delete from tenants where id = 1",
        "update tenants set id = 77 where id = 1",
        "update jobs set tenant_id = 2",
    ):
        with pytest.raises(asyncpg.ForeignKeyViolationError):
            await beside.execute(change)
    assert await beside.fetchval("select tenant_id from jobs where id = $1", job.id) == 1


async def _waits_for_a_lock(connection: asyncpg.Connection[asyncpg.Record]) -> bool:
    waiting = await connection.fetchval(
        "select count(*) from pg_locks join pg_stat_activity using (pid) "
        "where not granted and datname = current_database()"
    )
    return bool(waiting)
