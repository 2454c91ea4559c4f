"""Calendars are kept by name and revision, and known by the jobs that follow them."""

from __future__ import annotations

from cronwell.model import calendars
from cronwell.model.planning import Plan, PlannedSlot
from cronwell.model.schedule import parse
from cronwell.store.port import CalendarUse, Store
from tests.contract.desk import DAY, HOUR, MINUTE, NOON, Desk, cursor_of, move


async def test_a_calendar_has_a_revision_for_each_change_and_none_for_the_same_again(store: Store) -> None:
    assert await store.put_calendar(1, "closed", '{"a":1}', NOON, revision=None) == 1
    assert await store.put_calendar(1, "closed", '{"a":1}', NOON + MINUTE, revision=None) is None
    assert await store.put_calendar(1, "closed", '{"a":2}', NOON + MINUTE, revision=5) is None
    assert await store.put_calendar(1, "closed", '{"a":2}', NOON + MINUTE, revision=1) == 2
    [kept] = await store.get_calendars(1, ["closed", "nothing"])
    assert (kept.revision, kept.content, kept.created_at, kept.updated_at) == (
        2,
        '{"a":2}',
        NOON,
        NOON + MINUTE,
    )


async def test_calendars_are_listed_by_name_from_behind_the_last(store: Store) -> None:
    for name in ("b", "a", "c"):
        await store.put_calendar(1, name, "{}", NOON, revision=None)
    assert [each.name for each in await store.list_calendars(1, None, 2)] == ["a", "b"]
    assert [each.name for each in await store.list_calendars(1, "b", 2)] == ["c"]


async def test_a_calendar_that_a_job_follows_stays_and_its_change_names_the_job(
    desk: Desk, store: Store
) -> None:
    job = await desk.job()
    await store.put_calendar(1, "closed", "{}", NOON, revision=None)
    async with store.transaction() as transaction:
        uses = [CalendarUse("closed", job.id, 1), CalendarUse("gone", job.id, 1)]
        assert await transaction.note_uses(1, [job.id], uses) == {"closed"}
    assert await store.calendar_users(1, "closed", 10) == 1
    assert await store.drop_calendar(1, "closed") is False
    assert await store.outdated_uses(10) == []
    await store.put_calendar(1, "closed", '{"a":1}', NOON, revision=None)
    assert await store.outdated_uses(10) == [(1, job.id)]
    async with store.transaction() as transaction:
        assert await transaction.note_uses(1, [job.id], []) == set()
    assert await store.outdated_uses(10) == []
    assert await store.drop_calendar(1, "closed") is True
    assert await store.get_calendars(1, ["closed"]) == []


def _plan_of_a_day() -> str:
    """Midnight, on the day after noon only."""
    days = {"days": calendars.parse({"dates": ["2026-05-06"]})}
    raw = {"cron": "0 0 * * *", "only": "days"}
    return Plan(parse(raw, timezone=None, window=None, now=NOON, calendars=days)).canonical()


async def test_a_cursor_that_is_held_until_a_time_is_named_from_then_on_and_not_finished(
    desk: Desk, store: Store
) -> None:
    made = await desk.job(next_slot=None, held_until=NOON)
    put = await desk.job()
    staged = await desk.job(plan=_plan_of_a_day())
    midnight = NOON + HOUR * 12
    async with store.transaction() as transaction:
        await transaction.put_cursor(cursor_of(put), None, held_until=NOON + MINUTE)
        await transaction.stage([move(staged, [PlannedSlot(midnight, midnight)], next_slot=None)], NOON)
    assert await store.waits_over(NOON - MINUTE, 10) == []
    assert await store.waits_over(NOON + MINUTE, 1) == [(1, made.id)]
    assert await store.waits_over(NOON + MINUTE, 10) == [(1, made.id), (1, put.id)]
    assert await store.waits_over(midnight + DAY, 10) == [(1, made.id), (1, put.id), (1, staged.id)]
    assert await store.finish_ended(NOON + DAY, 10) == 0
    found = await store.get_job(1, staged.id, NOON)
    assert found is not None
    assert found.held_until == midnight + DAY
    async with store.transaction() as transaction:
        await transaction.put_cursor(cursor_of(put), NOON)
        locked = await transaction.lock_job(1, made.id)
        assert locked is not None
        assert locked.held_until == NOON
    assert await store.waits_over(NOON + MINUTE, 10) == [(1, made.id)]


async def test_jobs_that_shift_by_a_calendar_are_named(desk: Desk, store: Store) -> None:
    await store.put_calendar(1, "days", "{}", NOON, revision=None)
    spec = '{"schedule": {"cron": "0 9 * * *", "exclude": "days", "shift": "next"}}'
    jobs = [await desk.job(name, spec=spec) for name in ("b", "a")]
    jobs.append(await desk.job("plain", spec='{"schedule": {"cron": "0 9 * * *", "exclude": "days"}}'))
    jobs.append(await desk.job("text", spec='{"schedule": "0 9 * * *"}'))
    async with store.transaction() as transaction:
        uses = [CalendarUse("days", job.id, 1) for job in jobs]
        await transaction.note_uses(1, [job.id for job in jobs], uses)
    assert await store.shifting_users(1, "days", 10) == ["a", "b"]
    assert await store.shifting_users(1, "days", 1) == ["a"]


async def test_a_job_that_is_finished_follows_no_calendar(desk: Desk, store: Store) -> None:
    job, other = await desk.job(next_slot=None), await desk.job()
    await store.put_calendar(1, "days", "{}", NOON, revision=None)
    async with store.transaction() as transaction:
        uses = [CalendarUse("days", each.id, 1) for each in (job, other)]
        await transaction.note_uses(1, [job.id, other.id], uses)
    assert await store.finish_ended(NOON, 10) == 1
    assert await store.calendar_users(1, "days", 10) == 1
