"""A worker's places: what is in them while it drains, loses its lease, or has a target that does not do as it is told."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from cronwell.model.execution import Result, State
from cronwell.targets.handler import Context
from cronwell.targets.port import Call, Outcome, Signals
from tests.support.house import CALLER, TENANT, House
from tests.support.waiting import until, until_async

QUICK = {"initial_delay": "50ms", "max_delay": "50ms", "jitter": 0}
MOMENT = timedelta(milliseconds=100)


class Deaf:
    """A target that heeds neither its deadline nor a cancel; `at_force` is what it makes of being stopped by force."""

    def __init__(self, at_force: Outcome | None = None) -> None:
        self.begun: list[int] = []
        self.forced: list[int] = []
        self._at_force = at_force

    async def run(self, call: Call, signals: Signals) -> Outcome:
        self.begun.append(call.fence)
        if call.fence > 1 or call.payload == "quick":
            return Outcome(Result.SUCCEEDED, output=f"fence {call.fence}")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.forced.append(call.fence)
            if self._at_force is None:
                raise
        assert self._at_force is not None
        return self._at_force

    async def close(self) -> None:
        pass


class Fragile:
    """A target that breaks when it is told to stop."""

    def __init__(self) -> None:
        self.began = asyncio.Event()

    async def run(self, call: Call, signals: Signals) -> Outcome:
        self.began.set()
        await signals.cancelled.wait()
        return Outcome(Result.FAILED, error="broken in the middle")

    async def close(self) -> None:
        pass


async def test_a_place_is_free_only_once_the_result_is_kept(house: House) -> None:
    began, release = asyncio.Event(), asyncio.Event()
    begun: list[str] = []

    async def work(ctx: Context) -> None:
        begun.append(ctx.job)
        began.set()
        await release.wait()

    house.registry.add(work, "work")
    await house.create("first")
    await house.create("second")
    async with house.working(concurrency=1, heartbeat=timedelta(milliseconds=50)):
        first = await house.trigger("first")
        await began.wait()
        second = await house.trigger("second")
        async with house.database.transaction() as connection:
            await connection.execute("select from executions where slot = $1 for update", first.slot)
            release.set()
            await until_async(lambda: _waits_for_a_lock(house))
            # Long enough for another claim, if there were a place: a look for work each 200 ms.
            held_since = house.clock.now()
            await until(lambda: house.clock.now() > held_since + timedelta(seconds=1))
            assert begun == ["first"]
            assert (await house.get(second)).state is State.PENDING
        await house.until_state(second, State.SUCCEEDED)


async def test_what_a_target_says_after_the_lease_was_lost_is_not_recorded(house: House) -> None:
    """It is stopped by force, and takes that for the moment to say that all went well."""
    deaf = Deaf(Outcome(Result.SUCCEEDED, output="zombie"))
    await house.create("slow", retry=QUICK)
    await house.create("quick", payload="quick")
    async with house.working({"handler": deaf}, heartbeat=MOMENT):
        key = await house.trigger("slow")
        await until(lambda: deaf.begun == [1])
        await house.database.execute("update workers set state = 'lost', lease_until = now()")
        await until(lambda: deaf.forced == [1])
        # Results are written in their order, so what the zombie said would have been written before this one's.
        await house.until_state(await house.trigger("quick"), State.SUCCEEDED)
        held = await house.get(key)
        assert (held.state, held.output) == (State.RUNNING, None)
        await house.rescue().run_once()
        done = await house.until_state(key, State.SUCCEEDED)
    assert (done.fence, done.output) == (2, "fence 2")


async def test_a_draining_worker_asks_before_it_forces(house: House) -> None:
    began = asyncio.Event()

    async def work(ctx: Context) -> str:
        began.set()
        await until(lambda: ctx.cancelled)
        return "put away in order"

    house.registry.add(work, "work")
    await house.create()
    async with house.working(drain=MOMENT, cancel_grace=timedelta(seconds=5)):
        key = await house.trigger()
        await began.wait()
    stopped = await house.get(key)
    assert (stopped.state, stopped.output) == (State.RETRYING, "put away in order")


async def test_a_draining_worker_ends_by_force_a_target_that_does_not_listen(house: House) -> None:
    deaf = Deaf()
    await house.create(retry=QUICK)
    async with house.working({"handler": deaf}, drain=MOMENT, cancel_grace=MOMENT):
        key = await house.trigger()
        await until(lambda: deaf.begun == [1])
    assert deaf.forced == [1]
    assert (await house.get(key)).state is State.RETRYING
    [attempt] = await house.store.list_attempts(TENANT, key)
    assert (attempt.result, attempt.error_kind) == (Result.WORKER_LOST, "worker_stopped")


async def test_results_that_are_held_up_until_after_the_drain_are_still_written(house: House) -> None:
    """One result waits in the database and the next one behind it, for longer than the drain may last."""
    release = {"first": asyncio.Event(), "second": asyncio.Event()}
    ended: list[str] = []
    begun: list[str] = []

    async def work(ctx: Context) -> None:
        begun.append(ctx.job)
        await release[ctx.job].wait()
        ended.append(ctx.job)

    house.registry.add(work, "work")
    await house.create("first")
    await house.create("second")
    async with house.working(drain=MOMENT, cancel_grace=MOMENT) as stop:
        first, second = await house.trigger("first"), await house.trigger("second")
        await until(lambda: len(begun) == 2)
        async with house.database.transaction() as connection:
            await connection.execute("select from executions where slot = $1 for update", first.slot)
            release["first"].set()
            await until_async(lambda: _waits_for_a_lock(house))
            release["second"].set()
            await until(lambda: ended == ["first", "second"])
            stop.set()

            async def has_left() -> bool:
                [worker] = await house.store.list_workers(house.clock.now() - timedelta(hours=1))
                return worker.state == "stopped"

            await until_async(has_left)
    assert [(await house.get(key)).state for key in (first, second)] == [State.SUCCEEDED] * 2


@pytest.mark.parametrize("attempts", [1, 4])
async def test_a_target_that_fails_when_it_is_cancelled_is_cancelled(house: House, attempts: int) -> None:
    fragile = Fragile()
    await house.create(retry={"max_attempts": attempts, **QUICK})
    async with house.working({"handler": fragile}):
        key = await house.trigger()
        await until(fragile.began.is_set)
        await house.executions.cancel(TENANT, str(key))
        done = await house.until_state(key, State.CANCELLED, State.FAILED, State.RETRYING)
    assert (done.state, done.attempt) == (State.CANCELLED, 1)


async def test_a_target_that_ignores_its_deadline_is_ended_by_force(house: House) -> None:
    deaf = Deaf()
    await house.create(timeout="100ms", retry={"max_attempts": 1})
    async with house.working({"handler": deaf}, heartbeat=MOMENT, cancel_grace=MOMENT):
        dead = await house.until_state(await house.trigger(), State.FAILED)
    assert deaf.forced == [1]
    [attempt] = await house.store.list_attempts(TENANT, dead.key)
    assert attempt.result is Result.TIMED_OUT


async def test_an_attempt_that_fails_while_its_job_is_paused_is_the_last(house: House) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        began.set()
        await release.wait()
        raise ValueError("broken")

    house.registry.add(work, "work")
    job = await house.create(retry=QUICK)
    async with house.working():
        key = await house.trigger()
        await began.wait()
        await house.jobs.pause(TENANT, str(job))
        release.set()
        done = await house.until_state(key, State.FAILED, State.RETRYING)
    assert (done.state, done.attempt) == (State.FAILED, 1)


async def test_an_edit_leaves_alone_what_a_worker_holds_for_its_instant(house: House) -> None:
    ran: list[int] = []
    house.registry.add(lambda ctx: ran.append(ctx.fence), "work")
    async with house.working(pre_claim=timedelta(seconds=10)):
        job = await house.create(schedule="in 2s")
        [held] = await house.history(job)
        await house.until_state(held.key, State.RUNNING)
        await house.jobs.patch(CALLER, str(job), {"payload": 1}, revision=None)
        done = await house.until_state(held.key, State.SUCCEEDED)
    assert (ran, done.fence) == ([1], 1)
    assert len(await house.history(job)) == 1


async def test_a_retry_waits_for_its_delay(house: House) -> None:
    def work() -> None:
        raise ValueError("broken")

    house.registry.add(work, "work")
    await house.create(retry={"initial_delay": "700ms", "jitter": 0, "max_attempts": 2})
    async with house.working():
        dead = await house.until_state(await house.trigger(), State.FAILED)
    first, second = await house.store.list_attempts(TENANT, dead.key)
    assert first.finished_at is not None
    assert second.started_at is not None
    waited = second.started_at - first.finished_at
    assert timedelta(milliseconds=700) <= waited < timedelta(milliseconds=1700)


async def test_an_edit_reaches_the_next_attempt(house: House) -> None:
    seen: list[object] = []
    house.registry.add(lambda ctx: seen.append(ctx.payload), "work")
    job = await house.create(payload="old")
    async with house.working():
        await house.until_state(await house.trigger(), State.SUCCEEDED)
        await house.jobs.patch(CALLER, str(job), {"payload": "new"}, revision=None)
        await house.until_state(await house.trigger(), State.SUCCEEDED)
    assert seen == ["old", "new"]


async def _waits_for_a_lock(house: House) -> bool:
    waiting = await house.database.fetchval(
        "select count(*) from pg_locks join pg_stat_activity using (pid) "
        "where not granted and datname = current_database()"
    )
    return bool(waiting)
