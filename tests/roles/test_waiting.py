"""A job that its calendar leaves without a slot waits for the calendar; one whose schedule is over has finished."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from cronwell import errors
from cronwell.control.views import JobDetail
from cronwell.model import instants
from cronwell.runtime.clock import ManualClock
from cronwell.store.port import JobFilter
from tests.support.house import CALLER, SECOND, TENANT, House

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TODAY = {"dates": ["2026-05-05"]}
LONG = {"dates": ["2026-05-05/2026-12-31"]}
_EVERY = JobFilter()
LAST = NOON + 12 * HOUR - MINUTE


async def _live(house: House, clock: ManualClock, until: datetime, step: timedelta = HOUR) -> None:
    """Let time pass with a scheduler at work, whose executions all succeed."""
    while True:
        while await house.staging().run_once():
            pass
        await house.database.execute(
            "update executions set state = 'succeeded', started_at = slot, finished_at = $1"
            " where state = 'pending' and ready_at <= $1",
            clock.now(),
        )
        await house.following_calendars().run_once()
        await house.finishing().run_once()
        if clock.now() >= until:
            return
        clock.advance(min(step, until - clock.now()))


async def _shown(house: House, job: UUID) -> JobDetail:
    return await house.jobs.get(TENANT, str(job))


async def _change(house: House, content: dict[str, Any], name: str = "days") -> None:
    await house.calendars.put(TENANT, name, content)
    await house.following_calendars().run_once()


@pytest.fixture
async def over(still_house: House, clock: ManualClock) -> tuple[House, UUID]:
    """A job that kept to a calendar which has come to its end."""
    await still_house.calendars.put(TENANT, "days", TODAY)
    job = await still_house.create(schedule={"cron": "*/30 * * * *", "only": "days"})
    await _live(still_house, clock, NOON + 13 * HOUR)
    return still_house, job


async def test_a_calendar_that_runs_out_leaves_its_job_waiting_and_a_longer_one_lets_it_go_on(
    over: tuple[House, UUID], clock: ManualClock
) -> None:
    house, job = over
    waiting = await _shown(house, job)
    assert (waiting.state, waiting.next_fire_at) == ("active", None)
    assert waiting.warnings == ["the calendar days leaves no slot; the job goes on when it changes"]
    await _change(house, LONG)
    going_on = await _shown(house, job)
    assert (going_on.state, going_on.warnings) == ("active", [])
    assert going_on.next_fire_at == NOON + 13 * HOUR + 30 * MINUTE


async def test_a_job_that_waits_says_why_in_upcoming_in_explain_in_its_status_and_in_the_list(
    over: tuple[House, UUID],
) -> None:
    house, job = over
    why = "the calendar days leaves no slot; the job goes on when it changes"
    upcoming = await house.outlook.upcoming(TENANT, str(job), 5)
    assert (upcoming.items, upcoming.note) == ([], why)
    assert (await house.outlook.status(TENANT, str(job))).note == why
    [listed] = (await house.jobs.page(TENANT, _EVERY, cursor=None, limit=10)).items
    assert listed.warnings == [why]
    found = await house.explain.explain(TENANT, str(job), instants.write(NOON + 14 * HOUR))
    assert (found.verdict, found.reason) == ("skipped", "calendar")
    assert found.sentence == f"The slot is left out: outside the calendar days. {why[0].upper()}{why[1:]}."
    past = await house.explain.explain(TENANT, str(job), instants.write(NOON + HOUR))
    assert (past.verdict, why in past.sentence) == ("executed", False)


async def test_upcoming_says_that_a_calendar_ends_before_it_does(still_house: House) -> None:
    await still_house.calendars.put(TENANT, "days", TODAY)
    job = await still_house.create(schedule={"cron": "0 22,23 * * *", "only": "days"})
    upcoming = await still_house.outlook.upcoming(TENANT, str(job), 5)
    assert len(upcoming.items) == 2
    assert upcoming.note == "then the calendar days leaves no slot; the job goes on when it changes"
    enough = await still_house.outlook.upcoming(TENANT, str(job), 2)
    assert enough.note is None


@pytest.mark.parametrize("follows", [{"exclude": ["feasts", "days"]}, {"exclude": "feasts", "only": "days"}])
async def test_of_several_calendars_the_one_is_named_that_leaves_nothing(
    still_house: House, follows: dict[str, Any]
) -> None:
    nothing = {"dates": ["1970-01-01/2100-12-31"] if "only" not in follows else ["2025-01-01"]}
    await still_house.calendars.put(TENANT, "feasts", {"dates": ["2026-06-01"]})
    await still_house.calendars.put(TENANT, "days", LONG if "only" in follows else {"dates": ["2030-01-01"]})
    job = await still_house.create(schedule={"cron": "0 0 * * *", **follows})
    await _change(still_house, nothing)
    assert (await _shown(still_house, job)).warnings == [
        "the calendar days leaves no slot; the job goes on when it changes"
    ]


async def test_calendars_that_leave_nothing_between_them_are_named_together(still_house: House) -> None:
    await still_house.calendars.put(TENANT, "a", LONG)
    await still_house.calendars.put(TENANT, "b", {"dates": ["2026-05-05/2028-01-01"]})
    job = await still_house.create(schedule={"cron": "0 0 * * *", "only": ["a", "b"]})
    await _change(still_house, {"dates": ["2025-01-01"]}, "a")
    await _change(still_house, {"dates": ["2025-01-01"]}, "b")
    assert (await _shown(still_house, job)).warnings == [
        "the calendars a and b leave no slot; the job goes on when they change"
    ]


async def _edit(house: House, job: UUID) -> None:
    await house.jobs.patch(CALLER, str(job), {"timeout": "1m"}, revision=None)


async def _pause_and_resume(house: House, job: UUID) -> None:
    await house.jobs.pause(TENANT, str(job))
    assert (await _shown(house, job)).warnings == []
    await house.jobs.resume(TENANT, str(job), fire_missed="last")


async def _pause_change_and_resume(house: House, job: UUID) -> None:
    await house.jobs.pause(TENANT, str(job))
    await _change(house, {"dates": ["2026-05-04"]})
    await house.jobs.resume(TENANT, str(job))


async def _change_to_nothing(house: House, job: UUID) -> None:
    await _change(house, {"dates": ["2026-05-04"]})


@pytest.mark.parametrize("happens", [_edit, _pause_and_resume, _pause_change_and_resume, _change_to_nothing])
async def test_a_job_that_waits_goes_on_waiting_whatever_happens_to_it(
    over: tuple[House, UUID], clock: ManualClock, happens: Callable[[House, UUID], Awaitable[None]]
) -> None:
    house, job = over
    await happens(house, job)
    await _live(house, clock, clock.now() + HOUR)
    view = await _shown(house, job)
    assert (view.state, len(view.warnings)) == ("active", 1)
    await _change(house, LONG)
    assert (await _shown(house, job)).next_fire_at is not None


async def test_a_calendar_whose_last_slot_is_staged_by_the_change_itself_leaves_its_job_waiting(
    still_house: House, clock: ManualClock
) -> None:
    await still_house.calendars.put(TENANT, "days", LONG)
    job = await still_house.create(schedule={"cron": "*/30 * * * * *", "only": "days"})
    window = {"windows": [{"from": "2026-05-05T12:00:00Z", "to": "2026-05-05T12:00:45Z"}]}
    await _change(still_house, window)
    assert (await _shown(still_house, job)).next_fire_at == NOON + 30 * SECOND
    await _live(still_house, clock, NOON + HOUR)
    assert (await _shown(still_house, job)).state == "active"


async def test_a_job_is_made_with_its_last_slots_staged_and_waits_after_them(
    still_house: House, clock: ManualClock
) -> None:
    window = {"windows": [{"from": "2026-05-05T12:00:00Z", "to": "2026-05-05T12:00:45Z"}]}
    await still_house.calendars.put(TENANT, "days", window)
    job = await still_house.create(schedule={"cron": "*/30 * * * * *", "only": "days"})
    await _live(still_house, clock, NOON + HOUR)
    assert (await _shown(still_house, job)).state == "active"


@pytest.mark.parametrize(
    "schedule",
    [
        {"cron": "*/30 * * * *", "max_runs": 3},
        {"cron": "*/30 * * * *", "end": instants.write(LAST)},
        {"at": [instants.write(NOON + HOUR), instants.write(NOON + 2 * HOUR)]},
        {"rrule": "FREQ=HOURLY;COUNT=4", "start": instants.write(NOON + MINUTE)},
    ],
)
async def test_a_job_whose_schedule_is_over_is_finished_whatever_its_calendar_says(
    still_house: House, clock: ManualClock, schedule: dict[str, Any]
) -> None:
    await still_house.calendars.put(TENANT, "days", TODAY)
    job = await still_house.create(schedule={**schedule, "only": "days"})
    await _live(still_house, clock, NOON + 13 * HOUR)
    assert (await _shown(still_house, job)).state == "finished"


@pytest.mark.parametrize(
    "schedule",
    [
        {"cron": "*/30 * * * *", "end": instants.write(NOON + 3 * DAY)},
        {"at": [instants.write(NOON + HOUR), instants.write(NOON + 3 * DAY)]},
        {"rrule": "FREQ=HOURLY;COUNT=60", "start": instants.write(NOON + MINUTE)},
    ],
)
async def test_a_job_that_waits_is_finished_once_its_schedule_is_over(
    still_house: House, clock: ManualClock, schedule: dict[str, Any]
) -> None:
    await still_house.calendars.put(TENANT, "days", TODAY)
    job = await still_house.create(schedule={**schedule, "only": "days"})
    await _live(still_house, clock, NOON + 2 * DAY)
    assert (await _shown(still_house, job)).state == "active"
    await _live(still_house, clock, NOON + 5 * DAY)
    assert (await _shown(still_house, job)).state == "finished"


async def test_a_finished_job_is_not_brought_back_by_its_calendar(
    still_house: House, clock: ManualClock
) -> None:
    await still_house.calendars.put(TENANT, "days", TODAY)
    job = await still_house.create(schedule={"cron": "*/30 * * * *", "max_runs": 1, "only": "days"})
    await _live(still_house, clock, NOON + 2 * HOUR)
    await _change(still_house, LONG)
    assert (await _shown(still_house, job)).state == "finished"
    with pytest.raises(errors.IllegalState):
        await still_house.jobs.pause(TENANT, str(job))


async def test_a_job_that_counts_its_runs_waits_with_those_that_are_left(
    still_house: House, clock: ManualClock
) -> None:
    await still_house.calendars.put(TENANT, "days", TODAY)
    job = await still_house.create(schedule={"cron": "0 22,23 * * *", "max_runs": 3, "only": "days"})
    await _live(still_house, clock, NOON + DAY)
    await _change(still_house, LONG)
    await _live(still_house, clock, NOON + 3 * DAY)
    assert len(await still_house.history(job)) == 3
    assert (await _shown(still_house, job)).state == "finished"
