"""Backfill: each past slot that is asked for runs once, at the rate and no more at once than was said."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from cronwell.control.backfill_views import STEP
from cronwell.model.execution import State
from cronwell.runtime.clock import ManualClock
from cronwell.store.postgres.transaction import PostgresTransaction
from tests.roles.backfills import (
    DAY,
    HOUR,
    MINUTE,
    NOON,
    backfilled,
    backfilled_slots,
    chore_of,
    end_backfilled,
    run_through,
    some_time,
    start_backfill,
    until_over,
    view_of,
)
from tests.support.house import SECOND, TENANT, House
from tests.support.waiting import until_async


@pytest.mark.parametrize("definition", ["current", "then"])
async def test_a_worker_runs_each_slot_of_the_range_once(house: House, definition: Any) -> None:
    seen: list[tuple[str, datetime, Any]] = []

    def work(context: Any) -> None:
        seen.append((context.execution_id, context.slot, context.payload))

    house.registry.add(work, "work")
    now = house.clock.now()
    job = await house.create(schedule="*/10 * * * * *", payload={"n": 1})
    await house.jobs.pause(TENANT, str(job))  # only what is asked for runs, and no slot of this moment
    await house.database.execute("update jobs set created_at = $1, defined_at = $1", now - DAY)
    begin = (now - MINUTE).replace(microsecond=0)
    made = await start_backfill(
        house, job, begin, begin + 30 * SECOND, concurrency=2, rate=50, definition=definition
    )
    async with house.working(), chore_of(house):
        shown = await until_over(house, made)
    expected = [begin + n * SECOND for n in range(30) if (begin + n * SECOND).second % 10 == 0]
    assert [slot for _, slot, _ in sorted(seen, key=lambda each: each[1])] == expected
    assert {payload["n"] for _, _, payload in seen} == {1}
    assert (shown.slots, shown.staged, shown.succeeded, shown.unfinished, shown.remaining) == (3, 3, 3, 0, 0)
    assert {each.reason for each in await backfilled(house, job)} == {
        "backfill" if definition == "current" else "backfill_then"
    }


async def test_no_more_than_the_concurrency_run_at_once(house: House) -> None:
    running = most = 0

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        async with asyncio.timeout(30):
            await until_async(lambda: some_time(house))
        running -= 1

    house.registry.add(work, "work")
    now = house.clock.now().replace(microsecond=0)
    job = await house.create(schedule="* * * * * *", overlap="allow", timeout="1m")
    await house.jobs.pause(TENANT, str(job))
    made = await start_backfill(house, job, now - 20 * SECOND, now - 8 * SECOND, concurrency=3, rate=1000)
    async with house.working(), chore_of(house):
        shown = await until_over(house, made)
    assert (most, shown.succeeded) == (3, 12)


async def test_a_backfill_that_is_asked_for_twice_runs_each_slot_once(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 * * * *")
    first = await start_backfill(still_house, job, NOON - DAY, NOON - DAY / 2, concurrency=4)
    both = await start_backfill(still_house, job, NOON - DAY, NOON, concurrency=4)
    await run_through(still_house, clock, first)
    await run_through(still_house, clock, both)
    again = await start_backfill(still_house, job, NOON - DAY, NOON, concurrency=4)
    assert await run_through(still_house, clock, again, steps=3) == []
    shown = [await view_of(still_house, each) for each in (first, both, again)]
    assert sum(each.staged for each in shown) == 24
    assert [(each.slots, each.staged + each.passed_over) for each in shown] == [(12, 12), (24, 24), (24, 24)]
    assert (shown[2].staged, shown[2].passed_over) == (0, 24)
    assert await backfilled_slots(still_house, job) == [NOON - DAY + n * HOUR for n in range(24)]


async def test_a_crash_between_staging_and_commit_loses_nothing_and_doubles_nothing(
    still_house: House, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await still_house.create(schedule="0 * * * *")
    made = await start_backfill(still_house, job, NOON - DAY, NOON, concurrency=5)
    await still_house.backfilling().run_once()
    await end_backfilled(still_house)
    before = await view_of(still_house, made)
    clock.advance(SECOND)

    class Crash(Exception):
        pass

    async def dies(*_: Any) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(PostgresTransaction, "put_backfill", dies)
        with pytest.raises(Crash):
            await still_house.backfilling().run_once()
    assert len(await backfilled_slots(still_house, job)) == before.staged
    assert (await view_of(still_house, made)).reached == before.reached
    await run_through(still_house, clock, made)
    assert await backfilled_slots(still_house, job) == [NOON - DAY + n * HOUR for n in range(24)]
    assert (await view_of(still_house, made)).succeeded == 24


async def test_two_schedulers_at_once_stage_each_slot_once(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="* * * * *")
    made = await start_backfill(still_house, job, NOON - HOUR, NOON, concurrency=7, rate=100)
    for _ in range(12):
        await asyncio.gather(*(still_house.backfilling().run_once() for _ in range(4)))
        open_rows = [each for each in await backfilled(still_house, job) if each.state is State.PENDING]
        assert len(open_rows) <= 7
        await end_backfilled(still_house)
        clock.advance(SECOND)
    await still_house.backfilling().run_once()
    shown = await view_of(still_house, made)
    assert (shown.state, shown.staged, shown.succeeded) == ("finished", 60, 60)


@pytest.mark.parametrize(("rate", "apart"), [(5.0, SECOND / 5), ("30/m", 2 * SECOND), ("1/h", HOUR)])
async def test_the_rate_is_kept_and_unused_time_is_not_made_up_for(
    still_house: House, clock: ManualClock, rate: Any, apart: timedelta
) -> None:
    job = await still_house.create(schedule="* * * * *")
    await start_backfill(still_house, job, NOON - 5 * HOUR, NOON, concurrency=1000, rate=rate)
    for length in (SECOND / 4, SECOND, STEP, MINUTE, STEP, SECOND / 3, 3 * HOUR, STEP, STEP):
        await still_house.backfilling().run_once()
        clock.advance(length)
    starts = sorted(each.ready_at for each in await backfilled(still_house, job))
    gaps = [after - before for before, after in pairwise(starts)]
    assert len(starts) >= 2
    assert min(gaps) >= apart - timedelta(microseconds=1)
    assert starts[0] == NOON


async def test_the_rate_is_reached_where_there_are_places(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="* * * * *")
    await start_backfill(still_house, job, NOON - DAY, NOON, concurrency=1000, rate=20)
    for _ in range(20):
        await still_house.backfilling().run_once()
        clock.advance(STEP)
    ready = [each for each in await backfilled(still_house, job) if each.ready_at < NOON + 10 * SECOND]
    assert len(ready) == 200


async def test_newest_first_goes_back_through_the_same_slots(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule={"cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin"})
    made = await start_backfill(still_house, job, NOON - 14 * DAY, NOON, order="newest", concurrency=3)
    order = await run_through(still_house, clock, made)
    slots = await backfilled_slots(still_house, job)
    assert len(slots) == 10
    assert order == slots[::-1]
