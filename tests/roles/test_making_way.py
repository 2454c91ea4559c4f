"""A trigger, and what its job starts just ahead: workers claim that before its instant, and a trigger comes at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from uuid import UUID

import pytest

from cronwell import errors
from cronwell.model.execution import ExecutionKey, Kind
from cronwell.runtime.statements import load_statements
from cronwell.store import postgres
from cronwell.store.port import NewExecution, Worker
from cronwell.store.postgres.store import PostgresStore
from cronwell.store.postgres.transaction import PostgresTransaction
from tests.contract.desk import ended
from tests.support.house import SECOND, TENANT, House
from tests.support.waiting import until_async

SLEEPS = (
    "select exists (select from pg_stat_activity"
    " where datname = current_database() and wait_event = 'PgSleep')"
)
CLAIM = load_statements(Path(postgres.__file__).parent / "claims.sql")["claim"]


class HeldUp(PostgresStore):
    """A store whose transactions wait before they are committed."""

    def __init__(self, house: House) -> None:
        super().__init__(house.database)
        self.about_to_commit = asyncio.Event()
        self.may_commit = asyncio.Event()

    @asynccontextmanager
    async def transaction(self, *, is_frequent: bool = False) -> AsyncIterator[PostgresTransaction]:
        async with super().transaction(is_frequent=is_frequent) as transaction:
            yield transaction
            self.about_to_commit.set()
            await self.may_commit.wait()


async def trigger_held_up(house: House) -> tuple[HeldUp, asyncio.Task[ExecutionKey]]:
    """A trigger that did all it had to, except to commit it."""
    house.executions._store = store = HeldUp(house)
    task = asyncio.create_task(house.trigger())
    await store.about_to_commit.wait()
    return store, task


async def staged(house: House, job: UUID, slot: datetime, limit: int = 1) -> ExecutionKey:
    """An execution of the job's schedule."""
    new = NewExecution(
        TENANT, ExecutionKey(job, Kind.SCHEDULED, slot), slot, 1, 1, limit, "default", None, None
    )
    async with house.store.transaction() as transaction:
        assert await transaction.insert_execution(new)
    return new.key


async def claim(house: House, worker: Worker, ready_by: datetime) -> list[ExecutionKey]:
    now = house.clock.now()
    claims = await house.store.claim(worker.id, "default", 1, ready_by=ready_by, limit=10, now=now)
    return [each.key for each in claims]


async def test_nothing_just_ahead_is_claimed_beside_a_trigger_that_is_not_committed_yet(house: House) -> None:
    job, worker = await house.create(overlap="queue_all"), await house.enter()
    ahead = await staged(house, job, house.clock.now() + 2 * SECOND)
    store, task = await trigger_held_up(house)
    assert await claim(house, worker, ahead.slot) == []
    store.may_commit.set()
    asked = await task
    assert asked.slot < ahead.slot
    assert await claim(house, worker, ahead.slot) == [asked], "and the other waits for its turn"
    assert await claim(house, worker, ahead.slot) == []


async def test_a_claim_that_began_before_a_trigger_was_committed_leaves_what_comes_after_it(
    house: House,
) -> None:
    job, worker = await house.create(overlap="queue_all"), await house.enter()
    ahead = await staged(house, job, house.clock.now() + 2 * SECOND)
    store, task = await trigger_held_up(house)
    # It looks at what it may claim a second after it has taken its snapshot.
    slow = CLAIM.replace("from workers\n", "from workers cross join (select pg_sleep(1)) as slow\n")
    assert slow != CLAIM
    given = ("default", 1, ahead.slot, worker.id, 10, house.clock.now(), ahead.slot - 10 * SECOND)
    claiming = asyncio.create_task(house.database.fetch(slow, *given))
    await until_async(lambda: house.database.fetchval(SLEEPS))
    store.may_commit.set()
    asked = await task
    assert not claiming.done()
    assert await claiming == []
    assert await claim(house, worker, ahead.slot) == [asked]


async def test_a_trigger_comes_after_what_a_worker_holds_already(house: House) -> None:
    job, worker = await house.create(overlap="queue_all"), await house.enter()
    ahead = await staged(house, job, house.clock.now() + 2 * SECOND)
    later = await staged(house, job, house.clock.now() + 4 * SECOND)
    [held] = await house.store.claim(
        worker.id, "default", 1, ready_by=ahead.slot, limit=10, now=house.clock.now()
    )
    asked = await house.trigger()
    assert ahead.slot < asked.slot < later.slot
    assert (await house.get(asked)).ready_at == asked.slot, "it is not early"
    assert await claim(house, worker, later.slot) == []
    await house.store.complete([ended(held)])
    assert await claim(house, worker, later.slot) == [asked]


async def test_another_place_is_left_for_a_trigger_where_a_job_may_run_twice(house: House) -> None:
    job, worker = await house.create(overlap="queue_all", max_running=2), await house.enter()
    ahead = await staged(house, job, house.clock.now() + 2 * SECOND, limit=2)
    later = await staged(house, job, house.clock.now() + 4 * SECOND, limit=2)
    assert await claim(house, worker, ahead.slot) == [ahead]
    asked = await house.trigger()
    assert await claim(house, worker, later.slot) == [asked]


@pytest.mark.parametrize("overlap", ["skip", "queue_one"])
async def test_what_a_worker_holds_counts_where_only_so_many_may_wait(house: House, overlap: str) -> None:
    job, worker = await house.create(overlap=overlap), await house.enter()
    ahead = await staged(house, job, house.clock.now() + 2 * SECOND)
    assert await claim(house, worker, ahead.slot) == [ahead]
    if overlap == "queue_one":
        assert (await house.trigger()).slot > ahead.slot
    with pytest.raises(errors.IllegalState, match="unfinished"):
        await house.trigger()


async def test_what_another_hosts_clock_put_ahead_comes_first(house: House) -> None:
    await house.create(overlap="queue_all")
    worker = await house.enter()
    first = await house.trigger()
    async with house.store.transaction() as transaction:
        await transaction.insert_execution(
            NewExecution(
                TENANT,
                ExecutionKey(first.job_id, Kind.MANUAL, first.slot + SECOND),
                first.slot,
                1,
                1,
                1,
                "default",
                None,
                "triggered",
            )
        )
    [held] = await house.store.claim(
        worker.id, "default", 1, ready_by=first.slot, limit=1, now=house.clock.now()
    )
    assert held.key == first
    await house.store.complete([ended(held)])
    [ahead] = await house.claim(worker)
    assert (await house.trigger()).slot > ahead.key.slot


async def test_who_stands_still_before_a_commit_keeps_nobody_waiting(house: House) -> None:
    job, worker = await house.create(overlap="queue_all"), await house.enter()
    ahead = await staged(house, job, house.clock.now() + 4 * SECOND)
    store, task = await trigger_held_up(house)
    assert await claim(house, worker, ahead.slot) == []
    assert await until_async(lambda: claim(house, worker, ahead.slot)) == [ahead]
    store.may_commit.set()
    with pytest.raises(errors.StoreUnavailable):
        await task


async def test_a_job_without_a_limit_is_triggered_beside_what_is_ahead(house: House) -> None:
    job, worker = await house.create(overlap="allow"), await house.enter()
    ahead = await staged(house, job, house.clock.now() + 2 * SECOND)
    store, task = await trigger_held_up(house)
    assert await claim(house, worker, ahead.slot) == [ahead]
    store.may_commit.set()
    assert await claim(house, worker, (await task).slot) == [await task]
