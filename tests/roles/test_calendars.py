"""Jobs follow calendars: what is closed is left out, and a change of a calendar reaches what is staged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from cronwell import errors
from cronwell.model import instants
from cronwell.runtime.clock import ManualClock
from tests.support.house import CALLER, TENANT, House

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LUNCH = {"windows": [{"from": "2026-05-05T12:00:30Z", "to": "2026-05-05T13:00:00Z"}]}
OPEN = {"dates": ["2030-01-01"]}


async def _staged(house: House, job: UUID) -> list[datetime]:
    return [each.key.slot for each in await house.history(job)]


async def test_a_job_leaves_out_what_its_calendar_contains(still_house: House, clock: ManualClock) -> None:
    await still_house.calendars.put(TENANT, "lunch", LUNCH)
    job = await still_house.create(schedule={"cron": "*/15 * * * * *", "exclude": "lunch"})
    assert await _staged(still_house, job) == [NOON + timedelta(seconds=15)]
    view = await still_house.jobs.get(TENANT, str(job))
    assert view.next_fire_at == NOON + timedelta(seconds=15)
    found = await still_house.explain.explain(TENANT, str(job), instants.write(NOON + MINUTE))
    assert (found.verdict, found.reason) == ("skipped", "calendar")
    assert "in the calendar lunch" in found.sentence


async def test_a_change_of_a_calendar_reaches_what_is_staged(still_house: House, clock: ManualClock) -> None:
    await still_house.calendars.put(TENANT, "lunch", OPEN)
    jobs = [
        await still_house.create(f"job-{n}", schedule={"cron": "*/15 * * * * *", "exclude": "lunch"})
        for n in range(3)
    ]
    paused = await still_house.create("paused", schedule={"cron": "*/15 * * * * *", "exclude": "lunch"})
    await still_house.jobs.pause(TENANT, str(paused))
    assert all([len(await _staged(still_house, job)) == 4 for job in jobs])
    await still_house.calendars.put(TENANT, "lunch", LUNCH)
    assert await still_house.following_calendars().run_once() == 4
    assert await still_house.following_calendars().run_once() == 0
    for job in jobs:
        assert await _staged(still_house, job) == [NOON + timedelta(seconds=15)]
        assert (await still_house.jobs.get(TENANT, str(job))).revision == 1
    clock.advance(timedelta(hours=2))
    await still_house.jobs.resume(TENANT, str(paused))
    assert (await _staged(still_house, paused))[0] > NOON + timedelta(hours=2)
    await still_house.calendars.put(TENANT, "lunch", OPEN)
    await still_house.following_calendars().run_once()
    detail = await still_house.calendars.get(TENANT, "lunch", timezone="UTC")
    assert (detail.jobs, detail.revision) == (4, 3)


async def test_a_calendar_that_is_followed_cannot_be_deleted_until_the_schedule_is_another(
    still_house: House,
) -> None:
    await still_house.calendars.put(TENANT, "lunch", LUNCH)
    job = await still_house.create(schedule={"cron": "0 * * * *", "exclude": "lunch"})
    with pytest.raises(errors.IllegalState, match="1 job"):
        await still_house.calendars.delete(TENANT, "lunch")
    await still_house.jobs.patch(CALLER, str(job), {"timeout": "1m"}, revision=None)
    with pytest.raises(errors.IllegalState, match="1 job"):
        await still_house.calendars.delete(TENANT, "lunch")
    await still_house.jobs.patch(CALLER, str(job), {"schedule": "0 * * * *"}, revision=None)
    # A merge leaves `exclude` in an object; here a text took its place.
    await still_house.calendars.delete(TENANT, "lunch")
    with pytest.raises(errors.NotFound):
        await still_house.calendars.get(TENANT, "lunch", timezone="UTC")


async def test_a_deleted_job_follows_no_calendar(still_house: House) -> None:
    await still_house.calendars.put(TENANT, "lunch", LUNCH)
    job = await still_house.create(schedule={"cron": "0 * * * *", "exclude": "lunch"})
    await still_house.jobs.delete(TENANT, str(job))
    assert (await still_house.calendars.get(TENANT, "lunch", timezone="UTC")).jobs == 0
    await still_house.calendars.delete(TENANT, "lunch")


@pytest.mark.parametrize("name", ["lunhc", "nothing-like-it"])
async def test_a_calendar_that_is_not_there_is_refused_with_the_nearest(
    still_house: House, name: str
) -> None:
    await still_house.calendars.put(TENANT, "lunch", LUNCH)
    with pytest.raises(errors.Invalid) as caught:
        await still_house.create(schedule={"cron": "0 * * * *", "exclude": name})
    [problem] = caught.value.problems
    assert problem.field == "schedule.exclude"
    assert f"no calendar {name!r}" in problem.message
    assert ("did you mean lunch" in problem.message) == (name == "lunhc")


async def test_a_shift_is_not_blamed_for_a_calendar_that_is_not_there(still_house: House) -> None:
    with pytest.raises(errors.Invalid) as caught:
        await still_house.create(schedule={"cron": "0 9 * * *", "exclude": "nope", "shift": "next"})
    assert [each.field for each in caught.value.problems] == ["schedule.exclude"]


async def test_a_batch_notes_what_its_jobs_follow(still_house: House) -> None:
    await still_house.calendars.put(TENANT, "lunch", LUNCH)
    raws: list[dict[str, Any]] = [
        {
            "name": f"j{n}",
            "target": "https://example.com",
            "schedule": {"cron": "0 * * * *", "exclude": "lunch"},
        }
        for n in range(5)
    ]
    made = await still_house.jobs.create_many(CALLER, [*raws, raws[0]])
    assert [each.error is None for each in made] == [True] * 5 + [False]
    assert (await still_house.calendars.get(TENANT, "lunch", timezone="UTC")).jobs == 5


async def test_what_a_calendar_contains_next_is_told_by_the_clock_of_a_zone(still_house: House) -> None:
    content = {
        "holidays": [{"country": "DE"}],
        "hours": [{"days": "SAT-SUN", "from": "00:00", "to": "24:00"}],
    }
    await still_house.calendars.put(TENANT, "free", content)
    shown = await still_house.calendars.get(TENANT, "free", timezone="Europe/Berlin")
    assert shown.coming[0].begins.startswith("2026-05-09T00:00")
    assert any("Ascension" in each.why or "Himmelfahrt" in each.why for each in shown.coming)
    assert len(shown.coming) == 10


async def test_the_same_content_again_is_no_change_and_an_old_revision_is_refused(still_house: House) -> None:
    _, is_new = await still_house.calendars.put(TENANT, "lunch", LUNCH)
    again, is_new_again = await still_house.calendars.put(TENANT, "lunch", LUNCH)
    assert (is_new, is_new_again, again.revision) == (True, False, 1)
    with pytest.raises(errors.RevisionMismatch):
        await still_house.calendars.put(TENANT, "lunch", OPEN, revision=7)
    changed, _ = await still_house.calendars.put(TENANT, "lunch", OPEN, revision=1)
    assert changed.revision == 2


async def test_a_calendar_that_is_deleted_while_it_is_put_is_a_conflict(
    still_house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = still_house.store.put_calendar

    async def put_and_lose(tenant_id: int, name: str, *args: Any, **options: Any) -> int | None:
        kept = await put(tenant_id, name, *args, **options)
        assert await still_house.store.drop_calendar(tenant_id, name)
        return kept

    monkeypatch.setattr(still_house.store, "put_calendar", put_and_lose)
    with pytest.raises(errors.Conflict, match="deleted in this moment"):
        await still_house.calendars.put(TENANT, "lunch", LUNCH)


@pytest.mark.parametrize(
    ("follows", "opened", "closed"),
    [
        ("exclude", OPEN, {"dates": ["1970-01-01/2100-12-31"]}),
        ("only", {"dates": ["2026-01-01/2030-01-01"]}, {"dates": ["2025-01-01"]}),
    ],
)
async def test_a_job_whose_calendar_leaves_nothing_waits_until_the_calendar_is_another(
    still_house: House, follows: str, opened: dict[str, Any], closed: dict[str, Any]
) -> None:
    await still_house.calendars.put(TENANT, "days", opened)
    job = await still_house.create(schedule={"cron": "0 0 * * *", follows: "days"})
    found = []
    for content in (closed, opened):
        await still_house.calendars.put(TENANT, "days", content)
        await still_house.following_calendars().run_once()
        await still_house.finishing().run_once()
        view = await still_house.jobs.get(TENANT, str(job))
        found.append((view.state, view.next_fire_at))
    assert found == [("active", None), ("active", NOON + timedelta(hours=12))]
