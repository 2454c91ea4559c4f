"""Expected = accounted, whatever happens to jobs and schedulers in a day; and what is taken away is named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from cronwell import errors
from cronwell.control import reconcile
from cronwell.control.reconcile import Reconciliation
from cronwell.model.shards import shard_of
from cronwell.runtime.clock import ManualClock
from tests.support.house import CALLER, SECOND, TENANT, House

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def _stage(house: House) -> None:
    while await house.staging().run_once():
        pass


async def _finish(house: House, at: datetime) -> None:
    """Let everything that was due end, and the chores do their part."""
    await house.database.execute(
        "update executions set state = 'succeeded', started_at = slot, finished_at = $1"
        " where state = 'pending' and ready_at <= $1",
        at,
    )
    await house.finishing().run_once()
    await house.following().run_once()
    await house.resuming().run_once()


async def _live(house: House, clock: ManualClock, until: datetime, step: timedelta = MINUTE) -> None:
    """Let time pass with a scheduler at work."""
    while clock.now() < until:
        clock.advance(min(step, until - clock.now()))
        await _stage(house)
        await _finish(house, clock.now())


async def _whole(house: House, since: datetime, before: datetime, **where: Any) -> Reconciliation:
    """The answer to one question, all pages of it."""
    found = await house.reconcile.reconcile(TENANT, since=since, before=before, **where)
    assert found.next_cursor is None
    return found


@pytest.fixture
async def day(still_house: House, clock: ManualClock) -> House:
    """Most of a day in which much happens."""
    house, create = still_house, still_house.create
    plain = await create("plain", schedule="* * * * *")
    await create("none", schedule="*/2 * * * *", catch_up="none")
    await create("all", schedule="*/3 * * * *", catch_up="all", catch_up_window="6h", catch_up_limit=5)
    await create("dense", schedule="*/10 * * * * *", catch_up="none")
    await create("zoned", schedule={"cron": "30 2,17 * * *", "timezone": "Europe/Berlin"})
    await create("wide", schedule="0 * * * *", window="20m")
    await create("thrice", schedule={"cron": "*/5 * * * *", "max_runs": 3})
    await create("once", schedule="in 20m")
    await create("chain", schedule="every 7m after finish")
    await create("bare")
    edited = await create("edited", schedule="*/4 * * * *")
    paused = await create("paused", schedule="*/6 * * * *")
    gone = await create("gone", schedule="* * * * *")
    await _live(house, clock, NOON + 40 * MINUTE)
    await house.jobs.patch(CALLER, str(edited), {"schedule": "1-59/4 * * * *"}, revision=None)
    await house.jobs.pause(TENANT, str(paused))
    await house.jobs.patch(CALLER, "name:plain", {"priority": "high"}, revision=None)
    await _live(house, clock, NOON + HOUR + 30 * SECOND)
    # An outage in which jobs are changed all the same.
    clock.advance(2 * HOUR)
    await house.jobs.patch(CALLER, str(edited), {"schedule": "*/15 * * * *"}, revision=None)
    await house.jobs.patch(CALLER, str(paused), {"schedule": "5 9 * * *"}, revision=None)
    await house.jobs.delete(TENANT, str(gone))
    await create("late", schedule="* * * * *")
    await _live(house, clock, NOON + 4 * HOUR, 7 * MINUTE)
    await house.jobs.resume(TENANT, str(paused))
    await house.jobs.pause(TENANT, str(edited), until=clock.now() + HOUR)
    await house.jobs.pause(TENANT, str(plain))
    await house.jobs.patch(CALLER, "name:thrice", {"schedule": "*/20 * * * *"}, revision=None)
    await _live(house, clock, NOON + 6 * HOUR, 3 * MINUTE)
    await house.jobs.resume(TENANT, str(plain), fire_missed="all")
    await house.jobs.pause(TENANT, "name:late")
    await house.jobs.pause(TENANT, "name:none")
    await _live(house, clock, NOON + 7 * HOUR)
    await house.jobs.delete(TENANT, "name:none")
    return house


async def test_a_day_of_edits_pauses_and_outages_is_accounted_for(day: House, clock: ManualClock) -> None:
    found = await _whole(day, NOON, clock.now())
    assert [(each.kind, each.job, each.slot) for each in found.differences] == []
    assert (found.missing, found.extra, found.unreadable) == (0, 0, 0)
    assert found.expected == found.accounted > 3000
    assert found.jobs == 14


async def test_each_hour_and_each_shard_is_accounted_for_by_itself(day: House, clock: ManualClock) -> None:
    whole = await _whole(day, NOON, clock.now())
    hours = [await _whole(day, NOON + n * HOUR, NOON + (n + 1) * HOUR) for n in range(7)]
    assert [each.missing for each in hours] == [0] * 7
    assert sum(each.expected for each in hours) == whole.expected
    shards = [await _whole(day, NOON, clock.now(), shard=shard) for shard in range(64)]
    assert sum(each.expected for each in shards) == whole.expected
    assert sum(each.jobs for each in shards) == whole.jobs


async def test_an_execution_that_is_taken_away_is_named(day: House, clock: ManualClock) -> None:
    job: UUID = await day.database.fetchval("select id from jobs where name = 'all'")
    slot = NOON + 6 * MINUTE
    await day.database.execute("delete from executions where job_id = $1 and slot = $2", job, slot)
    found = await _whole(day, NOON, clock.now())
    assert [(each.kind, each.job_id, each.slot) for each in found.differences] == [("missing", job, slot)]
    assert (found.expected - found.accounted, found.missing) == (1, 1)
    other = (shard_of(job) + 1) % 64
    assert (await _whole(day, NOON, clock.now(), shard=shard_of(job))).missing == 1
    assert (await _whole(day, NOON, clock.now(), shard=other)).missing == 0


@pytest.mark.parametrize("name", ["paused", "gone", "none"])
async def test_a_range_of_skipped_slots_that_is_taken_away_is_missed(
    day: House, clock: ManualClock, name: str
) -> None:
    await day.database.execute("delete from skips where job_id = (select id from jobs where name = $1)", name)
    found = await _whole(day, NOON, clock.now())
    assert {(each.kind, each.job) for each in found.differences} == {("missing", name)}


async def test_what_no_scheduler_has_staged_yet_is_missing(still_house: House, clock: ManualClock) -> None:
    await still_house.create(schedule="*/10 * * * *")
    clock.advance(HOUR)
    assert (await _whole(still_house, NOON, clock.now())).missing == 5
    await _stage(still_house)
    assert (await _whole(still_house, NOON, clock.now() - SECOND)).missing == 0


async def test_an_execution_that_no_definition_explains_is_extra(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="*/10 * * * *")
    await still_house.store.ensure_day(NOON.date())
    await still_house.database.execute(
        "insert into executions (tenant_id, job_id, kind, slot, ready_at, state, revision, priority, pool)"
        " values (1, $1, 'scheduled', $2, $2, 'succeeded', 1, 1, 'default')",
        job,
        NOON + 3 * MINUTE,
    )
    clock.advance(5 * MINUTE)
    found = await _whole(still_house, NOON, clock.now())
    assert [(each.kind, each.slot) for each in found.differences] == [("extra", NOON + 3 * MINUTE)]
    assert (found.missing, found.extra) == (0, 1)


async def test_a_job_whose_slots_cannot_be_computed_is_counted(
    still_house: House, clock: ManualClock
) -> None:
    await still_house.create(schedule="*/10 * * * *")
    await still_house.database.execute("update cursors set plan = '{\"schedule\": {}}'")
    clock.advance(5 * MINUTE)
    assert (await _whole(still_house, NOON, clock.now())).unreadable == 1


async def test_many_jobs_come_in_pages_that_add_up(
    still_house: House, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        await still_house.create(f"job-{number}", schedule="* * * * *")
    clock.advance(30 * SECOND)
    await _live(still_house, clock, NOON + 5 * MINUTE)
    monkeypatch.setattr(reconcile, "JOBS_AT_ONCE", 3)
    monkeypatch.setattr(reconcile, "SLOTS_AT_ONCE", 5)
    whole = await _whole(still_house, NOON, clock.now())
    assert (whole.jobs, whole.expected, whole.missing) == (7, 28, 0)
    monkeypatch.setattr(reconcile, "BUDGET", timedelta())
    cursor, jobs = None, []
    while True:
        found = await still_house.reconcile.reconcile(TENANT, since=NOON, before=clock.now(), cursor=cursor)
        jobs.append(found.jobs)
        cursor = found.next_cursor
        if cursor is None:
            break
    assert jobs == [3, 3, 1]


@pytest.mark.parametrize(
    ("since", "before", "field"),
    [
        (NOON, NOON + 2 * HOUR, "to"),
        (NOON, NOON, "from"),
        (NOON - 25 * HOUR, NOON, "from"),
        (NOON - 24 * HOUR, NOON - 12 * HOUR, "from"),
    ],
)
async def test_a_range_that_cannot_be_answered_for_is_refused(
    still_house: House, since: datetime, before: datetime, field: str
) -> None:
    await still_house.store.ensure_day(NOON.date())
    with pytest.raises(errors.Invalid) as refused:
        await still_house.reconcile.reconcile(TENANT, since=since, before=before)
    assert [each.field for each in refused.value.problems] == [field]


async def test_a_finished_job_still_answers_for_its_time(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule={"at": ["2026-05-05T12:01:00Z", "2026-05-05T12:02:00Z"]})
    await _live(still_house, clock, NOON + 10 * MINUTE)
    assert (await still_house.jobs.get(TENANT, str(job))).state == "finished"
    assert (await _whole(still_house, NOON, clock.now())).expected == 2
    await still_house.database.execute("delete from executions where slot = $1", NOON + MINUTE)
    [lost] = (await _whole(still_house, NOON, clock.now())).differences
    assert (lost.kind, lost.slot) == ("missing", NOON + MINUTE)


async def test_a_job_that_has_run_as_often_as_it_may_is_expected_to_do_no_more(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule={"cron": "* * * * *", "max_runs": 2})
    for _ in range(10):
        clock.advance(MINUTE)
        await _stage(still_house)
        await still_house.finishing().run_once()
    assert (await still_house.jobs.get(TENANT, str(job))).state == "active", "its last run has not ended"
    assert (await _whole(still_house, NOON, clock.now())).expected == 2
    await _finish(still_house, clock.now())
    assert (await still_house.jobs.get(TENANT, str(job))).state == "finished"
    found = await _whole(still_house, NOON, clock.now())
    assert (found.expected, found.missing, found.extra) == (2, 0, 0)
    later = await _whole(still_house, NOON + 5 * MINUTE, clock.now())
    assert (later.expected, later.missing) == (0, 0)
