"""A trigger, and what its job starts just ahead: workers claim that before its instant, and a trigger comes at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from cronwell import errors
from cronwell.model.execution import ExecutionKey, Kind, State
from cronwell.runtime.clock import Clock
from cronwell.runtime.postgres import Connection
from cronwell.runtime.statements import load_statements
from cronwell.store import postgres
from cronwell.store.port import WAY_HOLDS, Job, NewExecution, Worker
from cronwell.store.postgres.store import PostgresStore
from cronwell.store.postgres.transaction import PostgresTransaction
from tests.contract.desk import ended
from tests.support.house import CALLER, SECOND, TENANT, House
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
    async def transaction(self, **how: Any) -> AsyncIterator[PostgresTransaction]:
        async with super().transaction(**how) as transaction:
            yield transaction
            self.about_to_commit.set()
            await self.may_commit.wait()


class Waiting:
    """A connection that does nothing for a while once way is made, and nothing is known yet of what had begun."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.may_go_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def execute(self, sql: str, *args: object) -> str:
        said = await self._connection.execute(sql, *args)
        if sql.startswith("/* make_way */"):
            await self.may_go_on.wait()
        return said


class Halting(PostgresStore):
    """A store whose transactions stand still while they make way."""

    @asynccontextmanager
    async def transaction(self, **how: Any) -> AsyncIterator[PostgresTransaction]:
        async with super().transaction(**how) as transaction:
            self.waiting = Waiting(transaction._connection)
            transaction._connection = cast(Connection, self.waiting)
            yield transaction


class Slow(Clock):
    """A clock by which everything takes long."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._readings = 0

    def now(self) -> datetime:
        self._readings += 1
        return self._clock.now() + self._readings * 2 * WAY_HOLDS

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def monotonic_at(self, moment: datetime) -> float:
        return self._clock.monotonic_at(moment)


async def trigger_held_up(house: House) -> tuple[HeldUp, asyncio.Task[ExecutionKey]]:
    """A trigger that did all it had to, except to commit it."""
    house.executions._store = store = HeldUp(house)
    task = asyncio.create_task(house.trigger())
    await store.about_to_commit.wait()
    return store, task


async def claim_slowly(house: House, worker: Worker, ready_by: datetime) -> list[datetime]:
    """Claim what was there a second before: the slots."""
    slow = CLAIM.replace("from workers\n", "from workers cross join (select pg_sleep(1)) as slow\n")
    assert slow != CLAIM
    since = ready_by - 10 * SECOND
    rows = await house.database.fetch(
        slow, "default", 1, ready_by, worker.id, 10, house.clock.now(), since, since
    )
    return [row["slot"] for row in rows]


async def is_locked(house: House, key: ExecutionKey) -> bool:
    """Whether a transaction has what no other could claim."""
    sql = "select from executions where slot = $1 for update skip locked"
    return not await house.database.fetch(sql, key.slot)


async def moved_near(house: House, job: UUID, ready_at: datetime) -> ExecutionKey:
    """A slot of an hour ahead that somebody moved to then, as staging leaves it."""
    key = ExecutionKey(job, Kind.SCHEDULED, ready_at + timedelta(hours=1))
    await house.database.execute(
        "insert into overrides (tenant_id, job_id, slot, action, ready_at, applied_at, created_at)"
        " values ($1, $2, $3, 'move', $4, now(), now())",
        *(TENANT, job, key.slot, ready_at),
    )
    async with house.store.transaction() as transaction:
        await transaction.insert_execution(
            NewExecution(TENANT, key, ready_at, 1, 1, 1, "default", None, "moved")
        )
    return key


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
    claiming = asyncio.create_task(claim_slowly(house, worker, ahead.slot))
    await until_async(lambda: house.database.fetchval(SLEEPS))
    store.may_commit.set()
    asked = await task
    assert not claiming.done()
    assert await claiming == []
    assert await claim(house, worker, ahead.slot) == [asked]


async def test_a_claim_that_meets_what_was_just_changed_still_sees_who_is_in_the_way(house: House) -> None:
    """PostgreSQL 18.4 then finds nothing more by searches that leave out days beforehand."""
    changed, limited = await house.create("changed"), await house.create("limited", overlap="queue_all")
    worker, now = await house.enter(), house.clock.now()
    await staged(house, await house.create("old"), now - timedelta(days=5))
    await staged(house, limited, now)
    assert len(await claim(house, worker, now)) == 2
    first = await staged(house, changed, now + SECOND)
    later = await staged(house, limited, now + 2 * SECOND)
    claiming = asyncio.create_task(claim_slowly(house, worker, later.slot))
    await until_async(lambda: house.database.fetchval(SLEEPS))
    await house.database.execute("update executions set priority = priority where slot = $1", first.slot)
    taken = await claiming
    assert later.slot not in taken


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


async def test_who_stands_still_while_it_makes_way_makes_nothing(house: House) -> None:
    job, worker = await house.create(overlap="queue_all"), await house.enter()
    ahead = await staged(house, job, house.clock.now() + 4 * SECOND)
    house.executions._store = store = Halting(house.database)
    task = asyncio.create_task(house.trigger())
    await until_async(lambda: is_locked(house, ahead))
    assert await until_async(lambda: claim(house, worker, ahead.slot)) == [ahead]
    store.waiting.may_go_on.set()
    with pytest.raises(errors.StoreUnavailable):
        await task


async def test_who_waits_long_for_what_comes_makes_nothing(house: House) -> None:
    job = await house.create(overlap="queue_all")
    ahead = await staged(house, job, house.clock.now() + 4 * SECOND)
    async with house.database.transaction() as somebody:
        await somebody.execute("select from executions where slot = $1 for update", ahead.slot)
        with pytest.raises(errors.StoreUnavailable):
            await house.trigger()


async def test_a_trigger_that_took_long_is_not_made(house: House) -> None:
    job = await house.create(overlap="queue_all")
    house.executions._clock = Slow(house.clock)
    with pytest.raises(errors.StoreUnavailable, match="took too long"):
        await house.trigger()
    assert await house.history(job) == []


async def test_what_was_moved_from_far_ahead_makes_way_as_well(house: House) -> None:
    job, worker = await house.create(overlap="queue_all"), await house.enter()
    moved = await moved_near(house, job, house.clock.now() + SECOND)
    store, task = await trigger_held_up(house)
    assert await is_locked(house, moved)
    assert await claim(house, worker, house.clock.now() + SECOND) == []
    store.may_commit.set()
    asked = await task
    assert await claim(house, worker, house.clock.now() + SECOND) == [asked]


async def test_a_trigger_goes_by_the_job_as_it_is_once_it_is_locked(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await house.create(overlap="allow")
    find = house.jobs.find

    async def find_before_an_edit(tenant_id: int, reference: str) -> Job:
        monkeypatch.undo()
        found = await find(tenant_id, reference)
        await house.jobs.patch(CALLER, str(job), {"overlap": "queue_all", "priority": "high"}, revision=None)
        return found

    monkeypatch.setattr(house.executions._jobs, "find", find_before_an_edit)
    execution = await house.get(await house.trigger())
    assert (execution.running_limit, execution.priority, execution.revision) == (1, 0, 2)


async def test_a_job_without_a_limit_is_triggered_beside_what_is_ahead(house: House) -> None:
    job, worker = await house.create(overlap="allow"), await house.enter()
    ahead = await staged(house, job, house.clock.now() + 2 * SECOND)
    store, task = await trigger_held_up(house)
    assert await claim(house, worker, ahead.slot) == [ahead]
    store.may_commit.set()
    assert await claim(house, worker, (await task).slot) == [await task]


async def test_a_slot_that_is_staged_late_waits_for_a_trigger_that_runs(house: House) -> None:
    job, worker = await house.create(overlap="queue_all"), await house.enter()
    await house.trigger()
    [runs] = await house.claim(worker)
    late = await staged(house, job, house.clock.now() - 3 * SECOND)
    assert await claim(house, worker, house.clock.now()) == []
    await house.store.complete([ended(runs)])
    assert await claim(house, worker, house.clock.now()) == [late]


async def test_a_trigger_that_is_tried_again_goes_before_a_slot_that_is_staged_late(house: House) -> None:
    """Of two that wait for each other none would ever start."""
    job, worker = await house.create(overlap="queue_all"), await house.enter()
    await house.trigger()
    [runs] = await house.claim(worker)
    await staged(house, job, house.clock.now() - 3 * SECOND)
    again = ended(runs, State.RETRYING, ready_at=house.clock.now())
    assert await house.store.complete([again]) == [State.RETRYING]
    assert await claim(house, worker, house.clock.now()) == [runs.key]
    assert await claim(house, worker, house.clock.now()) == []


async def test_a_trigger_counts_those_that_wait_behind_what_a_worker_holds(house: House) -> None:
    job, worker = await house.create(overlap="queue_one", max_running=2), await house.enter()
    held = await staged(house, job, house.clock.now() + 2 * SECOND, limit=2)
    assert await claim(house, worker, held.slot) == [held]
    first, second = await house.trigger(), await house.trigger()
    assert held.slot < first.slot < second.slot
    with pytest.raises(errors.IllegalState, match="unfinished"):
        await house.trigger()


async def test_what_was_moved_and_another_worker_claimed_earlier_is_waited_for(house: House) -> None:
    job, worker = await house.create(overlap="queue_all"), await house.enter()
    moved = await moved_near(house, job, house.clock.now() + SECOND)
    assert await claim(house, worker, house.clock.now() + SECOND) == [moved]
    await house.trigger()
    assert await claim(house, worker, house.clock.now()) == []


async def test_a_slot_that_is_staged_late_gives_a_trigger_time_to_begin(house: House) -> None:
    """A claim of the trigger may be under way, which has not seen the slot."""
    job = await house.create(overlap="queue_all", schedule="every 1h")
    asked = await house.trigger()
    late = asked.slot - SECOND
    await house.database.execute("update cursors set next_slot = $2 where job_id = $1", job, late)
    await house.staging().run_once()
    [slot] = [
        each for each in await house.history(job) if each.key.kind is Kind.SCHEDULED and each.key.slot == late
    ]
    assert slot.ready_at > asked.slot + SECOND
