"""Calendars are kept by name and revision, and known by the jobs that follow them."""

from __future__ import annotations

from cronwell.store.port import CalendarUse, Store
from tests.contract.desk import MINUTE, NOON, Desk


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
