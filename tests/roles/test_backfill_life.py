"""A backfill beside all that may happen meanwhile: pauses, deletions, failures, retention."""

from __future__ import annotations

import pytest

from cronwell import errors
from cronwell.control.backfill_views import STEP
from cronwell.model.execution import State
from cronwell.runtime.clock import ManualClock
from cronwell.scheduler.chores.retention import Retention
from tests.roles.backfills import (
    DAY,
    HOUR,
    NOON,
    backfilled,
    backfilled_slots,
    end_backfilled,
    run_through,
    start_backfill,
    view_of,
)
from tests.support.house import SECOND, TENANT, House


async def test_a_pause_of_the_job_does_not_stop_it_and_its_deletion_does(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 * * * *")
    made = await start_backfill(still_house, job, NOON - DAY, NOON, concurrency=3)
    await still_house.backfilling().run_once()
    await still_house.jobs.pause(TENANT, str(job))
    assert [each.state for each in await backfilled(still_house, job)] == [State.PENDING] * 3
    clock.advance(STEP)
    await end_backfilled(still_house)
    assert await still_house.backfilling().run_once() == 3
    await still_house.jobs.delete(TENANT, str(job))
    clock.advance(STEP)
    assert await still_house.backfilling().run_once() == 0
    shown = await view_of(still_house, made)
    assert (shown.state, shown.staged, shown.succeeded, shown.cancelled) == ("cancelled", 6, 3, 3)
    assert shown.finished_at == clock.now()
    with pytest.raises(errors.NotFound, match="deleted"):
        await start_backfill(still_house, job, NOON - DAY, NOON)


async def test_a_paused_backfill_of_a_deleted_job_ends_too(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="0 * * * *")
    made = await start_backfill(still_house, job, NOON - DAY, NOON)
    await still_house.backfills.pause(TENANT, str(made))
    await still_house.jobs.delete(TENANT, str(job))
    await still_house.backfilling().run_once()
    assert (await view_of(still_house, made)).state == "cancelled"


async def test_a_backfill_is_paused_resumed_and_cancelled(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="0 * * * *")
    made = await start_backfill(still_house, job, NOON - DAY, NOON, concurrency=4)
    await still_house.backfilling().run_once()
    assert (await still_house.backfills.pause(TENANT, str(made))).eta is None
    clock.advance(SECOND)
    await end_backfilled(still_house)
    assert await still_house.backfilling().run_once() == 0
    shown = await view_of(still_house, made)
    assert (shown.state, shown.succeeded, shown.unfinished, shown.remaining) == ("paused", 4, 0, 20)
    resumed = await still_house.backfills.resume(TENANT, str(made))
    assert resumed.eta is not None
    await still_house.backfilling().run_once()
    [started, *rest] = [
        each.key for each in await backfilled(still_house, job) if each.state is State.PENDING
    ]
    await still_house.database.execute(
        "update executions set state = 'running', attempt = 1, fence = 1 where slot = $1", started.slot
    )
    cancelled = await still_house.backfills.cancel(TENANT, str(made))
    assert (cancelled.state, cancelled.staged, cancelled.unfinished) == ("cancelled", 5, 1)
    assert [await still_house.store.get_execution(TENANT, key) for key in rest] == [None] * 3
    assert cancelled.finished_at is None
    await end_backfilled(still_house)
    await still_house.backfilling().run_once()
    over = await view_of(still_house, made)
    assert (over.succeeded, over.unfinished, over.finished_at) == (5, 0, clock.now())
    with pytest.raises(errors.IllegalState, match="is cancelled"):
        await still_house.backfills.resume(TENANT, str(made))
    assert (await still_house.backfills.cancel(TENANT, str(made))).state == "cancelled"
    # What was taken back may be asked for again.
    again = await start_backfill(still_house, job, NOON - DAY, NOON, concurrency=24)
    await run_through(still_house, clock, again)
    assert len(await backfilled_slots(still_house, job)) == 24


async def test_a_dead_letter_of_a_backfill_counts_as_failed_and_is_not_run_again(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 * * * *")
    made = await start_backfill(still_house, job, NOON - 2 * HOUR, NOON, concurrency=5)
    await still_house.backfilling().run_once()
    await end_backfilled(still_house, State.FAILED)
    await still_house.backfilling().run_once()
    shown = await view_of(still_house, made)
    assert (shown.state, shown.failed, shown.succeeded) == ("finished", 2, 0)


async def test_a_backfill_keeps_no_live_slot_and_no_trigger_waiting(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="* * * * *")
    await start_backfill(still_house, job, NOON - HOUR, NOON, concurrency=5)
    await still_house.backfilling().run_once()
    rows = await still_house.database.fetch(
        "select distinct running_limit from executions where kind = 'backfill'"
    )
    assert [row["running_limit"] for row in rows] == [None]
    await still_house.trigger()


async def test_retention_keeps_what_is_unfinished_and_is_not_fought_with(
    still_house: House, clock: ManualClock
) -> None:
    kept = still_house.settings.retention.executions
    retention = Retention(still_house.store, clock, still_house.settings.retention)
    job = await still_house.create(schedule="0 */6 * * *")
    oldest = (NOON - kept).replace(hour=0)
    made = await start_backfill(still_house, job, oldest, NOON - kept + 3 * DAY, order="newest", rate="1/h")
    await still_house.backfilling().run_once()
    [row] = await backfilled(still_house, job)
    await retention.run_once()
    assert await still_house.store.get_execution(TENANT, row.key) is not None
    # Days later the first days of the range are past retention: they are neither staged nor made anew.
    clock.advance(2 * DAY)
    await end_backfilled(still_house)
    days = []
    for _ in range(20):
        await still_house.backfilling().run_once()
        await end_backfilled(still_house)
        days += await still_house.store.days()
        await retention.run_once()
        clock.advance(HOUR)
    assert min(days) >= (oldest + 2 * DAY).date()
    shown = await view_of(still_house, made)
    assert (shown.state, shown.slots) == ("finished", 14)
    assert shown.staged + shown.passed_over == shown.slots
    assert shown.passed_over >= 8


async def test_a_backfill_whose_slots_cannot_be_computed_is_set_aside(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 * * * *")
    broken = await start_backfill(still_house, job, NOON - DAY, NOON)
    await still_house.database.execute(
        "update backfills set spans = replace(spans::text, '\"UTC\"', '\"Nowhere/Gone\"')::json"
    )
    sound = await start_backfill(still_house, job, NOON - DAY, NOON)
    assert await still_house.backfilling().run_once() == 1
    shown = await view_of(still_house, broken)
    assert shown.state == "paused"
    assert "Nowhere/Gone" in (shown.note or "")
    assert (await view_of(still_house, sound)).staged == 1
