"""Who follows a calendar, and what may therefore not become of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cronwell import errors
from cronwell.runtime.clock import ManualClock
from tests.support.house import TENANT, House

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAYS = {"dates": ["2026-05-06"]}
OFFICE = {"hours": [{"days": "MON-FRI", "from": "09:00", "to": "17:00"}]}
FREEZE = {"dates": ["2026-05-06"], "windows": [{"from": "2026-05-07T00:00", "to": "2026-05-08T00:00"}]}
SHIFTED = {"cron": "0 9 * * *", "exclude": "days", "shift": "next"}


@pytest.mark.parametrize("content", [OFFICE, FREEZE])
async def test_a_calendar_that_jobs_shift_by_keeps_to_whole_days_and_the_jobs_are_named(
    still_house: House, content: dict[str, object]
) -> None:
    await still_house.calendars.put(TENANT, "days", DAYS)
    for n in range(7):
        await still_house.create(f"payday-{n}", schedule=SHIFTED)
    await still_house.create("plain", schedule={"cron": "0 9 * * *", "exclude": "days"})
    with pytest.raises(errors.IllegalState) as refused:
        await still_house.calendars.put(TENANT, "days", content)
    assert str(refused.value) == (
        "jobs shift by the calendar 'days' (payday-0, payday-1, payday-2, payday-3, payday-4 and others), so it takes "
        "whole days; put hours and windows into another calendar, or take `shift` from these jobs first"
    )
    assert (await still_house.calendars.get(TENANT, "days", timezone="UTC")).revision == 1
    for n in range(7):
        await still_house.jobs.delete(TENANT, f"name:payday-{n}")
    kept, _ = await still_house.calendars.put(TENANT, "days", content)
    assert kept.revision == 2


async def test_a_finished_job_follows_no_calendar(still_house: House, clock: ManualClock) -> None:
    await still_house.calendars.put(TENANT, "days", DAYS)
    job = await still_house.create(schedule={"at": "2026-05-05T12:00:30Z", "exclude": "days"})
    other = await still_house.create("other", schedule={"cron": "0 * * * *", "exclude": "days"})
    clock.advance(HOUR)
    await still_house.database.execute(
        "update executions set state = 'succeeded', started_at = slot, finished_at = $1", clock.now()
    )
    await still_house.finishing().run_once()
    assert (await still_house.jobs.get(TENANT, str(job))).state == "finished"
    with pytest.raises(errors.IllegalState, match="1 job"):
        await still_house.calendars.delete(TENANT, "days")
    await still_house.jobs.delete(TENANT, str(other))
    await still_house.calendars.delete(TENANT, "days")
