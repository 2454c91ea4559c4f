"""The worker: starts on the instant, retries, times out, cancels, drains, and never records what is not its own."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import datetime, timedelta
from itertools import pairwise

from cronwell.model.execution import Result, State
from cronwell.store.port import ExecutionFilter
from cronwell.targets.handler import Context
from tests.support.house import SECOND, TENANT, House
from tests.support.waiting import until, until_async, until_blocking

LONG = 60
QUICK = {"initial_delay": "50ms", "max_delay": "50ms", "jitter": 0}


async def test_a_scheduled_slot_starts_on_its_instant_and_is_recorded(house: House) -> None:
    async def work(ctx: Context) -> str:
        return f"slot {ctx.slot.isoformat()}"

    house.registry.add(work, "work")
    job = await house.create(schedule="in 1s")
    async with house.working():
        [execution] = await house.history(job)
        done = await house.until_state(execution.key, State.SUCCEEDED)
    assert done.started_at is not None
    lateness = done.started_at - done.ready_at
    assert timedelta() <= lateness < timedelta(milliseconds=250)
    assert (done.attempt, done.fence, done.output) == (1, 1, f"slot {done.key.slot.isoformat()}")
    assert await house.store.list_attempts(TENANT, done.key) == []


async def test_a_trigger_starts_at_once_with_its_own_payload(house: House) -> None:
    seen: list[object] = []
    house.registry.add(lambda ctx: seen.append(ctx.payload), "work")
    await house.create(payload={"from": "job"})
    async with house.working():
        first = await house.trigger()
        await house.until_state(first, State.SUCCEEDED)
        second = await house.trigger(payload={"from": "trigger"})
        await house.until_state(second, State.SUCCEEDED)
    assert seen == [{"from": "job"}, {"from": "trigger"}]


async def test_a_failing_execution_is_tried_again_with_a_higher_fence_and_then_dies(house: House) -> None:
    fences: list[int] = []

    def work(ctx: Context) -> None:
        fences.append(ctx.fence)
        raise ValueError(f"attempt {ctx.attempt}")

    house.registry.add(work, "work")
    await house.create(retry={"max_attempts": 3, **QUICK})
    async with house.working():
        dead = await house.until_state(await house.trigger(), State.FAILED)
    assert fences == [1, 2, 3]
    assert (dead.attempt, dead.error_kind) == (3, "exception")
    attempts = await house.store.list_attempts(TENANT, dead.key)
    assert [(each.attempt, each.fence, each.result) for each in attempts] == [
        (n, n, Result.FAILED) for n in (1, 2, 3)
    ]
    assert "attempt 2" in (attempts[1].error or "")


async def test_a_dead_letter_that_is_retried_gets_new_attempts_and_a_growing_fence(house: House) -> None:
    is_broken = True

    def work() -> str:
        if is_broken:
            raise RuntimeError("broken")
        return "mended"

    house.registry.add(work, "work")
    await house.create(retry={"max_attempts": 1})
    async with house.working():
        key = await house.trigger()
        await house.until_state(key, State.FAILED)
        is_broken = False
        await house.executions.retry(TENANT, str(key))
        done = await house.until_state(key, State.SUCCEEDED)
    assert (done.output, done.attempt, done.fence) == ("mended", 1, 2)


async def test_dead_letters_are_redriven_by_filter_at_a_rate(house: House) -> None:
    is_broken = True

    def work() -> None:
        if is_broken:
            raise RuntimeError("broken")

    house.registry.add(work, "work")
    await house.create("a", retry={"max_attempts": 1}, overlap="allow")
    await house.create("b", retry={"max_attempts": 1}, overlap="allow")
    async with house.working():
        mine = [await house.trigger("a") for _ in range(10)]
        other = await house.trigger("b")
        for key in (*mine, other):
            await house.until_state(key, State.FAILED)
        is_broken = False
        job = await house.jobs.find(TENANT, "name:a")
        where = dataclasses.replace(_everything(), job_id=job.id)
        counts = [n async for n in house.executions.redrive(TENANT, where, rate=20)]
        assert counts[-1] == 10
        ready = sorted([(await house.get(key)).ready_at for key in mine])
        assert ready[-1] - ready[0] == 9 * SECOND / 20
        for key in mine:
            await house.until_state(key, State.SUCCEEDED)
        assert (await house.get(other)).state is State.FAILED


async def test_an_attempt_that_overruns_its_timeout_is_stopped(house: House) -> None:
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    house.registry.add(work, "work")
    await house.create(timeout="200ms", retry={"max_attempts": 1})
    async with house.working():
        done = await house.until_state(await house.trigger(), State.FAILED)
    [attempt] = await house.store.list_attempts(TENANT, done.key)
    assert attempt.result is Result.TIMED_OUT
    assert stopped.is_set()


async def test_a_cancel_reaches_a_future_slot(house: House) -> None:
    house.registry.add(lambda: None, "work")
    job = await house.create(schedule="in 30s")
    [execution] = await house.history(job)
    view = await house.executions.cancel(TENANT, str(execution.key))
    assert view.state is State.CANCELLED


async def test_a_cancel_reaches_what_a_worker_holds_before_its_instant(house: House) -> None:
    ran: list[int] = []
    house.registry.add(lambda: ran.append(1), "work")
    async with house.working(pre_claim=timedelta(seconds=10)):
        job = await house.create(schedule="in 2s")
        [execution] = await house.history(job)
        await house.until_state(execution.key, State.RUNNING)
        await house.executions.cancel(TENANT, str(execution.key))
        done = await house.until_state(execution.key, State.CANCELLED)
    assert ran == []
    assert done.started_at is None


async def test_a_cancel_stops_a_running_attempt_that_cooperates(house: House) -> None:
    began = asyncio.Event()

    async def work(ctx: Context) -> str:
        began.set()
        await until(lambda: ctx.cancelled)
        return "cleaned up"

    house.registry.add(work, "work")
    await house.create()
    async with house.working():
        key = await house.trigger()
        await began.wait()
        view = await house.executions.cancel(TENANT, str(key))
        assert view.cancel_requested_at is not None
        await house.until_state(key, State.CANCELLED, State.SUCCEEDED, within=5)


async def test_a_cancel_ends_by_force_an_attempt_that_does_not_listen(house: House) -> None:
    began = asyncio.Event()

    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    house.registry.add(work, "work")
    await house.create()
    async with house.working(cancel_grace=timedelta(milliseconds=200)):
        key = await house.trigger()
        await began.wait()
        await house.executions.cancel(TENANT, str(key))
        await house.until_state(key, State.CANCELLED, within=5)


async def test_a_paused_job_does_not_start_what_its_worker_holds_after_the_answer(house: House) -> None:
    starts: list[float] = []
    loop = asyncio.get_running_loop()
    house.registry.add(lambda: starts.append(loop.time()), "work")
    # Held from long before its instant, so that the pause always finds one that is.
    async with house.working(pre_claim=3 * SECOND):
        job = await house.create(schedule="* * * * * *")
        await until(lambda: len(starts) >= 2)

        async def holds_one() -> bool:
            ahead = "select count(*) from executions where state = 'running' and ready_at > $1"
            return bool(await house.database.fetchval(ahead, house.clock.now() + timedelta(milliseconds=300)))

        await until_async(holds_one)
        await house.jobs.pause(TENANT, str(job))
        answered = loop.time()
        held = await house.database.fetchval("select count(*) from executions where state = 'pending'")
        assert held == 0
        await until_async(lambda: _is_past(house, answered + 1.5))
    assert all(start <= answered for start in starts)


async def test_a_slot_is_skipped_while_an_earlier_one_is_unfinished(house: House) -> None:
    release = asyncio.Event()

    async def work() -> None:
        await release.wait()

    house.registry.add(work, "work")
    job = await house.create(schedule="* * * * * *")
    async with house.working():

        async def skipped() -> bool:
            return any(each.state is State.SKIPPED for each in await house.history(job))

        await until_async(skipped)
        release.set()
        found = [each for each in await house.history(job) if each.state in (State.RUNNING, State.SKIPPED)]
        await house.jobs.pause(TENANT, str(job))
    assert found[0].state is State.RUNNING
    assert {each.reason for each in found[1:] if each.state is State.SKIPPED} == {"overlap"}


async def test_missed_slots_catch_up_one_after_another_and_none_is_skipped_for_the_next(house: House) -> None:
    together = 0
    slots: list[datetime] = []

    async def work(ctx: Context) -> None:
        nonlocal together
        together += 1
        assert together == 1
        await asyncio.sleep(0)
        slots.append(ctx.slot)
        together -= 1

    house.registry.add(work, "work")
    job = await house.create(schedule="* * * * *", catch_up="all")
    await house.database.execute("delete from executions")
    await house.database.execute(
        "update cursors set next_slot = date_trunc('minute', now()) - interval '6 minutes'"
    )
    await house.staging().run_once()
    missed = [each for each in await house.history(job) if each.reason == "catch_up"]
    async with house.working():
        for execution in missed:
            await house.until_state(execution.key, State.SUCCEEDED)
    assert len(missed) >= 6
    assert slots[: len(missed)] == [each.key.slot for each in missed]


async def test_a_slot_on_time_is_not_held_up_by_one_that_waits_its_turn_to_catch_up(house: House) -> None:
    slots: list[datetime] = []
    together: list[int] = [0]

    async def work(ctx: Context) -> None:
        together[0] += 1
        assert together[0] == 1
        await asyncio.sleep(0)
        slots.append(ctx.slot)
        together[0] -= 1

    house.registry.add(work, "work")
    job = await house.create(schedule="* * * * * *", catch_up="last", catch_up_window="1h")
    await house.database.execute("delete from executions")
    await house.database.execute(
        "update cursors set next_slot = date_trunc('second', now()) - interval '1 minute'"
    )
    await house.staging().run_once()
    await house.database.execute(
        "update executions set ready_at = now() + interval '6 seconds' where reason = 'catch_up' and state = 'pending'"
    )
    [missed] = [e for e in await house.history(job) if e.reason == "catch_up" and e.state is State.PENDING]
    async with house.working():
        await house.until_state(missed.key, State.SUCCEEDED, within=20)
        await house.jobs.pause(TENANT, str(job))
    place = slots.index(missed.key.slot)
    assert place >= 2, "slots on time went before it"
    assert slots[:place] == sorted(slots[:place])


async def test_overlap_allow_runs_slots_beside_each_other(house: House) -> None:
    together = 0
    most = 0
    release = asyncio.Event()

    async def work() -> None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await release.wait()
        together -= 1

    house.registry.add(work, "work")
    await house.create(overlap="allow")
    async with house.working():
        keys = [await house.trigger() for _ in range(3)]
        await until(lambda: most == 3)
        release.set()
        for key in keys:
            await house.until_state(key, State.SUCCEEDED)


async def test_high_priority_is_claimed_before_low(house: House) -> None:
    order: list[str] = []
    house.registry.add(lambda ctx: order.append(ctx.job), "work")
    for priority in ("low", "normal", "high"):
        await house.create(priority, priority=priority)
        await house.trigger(priority)
    async with house.working(concurrency=1):
        await until(lambda: len(order) == 3)
    assert order == ["high", "normal", "low"]


async def test_what_is_due_later_is_left_to_others_until_shortly_before(house: House) -> None:
    """One that is held for long would have to be waited for, or rescued, when the worker goes."""
    house.registry.add(lambda: None, "work")
    later = await house.create("later", schedule="in 5s")
    await house.create("now")
    async with house.working(pre_claim=SECOND):
        await house.until_state(await house.trigger("now"), State.SUCCEEDED)
        [execution] = await house.history(later)
        claimed = await house.until_state(execution.key, State.RUNNING)
        assert claimed.claimed_at is not None
        assert claimed.ready_at - SECOND <= claimed.claimed_at < claimed.ready_at


async def test_a_worker_takes_only_what_is_in_its_pools(house: House) -> None:
    house.registry.add(lambda: None, "work")
    await house.create("elsewhere", pool="gpu")
    await house.create("here")
    async with house.working():
        other = await house.trigger("elsewhere")
        await house.until_state(await house.trigger("here"), State.SUCCEEDED)
    assert (await house.get(other)).state is State.PENDING


async def test_a_stopping_worker_hands_back_what_it_holds_and_finishes_what_runs(house: House) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        began.set()
        await release.wait()

    house.registry.add(work, "work")
    await house.create("later", schedule="in 8s")
    await house.create("now")
    async with house.working(pre_claim=timedelta(seconds=10)) as stop:
        running = await house.trigger("now")
        await began.wait()
        [held] = [each for each in await house.history() if each.key != running]
        await house.until_state(held.key, State.RUNNING)
        stop.set()
        await house.until_state(held.key, State.PENDING)
        release.set()
    done = await house.get(running)
    back = await house.get(held.key)
    assert done.state is State.SUCCEEDED
    assert (back.state, back.attempt, back.worker) == (State.PENDING, 0, None)
    [worker] = await house.store.list_workers(house.clock.now() - timedelta(hours=1))
    assert worker.state == "stopped"


async def test_what_does_not_finish_within_the_drain_is_tried_again_elsewhere(house: House) -> None:
    began = asyncio.Event()

    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    house.registry.add(work, "work")
    await house.create(retry=QUICK)
    async with house.working(drain=timedelta(milliseconds=100), cancel_grace=timedelta(milliseconds=100)):
        key = await house.trigger()
        await began.wait()
    left = await house.get(key)
    assert left.state is State.RETRYING
    [attempt] = await house.store.list_attempts(TENANT, key)
    assert (attempt.result, attempt.error_kind) == (Result.WORKER_LOST, "worker_stopped")


async def test_a_worker_that_was_given_up_drops_its_attempts_and_enters_anew(house: House) -> None:
    began: list[int] = []
    dropped: list[int] = []

    async def work(ctx: Context) -> str:
        began.append(ctx.fence)
        if ctx.fence == 1:
            try:
                await asyncio.Event().wait()
            finally:
                dropped.append(ctx.fence)
        return f"fence {ctx.fence}"

    house.registry.add(work, "work")
    await house.create(retry=QUICK)
    async with house.working(heartbeat=timedelta(milliseconds=100), drain=timedelta(milliseconds=100)):
        key = await house.trigger()
        await until(lambda: began == [1])
        await house.database.execute(
            "update workers set lease_until = now() - interval '1 second', state = 'lost'"
        )
        await house.rescue().run_once()
        done = await house.until_state(key, State.SUCCEEDED)
        assert dropped == [1]
    assert done.output == "fence 2"


async def test_a_result_that_cannot_be_stored_does_not_hold_up_the_others(house: House) -> None:
    house.registry.add(lambda ctx: "\ud800 half a pair \0" if ctx.payload else "plain", "work")
    await house.create(overlap="allow")
    async with house.working():
        odd = await house.trigger(payload=True)
        plain = await house.trigger(payload=False)
        assert (await house.until_state(plain, State.SUCCEEDED)).output == "plain"
        assert "half a pair" in ((await house.until_state(odd, State.SUCCEEDED)).output or "")


async def test_progress_is_written_with_the_heartbeat(house: House) -> None:
    release = asyncio.Event()

    async def work(ctx: Context) -> None:
        ctx.heartbeat({"done": 3})
        await release.wait()

    house.registry.add(work, "work")
    await house.create()
    async with house.working(heartbeat=timedelta(milliseconds=50)):
        key = await house.trigger()

        async def reported() -> str | None:
            return (await house.get(key)).progress

        assert await until_async(reported) == '{"done":3}'
        assert (await house.get(key)).started_at is not None
        release.set()
        await house.until_state(key, State.SUCCEEDED)


async def test_many_at_once_stay_within_the_concurrency(house: House) -> None:
    together = most = 0
    release = asyncio.Event()

    async def work() -> None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await release.wait()
        together -= 1

    house.registry.add(work, "work")
    await house.create(overlap="allow")
    keys = [await house.trigger() for _ in range(200)]
    async with house.working(concurrency=20, poll=timedelta(milliseconds=20)):
        await until(lambda: together == 20)
        # Many looks for work later it is still as many.
        full_since = house.clock.now()
        await until(lambda: house.clock.now() > full_since + timedelta(milliseconds=500))
        assert most == 20
        release.set()
        for key in keys:
            await house.until_state(key, State.SUCCEEDED, within=30)
    assert most <= 20


def _everything() -> ExecutionFilter:
    return ExecutionFilter()


async def _is_past(house: House, at: float) -> bool:
    del house
    return asyncio.get_running_loop().time() > at


async def test_after_finish_counts_from_the_end_of_the_execution_before(house: House) -> None:
    def work(ctx: Context) -> str:
        # Long enough that the end is not the start: the next second has begun.
        until_blocking(lambda: ctx.remaining() < LONG - 0.7, within=5)
        return "done"

    house.registry.add(work, "work")
    job = await house.create(schedule={"every": "1s", "after": "finish", "max_runs": 3}, timeout=f"{LONG}s")
    chore = house.following()
    async with house.working():

        async def ended() -> bool:
            await chore.run_once()
            states = [each.state for each in await house.history(job)]
            return states.count(State.SUCCEEDED) == 3

        await until_async(ended, within=20)
    runs = sorted(await house.history(job), key=lambda each: each.key.slot)
    for before, after in pairwise(runs):
        assert before.finished_at is not None
        assert after.started_at is not None
        assert after.key.slot == before.finished_at + SECOND
        assert after.started_at >= after.key.slot
    await chore.run_once()
    assert len(await house.history(job)) == 3
