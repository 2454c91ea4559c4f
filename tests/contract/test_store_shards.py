"""Shards in the store: an epoch holds until the next one begins, and nothing is staged in an old one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from cronwell import errors
from cronwell.config import DatabaseSettings
from cronwell.model.shards import shard_of
from cronwell.runtime.postgres import Database
from cronwell.store.port import Store
from cronwell.store.postgres.store import PostgresStore
from tests.contract.desk import Desk

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)
ANN, BEN = UUID(int=1), UUID(int=2)


async def _holds(store: Store, owner: UUID, epochs: dict[int, int]) -> None:
    async with store.transaction() as transaction:
        await transaction.hold_shards(owner, epochs)


async def test_every_shard_is_there_and_nobodys_at_first(store: Store) -> None:
    shards = await store.list_shards()
    assert [each.shard for each in shards] == list(range(64))
    assert {(each.epoch, each.owner, each.watermark) for each in shards} == {(0, None, None)}


async def test_entering_begins_an_epoch_with_its_owner(store: Store) -> None:
    assert await store.enter_shards(ANN, [3, 5], NOON) == {3: 1, 5: 1}
    assert await store.enter_shards(BEN, [5, 7], NOON) == {5: 2, 7: 1}
    shards = {each.shard: each for each in await store.list_shards() if each.owner}
    assert {number: (each.epoch, each.owner) for number, each in shards.items()} == {
        3: (1, ANN),
        5: (2, BEN),
        7: (1, BEN),
    }
    assert shards[3].entered_at == NOON
    assert shards[3].incarnation


async def test_who_enters_again_begins_another_epoch(store: Store) -> None:
    await store.enter_shards(ANN, [3], NOON)
    assert await store.enter_shards(ANN, [3], NOON) == {3: 2}


async def test_only_the_owner_in_its_epoch_holds_a_shard(store: Store) -> None:
    await store.enter_shards(ANN, [3, 4, 5], NOON)
    await store.enter_shards(BEN, [5], NOON)
    await _holds(store, ANN, {3: 1, 4: 1})
    await _holds(store, BEN, {5: 2})
    for owner, epochs, lost in (
        (ANN, {3: 1, 5: 1}, {5}),
        (ANN, {3: 1, 5: 2}, {5}),
        (BEN, {5: 1}, {5}),
        (BEN, {3: 1, 4: 1, 5: 2}, {3, 4}),
        (ANN, {3: 2, 60: 1}, {3, 60}),
    ):
        with pytest.raises(errors.Fenced) as caught:
            await _holds(store, owner, epochs)
        assert caught.value.shards == lost


async def test_an_epoch_of_another_incarnation_of_the_database_is_no_epoch(
    migrated_url: str,
) -> None:
    database = await Database.connect(DatabaseSettings(), migrated_url, application_name="test")
    store = PostgresStore(database)
    await store.enter_shards(ANN, [3, 4], NOON)
    await database.execute("update shards set incarnation = incarnation || '0' where shard = 3")
    with pytest.raises(errors.Fenced) as caught:
        await _holds(store, ANN, {3: 1, 4: 1})
    assert caught.value.shards == {3}
    await database.close()


async def test_whoever_begins_the_next_epoch_waits_for_what_is_written_in_this_one(store: Store) -> None:
    await store.enter_shards(ANN, [3], NOON)
    async with store.transaction() as transaction:
        await transaction.hold_shards(ANN, {3: 1})
        entering = asyncio.create_task(store.enter_shards(BEN, [3], NOON))
        beside = await store.enter_shards(BEN, [4], NOON)
        assert beside == {4: 1}, "another shard is not waited for"
        assert not entering.done()
    assert await entering == {3: 2}


async def test_two_may_hold_a_shard_at_once_in_the_same_epoch(store: Store) -> None:
    await store.enter_shards(ANN, [3], NOON)
    async with store.transaction() as one, store.transaction() as other:
        await one.hold_shards(ANN, {3: 1})
        await other.hold_shards(ANN, {3: 1})


async def test_many_who_enter_the_same_shards_have_each_epoch_once(store: Store) -> None:
    owners = [UUID(int=number) for number in range(10, 20)]
    entered = await asyncio.gather(
        *(
            store.enter_shards(owner, range(64) if owner.int % 2 else range(63, -1, -1), NOON)
            for owner in owners
        )
    )
    for shard in range(64):
        assert sorted(each[shard] for each in entered) == list(range(1, 11))


async def test_a_watermark_is_the_horizon_where_everything_is_staged(store: Store) -> None:
    await store.enter_shards(ANN, [3, 4], NOON)
    assert await store.mark_shards(ANN, {3: 1, 4: 1}, LATER, NOON) == {3: LATER, 4: LATER}
    shards = {each.shard: (each.watermark, each.marked_at) for each in await store.list_shards()}
    assert shards[3] == (LATER, NOON)
    assert shards[5] == (None, None)


async def test_a_watermark_stands_before_the_first_slot_that_is_not_staged(desk: Desk, store: Store) -> None:
    job = await desk.job(next_slot=NOON + timedelta(seconds=5))
    shard = shard_of(job.id)
    await store.enter_shards(ANN, [shard], NOON)
    before = NOON + timedelta(seconds=5) - timedelta(microseconds=1)
    assert await store.mark_shards(ANN, {shard: 1}, LATER, NOON) == {shard: before}
    assert await store.mark_shards(ANN, {shard: 1}, NOON, NOON) == {shard: NOON}, "no further than asked"


async def test_who_does_not_own_a_shard_marks_nothing(store: Store) -> None:
    await store.enter_shards(ANN, [3], NOON)
    assert await store.mark_shards(BEN, {3: 1}, LATER, NOON) == {}
    assert await store.mark_shards(ANN, {3: 2}, LATER, NOON) == {}
    assert (await store.list_shards())[3].watermark is None
