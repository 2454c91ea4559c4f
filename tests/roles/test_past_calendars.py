"""What a calendar said then holds for then: its change, and whatever comes after it, leaves history as it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from cronwell.control.backfills import Asked
from cronwell.model import instants
from cronwell.runtime.clock import ManualClock
from tests.support.house import CALLER, TENANT, House

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
LUNCH = {"windows": [{"from": "2026-05-05T12:30:00Z", "to": "2026-05-05T13:30:00Z"}]}
NEVER = {"dates": ["2030-01-01"]}
CLOSED = {"dates": ["2026-05-05"]}

Event = Callable[[House, UUID], Awaitable[Any]]


async def _live(house: House, clock: ManualClock, until: datetime) -> None:
    while clock.now() < until:
        clock.advance(min(MINUTE, until - clock.now()))
        while await house.staging().run_once():
            pass
        await house.database.execute(
            "update executions set state = 'succeeded', started_at = slot, finished_at = $1"
            " where state = 'pending' and ready_at <= $1",
            clock.now(),
        )
        await house.following_calendars().run_once()
        await house.finishing().run_once()


async def _nothing(house: House, job: UUID) -> None:
    pass


async def _delete(house: House, job: UUID) -> None:
    await house.jobs.delete(TENANT, str(job))


async def _edit(house: House, job: UUID) -> None:
    await house.jobs.patch(CALLER, str(job), {"timeout": "1m"}, revision=None)


async def _another_schedule(house: House, job: UUID) -> None:
    await house.jobs.patch(CALLER, str(job), {"schedule": "0 0 * * *"}, revision=None)


async def _pause(house: House, job: UUID) -> None:
    await house.jobs.pause(TENANT, str(job))


async def _change_again(house: House, job: UUID) -> None:
    await house.calendars.put(TENANT, "lunch", CLOSED)
    await house.following_calendars().run_once()


EVENTS: list[Event] = [_nothing, _delete, _edit, _another_schedule, _pause, _change_again]


@pytest.mark.parametrize("happens", EVENTS)
async def test_what_a_calendar_left_out_is_not_missed_once_it_is_another(
    still_house: House, clock: ManualClock, happens: Event
) -> None:
    await still_house.calendars.put(TENANT, "lunch", LUNCH)
    job = await still_house.create(schedule={"cron": "*/10 * * * *", "exclude": "lunch"})
    await _live(still_house, clock, NOON + 2 * HOUR)
    await still_house.calendars.put(TENANT, "lunch", NEVER)
    await _live(still_house, clock, NOON + 3 * HOUR)
    await happens(still_house, job)
    await _live(still_house, clock, NOON + 4 * HOUR)
    found = await still_house.reconcile.reconcile(TENANT, since=NOON, before=clock.now())
    assert [(each.kind, each.slot) for each in found.differences] == []
    kept = 17 if happens in (_nothing, _edit) else 12
    assert found.expected == kept, "every slot is told of, those before the change too"
    then = await still_house.explain.explain(TENANT, str(job), instants.write(NOON + HOUR))
    assert (then.verdict, then.reason) == ("skipped", "calendar")
    assert "in the calendar lunch" in then.sentence
    now = await still_house.explain.explain(TENANT, str(job), instants.write(NOON + 150 * MINUTE))
    assert now.verdict == "executed"


async def test_what_a_calendar_let_through_is_expected_although_it_is_closed_now(
    still_house: House, clock: ManualClock
) -> None:
    await still_house.calendars.put(TENANT, "lunch", NEVER)
    job = await still_house.create(schedule={"cron": "*/10 * * * *", "exclude": "lunch"})
    await _live(still_house, clock, NOON + HOUR)
    await still_house.calendars.put(TENANT, "lunch", CLOSED)
    await _live(still_house, clock, NOON + 2 * HOUR)
    await still_house.database.execute("delete from executions where slot = $1", NOON + 20 * MINUTE)
    found = await still_house.reconcile.reconcile(TENANT, since=NOON, before=clock.now())
    assert [(each.kind, each.slot) for each in found.differences] == [("missing", NOON + 20 * MINUTE)]
    lost = await still_house.explain.explain(TENANT, str(job), instants.write(NOON + 20 * MINUTE))
    assert lost.verdict == "no_record"


async def test_a_pause_goes_on_over_a_change_of_the_calendar_and_what_it_passed_is_told(
    still_house: House, clock: ManualClock
) -> None:
    await still_house.calendars.put(TENANT, "lunch", NEVER)
    job = await still_house.create(schedule={"cron": "*/10 * * * *", "exclude": "lunch"})
    await _live(still_house, clock, NOON + HOUR)
    await still_house.jobs.pause(TENANT, str(job))
    await _live(still_house, clock, NOON + 2 * HOUR)
    await still_house.calendars.put(TENANT, "lunch", CLOSED)
    await _live(still_house, clock, NOON + 3 * HOUR)
    await still_house.jobs.delete(TENANT, str(job))
    found = await still_house.reconcile.reconcile(TENANT, since=NOON, before=clock.now())
    assert [(each.kind, each.slot) for each in found.differences] == []
    passed = await still_house.explain.explain(TENANT, str(job), instants.write(NOON + 90 * MINUTE))
    assert (passed.verdict, passed.reason) == ("skipped", "paused")


async def test_a_backfill_by_the_definition_of_then_goes_by_the_calendar_of_then(
    still_house: House, clock: ManualClock
) -> None:
    await still_house.calendars.put(TENANT, "lunch", LUNCH)
    job = await still_house.create(schedule={"cron": "*/10 * * * *", "exclude": "lunch"})
    await _live(still_house, clock, NOON + 2 * HOUR)
    await still_house.calendars.put(TENANT, "lunch", NEVER)
    await _live(still_house, clock, NOON + 3 * HOUR)
    counts = [
        (await still_house.backfills.preview(TENANT, str(job), Asked(begin=NOON, definition=each))).count
        for each in ("then", "current")
    ]
    # From noon on: the definition of then begins after the job was made.
    assert counts == [11, 18]


async def test_the_same_calendar_again_keeps_no_second_plan(still_house: House, clock: ManualClock) -> None:
    await still_house.calendars.put(TENANT, "lunch", LUNCH)
    await still_house.create(schedule={"cron": "*/10 * * * *", "exclude": "lunch"})
    for content in (NEVER, LUNCH, LUNCH):
        clock.advance(MINUTE)
        await still_house.calendars.put(TENANT, "lunch", content)
        await still_house.following_calendars().run_once()
    kept = await still_house.database.fetch(
        "select revision, valid_from, valid_to from job_revisions order by valid_from"
    )
    assert [tuple(row) for row in kept] == [(1, NOON, NOON + MINUTE), (1, NOON + MINUTE, NOON + 2 * MINUTE)]
