"""A worker that cannot reach the database: it stops in time, starts nothing, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from cronwell import errors
from cronwell.config import Settings
from cronwell.model.execution import ExecutionKey, State
from cronwell.store.port import Report
from cronwell.store.postgres.store import PostgresStore
from cronwell.targets.handler import Context
from cronwell.worker.attempt import Claim
from cronwell.worker.heartbeat import Heartbeat
from cronwell.worker.lease import Lease
from tests.support.house import TENANT, House
from tests.support.proxy import Proxy, proxy_to
from tests.support.waiting import until, until_async

QUICK = {"initial_delay": "50ms", "max_delay": "50ms", "jitter": 0}
LEASE = timedelta(seconds=6)
HEARTBEAT = timedelta(milliseconds=200)
MOMENT = timedelta(milliseconds=100)
# The grace of a cancel is longer than the lease: what the lease demands is done without it.
SOON: dict[str, Any] = {
    "lease": LEASE,
    "heartbeat": HEARTBEAT,
    "drain": MOMENT,
    "cancel_grace": timedelta(seconds=10),
}

# The arguments that a claim begins with: the name of the pool, and a priority in two bytes.
CLAIM = b"far\0\0\0\2"


@pytest.fixture
async def proxy(migrated_url: str) -> AsyncIterator[Proxy]:
    async with proxy_to(migrated_url) as opened:
        yield opened


@pytest.fixture
async def far_house(proxy: Proxy, house: House) -> AsyncIterator[House]:
    """The same database, seen through the proxy."""
    opened = await House.open(proxy.url, Settings(), house.clock)
    yield opened
    await opened.close()


@contextlib.contextmanager
def silence(proxy: Proxy) -> Iterator[None]:
    """Nothing passes, and nobody is told."""
    proxy.go_silent()
    try:
        yield
    finally:
        proxy.speak()


async def test_a_worker_cut_off_stops_before_its_lease_ends_and_starts_nothing_after(
    house: House, far_house: House, proxy: Proxy
) -> None:
    stopped: list[datetime] = []
    late: list[int] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(house.clock.now())

    far_house.registry.add(work, "work")
    far_house.registry.add(lambda: late.append(1), "later")
    await house.create()
    async with far_house.working(**SOON, pre_claim=timedelta(seconds=20)):
        await house.until_state(await house.trigger(), State.RUNNING)
        job = await house.create("later", target={"handler": {"name": "later"}}, schedule="in 7s")
        [held] = await house.history(job)
        await house.until_state(held.key, State.RUNNING)
        with silence(proxy):
            await until(lambda: stopped, within=10)
            lease_until = await house.database.fetchval("select lease_until from workers")
            assert stopped[0] < lease_until
            assert lease_until - stopped[0] < LEASE / 3
            await until(lambda: house.clock.now() > held.ready_at + timedelta(milliseconds=300))
    assert late == []


async def test_a_renewal_that_is_answered_late_is_trusted_from_when_it_was_asked_for(house: House) -> None:
    settings = dataclasses.replace(house.settings.worker, lease=timedelta(seconds=3))
    lease = Lease(house.store, house.clock, settings, ())
    await lease.register()
    async with house.database.transaction() as connection:
        await connection.execute("select from workers for update")
        renewal = asyncio.create_task(lease.renew(house.store, running=0, is_draining=False))
        asked = house.clock.now()
        await until(lambda: house.clock.now() > asked + timedelta(seconds=1.2))
    await renewal
    assert lease.is_trusted
    await until(lambda: not lease.is_trusted)
    assert house.clock.now() < await house.database.fetchval("select lease_until from workers")


async def test_what_ran_and_was_dropped_is_not_handed_back_as_if_it_never_had(
    house: House, far_house: House, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection returns, and claims go on, before the worker has given up the name that it dropped its attempts under."""
    begun: list[int] = []
    dropped, may_beat = asyncio.Event(), asyncio.Event()
    beat = Heartbeat.beat

    async def beat_late(heartbeat: Heartbeat) -> timedelta:
        await may_beat.wait()
        return await beat(heartbeat)

    async def work(ctx: Context) -> None:
        begun.append(ctx.attempt)
        if ctx.attempt == 1:
            try:
                await asyncio.Event().wait()
            finally:
                dropped.set()

    async def renewed() -> datetime:
        at: datetime = await house.database.fetchval("select max(heartbeat_at) from workers")
        return at

    monkeypatch.setattr(Heartbeat, "beat", beat_late)
    far_house.registry.add(work, "work")
    far_house.registry.add(lambda ctx: None, "lost")
    await house.create(pool="far", retry=QUICK)
    await house.create("lost", pool="far", priority="high", target={"handler": {"name": "lost"}})
    async with far_house.working(**SOON, pools=("far",)):
        key = await house.trigger()
        await until(lambda: begun == [1])
        # A claim is made, and its answer does not arrive: the worker asks what else is its own.
        proxy.cut_after = CLAIM
        await house.until_state(await house.trigger("lost"), State.RUNNING)
        with silence(proxy):
            proxy.cut_after = None
            await until(dropped.is_set, within=10)
            before = await renewed()

        async def is_back() -> bool:
            return await renewed() > before + timedelta(seconds=1)

        await until_async(is_back)
        execution = await house.get(key)
        assert (execution.state, execution.attempt, execution.fence) == (State.RUNNING, 1, 1)
        may_beat.set()

        async def is_done() -> bool:
            await house.rescue().run_once()
            return (await house.get(key)).state is State.SUCCEEDED

        await until_async(is_done)
    assert begun == [1, 2]


async def test_what_a_cut_off_worker_dropped_is_tried_again_also_where_it_comes_back_in_time(
    house: House, far_house: House, proxy: Proxy
) -> None:
    """The connection returns after the worker stopped its attempts and before anybody gave it up."""
    begun: list[int] = []
    dropped = asyncio.Event()

    async def work(ctx: Context) -> str:
        begun.append(ctx.fence)
        if ctx.fence > 1:
            return f"fence {ctx.fence}"
        try:
            await asyncio.Event().wait()
        finally:
            dropped.set()
        return "never"

    far_house.registry.add(work, "work")
    await house.create(retry=QUICK)
    async with far_house.working(**SOON):
        key = await house.trigger()
        await until(lambda: begun == [1])

        async def is_reported() -> bool:
            return (await house.get(key)).started_at is not None

        await until_async(is_reported)
        with silence(proxy):
            await until(dropped.is_set, within=10)

        async def is_done() -> bool:
            await house.rescue().run_once()
            return (await house.get(key)).state is State.SUCCEEDED

        await until_async(is_done, within=LEASE.total_seconds() + 5)
    done = await house.get(key)
    assert (done.output, begun) == ("fence 2", [1, 2])


async def test_a_worker_that_cannot_enter_anew_at_once_tries_again(
    house: House, far_house: House, proxy: Proxy
) -> None:
    begun, dropped = asyncio.Event(), asyncio.Event()

    async def work(ctx: Context) -> str:
        if ctx.fence > 1:
            return f"fence {ctx.fence}"
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            dropped.set()
        return "never"

    far_house.registry.add(work, "work")
    await house.create(retry=QUICK)
    async with far_house.working(**SOON):
        key = await house.trigger()
        await begun.wait()
        with silence(proxy):
            await until(dropped.is_set, within=10)
            proxy.cut_before = b"/* register */"
            # On a new connection the statement is sent with its name, wherever it was prepared before.
            proxy.cut()
        await until_async(lambda: _names(house, "stopped"))
        cut = proxy.connections
        await until(lambda: proxy.connections > cut + 2)
        assert not await _names(house, "active")
        proxy.cut_before = None

        async def is_done() -> bool:
            await house.rescue().run_once()
            return (await house.get(key)).state is State.SUCCEEDED

        await until_async(is_done)
    assert (await house.get(key)).output == "fence 2"


async def _names(house: House, state: str) -> int:
    count: int = await house.database.fetchval(
        "select count(*) from workers where state = $1::text::worker_state", state
    )
    return count


async def test_a_claim_whose_answer_was_lost_is_returned_and_what_is_held_is_kept(
    house: House, far_house: House, proxy: Proxy
) -> None:
    ran: list[tuple[str, int]] = []
    far_house.registry.add(lambda ctx: ran.append((ctx.job, ctx.fence)), "work")
    await house.create("held", pool="far", schedule="in 4s")
    await house.create("lost", pool="far", priority="high")
    [held] = await house.history()
    async with far_house.working(pools=("far",), pre_claim=timedelta(seconds=10)):
        await house.until_state(held.key, State.RUNNING)
        # The claim happens, and its answer does not arrive.
        proxy.cut_after = CLAIM
        lost = await house.trigger("lost")
        await house.until_state(lost, State.RUNNING)
        proxy.cut_after = None
        done = await house.until_state(lost, State.SUCCEEDED)
        assert done.attempt == 1
        await house.until_state(held.key, State.SUCCEEDED)
    assert sorted(ran) == [("held", 1), ("lost", done.fence)]
    assert done.fence > 1


async def test_a_claim_that_is_made_after_the_worker_has_looked_for_it_is_returned_too(
    house: House, far_house: House, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is lost, and the statement waits for a lock."""
    looked = asyncio.Event()
    held_by = PostgresStore.held_by

    async def look(store: PostgresStore, worker: UUID) -> list[tuple[int, ExecutionKey, int]]:
        found = await held_by(store, worker)
        looked.set()
        return found

    monkeypatch.setattr(PostgresStore, "held_by", look)
    far_house.registry.add(lambda ctx: None, "work")
    await house.create("lost", pool="far", priority="high")
    async with far_house.working(pools=("far",)):
        # The statement is known to the connection from here on.
        await house.until_state(await house.trigger("lost"), State.SUCCEEDED)
        async with house.database.transaction() as somebody:
            await somebody.execute("lock table workers in access exclusive mode")
            proxy.cut_after = CLAIM
            lost = await house.trigger("lost")
            await until(looked.is_set)
            proxy.cut_after = None
        done = await house.until_state(lost, State.SUCCEEDED)
    assert (done.attempt, done.fence) == (1, 2)


async def test_a_name_that_was_let_go_is_not_taken_for_lost_where_the_answer_is(house: House) -> None:
    class Deaf(PostgresStore):
        async def leave(self, worker: UUID, now: datetime) -> None:
            await super().leave(worker, now)
            raise errors.StoreUnavailable("the answer is lost")

    lease = Lease(Deaf(house.database), house.clock, house.settings.worker, ())
    await lease.register()
    retired = lease.worker
    lease.retire()
    await lease.register()
    with pytest.raises(errors.StoreUnavailable):
        await lease.let_go(retired)
    await lease.renew(house.store, running=0, is_draining=False)
    assert lease.may_claim


async def test_a_report_that_could_not_be_written_is_told_again(house: House) -> None:
    class Failing(PostgresStore):
        failures = 1

        async def report(self, reports: Sequence[Report]) -> None:
            if self.failures:
                self.failures -= 1
                raise errors.StoreUnavailable("not now")
            await super().report(reports)

    house.store = store = Failing(house.database)
    may_end = asyncio.Event()

    async def work() -> None:
        await may_end.wait()

    house.registry.add(work, "work")
    await house.create()
    async with house.working(heartbeat=HEARTBEAT):
        key = await house.trigger()

        async def is_reported() -> bool:
            return (await house.get(key)).started_at is not None

        await until_async(is_reported)
        may_end.set()
        await house.until_state(key, State.SUCCEEDED)
    assert store.failures == 0


async def test_a_worker_that_stops_hands_back_again_where_it_failed(house: House) -> None:
    class Failing(PostgresStore):
        failures = 1

        async def hand_back(self, worker: UUID, claims: Sequence[Claim]) -> None:
            if self.failures:
                self.failures -= 1
                raise errors.StoreUnavailable("not now")
            await super().hand_back(worker, claims)

    house.store = store = Failing(house.database)
    house.registry.add(lambda ctx: None, "work")
    await house.create(schedule="in 8s")
    [staged] = await house.history()
    async with house.working(pre_claim=timedelta(seconds=20)):
        await house.until_state(staged.key, State.RUNNING)
    execution = await house.get(staged.key)
    assert (execution.state, execution.attempt, store.failures) == (State.PENDING, 0, 0)


async def test_a_claim_whose_answer_was_lost_ends_if_its_job_was_paused_meanwhile(
    house: House, far_house: House, proxy: Proxy
) -> None:
    far_house.registry.add(lambda ctx: None, "work")
    await house.create("lost", pool="far", priority="high")
    async with far_house.working(pools=("far",)):
        proxy.cut_after = CLAIM
        lost = await house.trigger("lost")
        await house.until_state(lost, State.RUNNING)
        proxy.go_silent()
        await house.jobs.pause(TENANT, "name:lost")
        proxy.cut_after = None
        proxy.speak()
        ended = await house.until_state(lost, State.SKIPPED, State.CANCELLED)
    assert (ended.reason, ended.started_at) == ("paused", None)


async def test_a_claim_whose_answer_was_lost_ends_if_it_was_cancelled_meanwhile(
    house: House, far_house: House, proxy: Proxy
) -> None:
    far_house.registry.add(lambda ctx: None, "work")
    await house.create("lost", pool="far", priority="high")
    async with far_house.working(pools=("far",)):
        proxy.cut_after = CLAIM
        lost = await house.trigger("lost")
        await house.until_state(lost, State.RUNNING)
        proxy.go_silent()
        await house.executions.cancel(TENANT, str(lost))
        proxy.cut_after = None
        proxy.speak()
        ended = await house.until_state(lost, State.CANCELLED)
    assert ended.started_at is None


async def test_a_claim_that_was_answered_when_the_lease_was_in_doubt_is_returned(house: House) -> None:
    """The database stands still for as long as the lease, then answers the claim, and only later a heartbeat."""
    house.registry.add(lambda ctx: f"fence {ctx.fence}", "work")
    await house.create(priority="high")
    lease = timedelta(seconds=2)
    # The next heartbeat is so far away that on a slow machine, too, it comes after the claim was answered.
    async with house.working(lease=lease, heartbeat=4 * lease):

        async def has_beaten() -> bool:
            return bool(await house.database.fetchval("select heartbeat_at > started_at from workers"))

        await until_async(has_beaten)
        while True:
            async with house.database.transaction() as connection:
                await connection.execute("lock table workers in access exclusive mode")
                began = house.clock.now()
                key = await house.trigger()
                triggered = await house.database.fetchval("select clock_timestamp()")

                # One that began before the trigger does not see what was triggered.
                is_new = (await until_async(partial(_claim_waits, house, triggered)))[0]
                if is_new:
                    await until(partial(_is_after, house, began + lease))
            done = await house.until_state(key, State.SUCCEEDED)
            if is_new:
                break
    assert (done.attempt, done.output) == (1, "fence 2")


async def test_results_that_could_not_be_written_are_written_when_the_database_is_back(
    house: House, far_house: House, proxy: Proxy
) -> None:
    release = asyncio.Event()
    begun: list[int] = []

    async def work(ctx: Context) -> str:
        begun.append(ctx.fence)
        await release.wait()
        return f"fence {ctx.fence}"

    far_house.registry.add(work, "work")
    await house.create(overlap="allow")
    async with far_house.working():
        keys = [await house.trigger() for _ in range(5)]
        await until(lambda: len(begun) == 5)
        # The output is in the arguments of what writes it: some results go in without an answer, and are sent again.
        proxy.cut_after = b"fence 1"
        release.set()
        cut = proxy.connections
        await until(lambda: proxy.connections > cut + 2)
        proxy.cut_after = None
        found = [await house.until_state(key, State.SUCCEEDED) for key in keys]
        assert {each.output for each in found} == {"fence 1"}
    assert begun == [1] * 5


async def _claim_waits(house: House, moment: datetime) -> tuple[bool, ...]:
    """Whether a claim waits for a lock, and began after a moment."""
    rows = await house.database.fetch(
        "select query_start > $1 as is_new from pg_locks join pg_stat_activity using (pid) "
        "where not granted and query like '%alive%' and datname = current_database()",
        moment,
    )
    return tuple(row["is_new"] for row in rows)


def _is_after(house: House, moment: datetime) -> bool:
    return house.clock.now() > moment
