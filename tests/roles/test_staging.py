"""Staging: each slot gets one verdict, in time, whoever stages and whatever happens in between."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from cronwell import errors
from cronwell.control.jobs import Jobs
from cronwell.control.pacing import HEAD_START
from cronwell.control.scheduling import move_from
from cronwell.model.execution import State
from cronwell.model.shards import SHARDS
from cronwell.runtime.clock import ManualClock
from cronwell.scheduler import staging as scheduler_staging
from cronwell.scheduler.staging import SLOTS, jobs_for_next
from cronwell.store.port import EVER
from tests.support.house import CALLER, SECOND, TENANT, House

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


async def _stage_all(house: House) -> None:
    for _ in range(100):
        if not await house.staging().run_once():
            return
    raise AssertionError("staging finds no end")


async def test_creating_a_job_stages_its_slots_inside_the_look_ahead_at_once(still_house: House) -> None:
    job = await still_house.create(schedule="*/20 * * * * *")
    slots = [each.key.slot for each in await still_house.history(job)]
    assert slots == [NOON + timedelta(seconds=s) for s in (20, 40, 60)]


async def test_staging_walks_ahead_of_the_clock_without_gap_or_double(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="* * * * *")
    for _ in range(40):
        clock.advance(timedelta(seconds=17))
        await _stage_all(still_house)
    slots = [each.key.slot for each in await still_house.history(job)]
    assert slots == [NOON + MINUTE * n for n in range(1, len(slots) + 1)]
    assert slots[-1] >= clock.now() + still_house.settings.scheduler.look_ahead - MINUTE


async def test_many_schedulers_at_once_stage_each_slot_once(still_house: House, clock: ManualClock) -> None:
    jobs = [await still_house.create(f"job-{n}", schedule="* * * * *") for n in range(30)]
    for _ in range(5):
        clock.advance(MINUTE)
        await asyncio.gather(*(_stage_all(still_house) for _ in range(6)))
    for job in jobs:
        slots = [each.key.slot for each in await still_house.history(job)]
        assert slots == [NOON + MINUTE * n for n in range(1, len(slots) + 1)]
        assert len(slots) >= 6


async def test_jobs_with_many_slots_are_staged_fewer_at_a_time(
    still_house: House, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_staging, "FIRST_BATCH", 2000)
    jobs = [await still_house.create(f"job-{n}", schedule="every 1s") for n in range(150)]
    await _stage_all(still_house)
    staging = still_house.staging()
    clock.advance(MINUTE / 2)
    assert await staging.run_once() == len(jobs)
    clock.advance(MINUTE / 2)
    assert 0 < await staging.run_once() <= SHARDS
    while await staging.run_once():
        pass
    for job in jobs[::50]:
        slots = sorted(each.key.slot for each in await still_house.history(job))
        assert slots == [slots[0] + SECOND * n for n in range(len(slots))]
        assert slots[-1] >= clock.now() + still_house.settings.scheduler.look_ahead - SECOND


def test_how_many_jobs_are_staged_at_a_time_follows_their_slots() -> None:
    assert jobs_for_next(2000, 60_000, 2000, 2000) == 2000 * SLOTS // 60_000
    assert jobs_for_next(60, 60, 66, 2000) == 132
    assert jobs_for_next(2000, 2000, 2000, 2000) == min(2000, SLOTS)
    assert jobs_for_next(1, 100_000, 1, 2000) == 1
    assert jobs_for_next(5, 0, 8, 2000) == 16


async def test_a_cursor_that_moved_meanwhile_refuses_the_whole_batch(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="* * * * *")
    clock.advance(timedelta(minutes=3))
    now = clock.now()
    async with still_house.store.transaction() as transaction:
        [stale] = await transaction.lock_due(dict.fromkeys(range(SHARDS), EVER), now, 10)
    await _stage_all(still_house)
    before = await still_house.history(job)
    move = move_from(stale, now=now, settings=still_house.settings.scheduler)
    with pytest.raises(errors.LeaseLost):
        async with still_house.store.transaction() as transaction:
            await transaction.stage([move], now)
    assert await still_house.history(job) == before


async def test_a_job_that_was_edited_meanwhile_refuses_what_was_planned_before(
    still_house: House, clock: ManualClock
) -> None:
    """The edit leaves the schedule, and so the cursor's slot, as it was: only the revision tells."""
    job = await still_house.create(schedule="* * * * *")
    now = clock.now()
    async with still_house.store.transaction() as transaction:
        [stale] = await transaction.lock_due(dict.fromkeys(range(SHARDS), EVER), now + timedelta(hours=1), 10)
    await still_house.jobs.patch(CALLER, str(job), {"priority": "high"}, revision=None)
    before = await still_house.history(job)
    move = move_from(
        stale, now=now, settings=still_house.settings.scheduler, until=now + timedelta(minutes=5)
    )
    assert len(move.planned) > 0
    with pytest.raises(errors.LeaseLost):
        async with still_house.store.transaction() as transaction:
            await transaction.stage([move], now)
    assert await still_house.history(job) == before


async def test_a_scheduler_passes_over_what_another_is_staging(
    still_house: House, clock: ManualClock
) -> None:
    mine = await still_house.create("mine", schedule="* * * * *")
    clock.advance(timedelta(minutes=2))
    async with still_house.store.transaction() as transaction:
        [_] = await transaction.lock_due(dict.fromkeys(range(SHARDS), EVER), clock.now(), 10)
        before = await still_house.history(mine)
        other = await still_house.create("other", schedule="0 13 * * *")
        clock.set(NOON + timedelta(minutes=59, seconds=30))
        async with asyncio.timeout(5):
            await _stage_all(still_house)
        assert len(await still_house.history(other)) == 1
        assert await still_house.history(mine) == before
    await _stage_all(still_house)
    assert len(await still_house.history(mine)) > len(before)


async def test_a_failure_between_executions_and_cursor_leaves_neither(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="* * * * *")
    before = await still_house.history(job)
    clock.advance(timedelta(minutes=2))

    async def die_half_way() -> None:
        async with still_house.store.transaction() as transaction:
            [cursor] = await transaction.lock_due(dict.fromkeys(range(SHARDS), EVER), clock.now(), 10)
            move = move_from(cursor, now=clock.now(), settings=still_house.settings.scheduler)
            await transaction.record([move], clock.now())
            raise RuntimeError("the process dies here")

    with pytest.raises(RuntimeError):
        await die_half_way()
    assert await still_house.history(job) == before
    await _stage_all(still_house)
    slots = [each.key.slot for each in await still_house.history(job)]
    assert slots == [NOON + MINUTE * n for n in range(1, len(slots) + 1)]


@pytest.mark.parametrize(
    ("policy", "run", "skipped"),
    [("none", 0, 10), ("last", 1, 9), ("all", 10, 0)],
)
async def test_missed_slots_get_the_verdict_of_their_catch_up_policy(
    still_house: House, clock: ManualClock, policy: str, run: int, skipped: int
) -> None:
    job = await still_house.create(schedule="* * * * *", catch_up=policy, catch_up_window="1h")
    staged_before = {each.key.slot for each in await still_house.history(job)}
    first_missed = max(staged_before) + MINUTE
    clock.set(first_missed + timedelta(minutes=9, seconds=30))
    await _stage_all(still_house)
    found = [each for each in await still_house.history(job) if each.key.slot not in staged_before]
    missed = [each for each in found if each.key.slot <= clock.now()]
    assert [each.key.slot for each in missed] == [first_missed + MINUTE * n for n in range(10)]
    assert sum(each.state is State.SKIPPED for each in missed) == skipped
    assert all(each.reason == "catch_up" for each in missed if each.state is State.SKIPPED)
    ran = [each for each in missed if each.state is State.PENDING]
    assert len(ran) == run
    assert [each.key.slot for each in ran] == [each.key.slot for each in missed][skipped:]
    gap = SECOND / still_house.settings.scheduler.catch_up_rate
    assert [each.ready_at for each in ran] == [clock.now() + HEAD_START + gap * n for n in range(run)]


async def test_an_outage_becomes_no_storm_what_it_missed_starts_at_a_rate_and_behind_what_is_on_time(
    still_house: House, clock: ManualClock
) -> None:
    missed = [
        {"name": f"missed-{n}", "target": "https://example.com", "schedule": "0 13 * * *", "priority": "high"}
        for n in range(1200)
    ]
    await still_house.jobs.create_many(CALLER, missed)
    clock.set(NOON + timedelta(hours=1, minutes=5))
    live = await still_house.create("live", schedule="* * * * *")
    staging = still_house.staging()
    while await staging.run_once():
        pass
    caught = [each for each in await still_house.history() if each.reason == "catch_up"]
    assert len(caught) == 1200
    rate = still_house.settings.scheduler.catch_up_rate
    for second in range(3):
        begin = clock.now() + HEAD_START + SECOND * second
        due = sum(begin <= each.ready_at < begin + SECOND for each in caught)
        assert due == min(rate, 1200 - rate * second)
    assert {each.priority for each in caught} == {1}, "one below their own"
    assert {each.priority for each in await still_house.history(live)} == {1}


async def test_a_moment_that_passes_while_a_batch_is_written_down_is_not_missed(still_house: House) -> None:
    class Hurrying(ManualClock):
        """Ten seconds pass between any two looks at it."""

        def now(self) -> datetime:
            now = super().now()
            self.set(now + 10 * SECOND)
            return now

    jobs = Jobs(still_house.store, still_house.bus, Hurrying(NOON), still_house.settings)
    named = {"at": [(NOON + n * SECOND).isoformat() for n in (5, 3600)]}
    schedules = [{"in": "5s"}, named, "* * * * * *"]
    once, listed, often = await jobs.create_many(
        CALLER,
        [
            {"name": f"job-{n}", "target": "https://example.com", "schedule": schedule}
            for n, schedule in enumerate(schedules)
        ],
    )
    assert [each.error for each in (once, listed, often)] == [None] * 3
    slots = {
        each.job_id: [found.key.slot for found in await still_house.history(each.job_id)]
        for each in (once, listed, often)
        if each.job_id is not None
    }
    assert list(slots.values())[:2] == [[NOON + 5 * SECOND]] * 2
    assert min(slots[often.job_id or UUID(int=0)]) > NOON + 10 * SECOND, "what recurs begins when it is there"


async def test_a_long_outage_of_a_seconds_job_is_accounted_for_as_a_range(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="* * * * * *", catch_up="last")
    staged = [each.key.slot for each in await still_house.history(job)]
    clock.advance(timedelta(hours=2))
    await _stage_all(still_house)
    rows = await still_house.database.fetch("select * from skips where job_id = $1", job)
    [row] = rows
    found = [each.key.slot for each in await still_house.history(job) if each.key.slot > staged[-1]]
    assert row["from_slot"] == staged[-1] + SECOND
    assert row["to_slot"] == found[0] - SECOND
    assert row["slots"] == (row["to_slot"] - row["from_slot"]) // SECOND + 1
    assert found == [found[0] + SECOND * n for n in range(len(found))]


async def test_a_one_off_that_was_missed_runs_late_rather_than_never(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="in 5h")
    clock.advance(timedelta(hours=9))
    await _stage_all(still_house)
    [execution] = await still_house.history(job)
    assert (execution.key.slot, execution.state) == (NOON + timedelta(hours=5), State.PENDING)


async def test_a_slot_that_is_late_within_the_grace_is_staged_as_if_on_time(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 13 * * *", catch_up="none")
    clock.set(NOON + timedelta(hours=1, seconds=8))
    await _stage_all(still_house)
    [execution] = await still_house.history(job)
    assert (execution.state, execution.ready_at) == (State.PENDING, NOON + timedelta(hours=1))


async def test_a_plan_that_cannot_be_followed_pauses_its_job_and_no_other(
    still_house: House, clock: ManualClock
) -> None:
    broken = await still_house.create("broken", schedule="* * * * *")
    sound = await still_house.create("sound", schedule="* * * * *")
    await still_house.database.execute(
        "update cursors set plan = '{\"schedule\":{}}' where job_id = $1", broken
    )
    clock.advance(timedelta(minutes=3))
    await _stage_all(still_house)
    assert len(await still_house.history(sound)) >= 4
    job = await still_house.jobs.get(TENANT, str(broken))
    assert job.state == "paused"
    assert job.pause is not None
    assert "cannot be computed" in (job.pause.note or "")


async def test_the_window_moves_the_start_and_not_the_slot(still_house: House) -> None:
    jobs = [
        await still_house.create(f"job-{n}", schedule={"cron": "* * * * *", "window": "30s"})
        for n in range(20)
    ]
    offsets = set()
    for job in jobs:
        [execution] = await still_house.history(job)
        assert execution.key.slot == NOON + MINUTE
        assert timedelta() <= execution.ready_at - execution.key.slot < timedelta(seconds=30)
        offsets.add(execution.ready_at)
    assert len(offsets) > 10


async def test_slots_on_both_sides_of_midnight_find_their_days(
    still_house: House, clock: ManualClock
) -> None:
    clock.set(datetime(2026, 5, 5, 23, 59, 30, tzinfo=UTC))
    job = await still_house.create(schedule="*/15 * * * * *")
    slots = [each.key.slot for each in await still_house.history(job)]
    assert {slot.date().isoformat() for slot in slots} == {"2026-05-05", "2026-05-06"}


async def test_a_job_without_further_slots_is_finished_once_its_execution_ended(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="in 30s")
    clock.advance(timedelta(seconds=31))
    assert await still_house.finishing().run_once() == 0
    await still_house.database.execute("update executions set state = 'succeeded' where job_id = $1", job)
    assert await still_house.finishing().run_once() == 1
    assert (await still_house.jobs.get(TENANT, str(job))).state == "finished"
    left = await still_house.database.fetchval(
        "select count(*) from cursors where job_id = $1", UUID(str(job))
    )
    assert left == 0


async def test_a_job_with_max_runs_ends_after_so_many_and_gets_back_what_was_unstaged(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule={"cron": "*/20 * * * * *", "max_runs": 4})
    assert len(await still_house.history(job)) == 3, "the look-ahead has room for three"
    await still_house.jobs.pause(TENANT, str(job))
    assert (await still_house.database.fetchval("select runs_left from cursors")) == 4
    clock.advance(timedelta(minutes=10))
    await still_house.jobs.resume(TENANT, str(job))
    clock.advance(MINUTE)
    await _stage_all(still_house)
    ran = [each for each in await still_house.history(job) if each.state is State.PENDING]
    assert len(ran) == 4
    assert await still_house.database.fetchval("select next_slot from cursors") is None


async def test_an_edit_of_something_else_does_not_give_a_job_its_runs_again(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule={"cron": "* * * * *", "max_runs": 3})
    clock.advance(timedelta(seconds=90))
    await _stage_all(still_house)
    await still_house.jobs.patch(CALLER, str(job), {"timeout": "1m"}, revision=None)
    clock.advance(timedelta(minutes=9))
    await _stage_all(still_house)
    ran = [each for each in await still_house.history(job) if each.state is State.PENDING]
    assert len(ran) == 3
    changed = {"schedule": {"cron": "*/2 * * * *", "max_runs": 5}}
    await still_house.jobs.patch(CALLER, str(job), changed, revision=None)
    left = await still_house.database.fetchval("select runs_left from cursors")
    staged = [each for each in await still_house.history(job) if each.key.slot > clock.now()]
    assert left + len(staged) == 5, "a schedule that is written anew is counted anew"


async def test_a_job_that_waits_for_the_end_has_one_slot_until_then(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="every 10s after finish")
    [first] = await still_house.history(job)
    assert first.key.slot == NOON + timedelta(seconds=10)
    clock.advance(MINUTE)
    assert await still_house.following().run_once() == 0, "its execution has not ended"
    await _stage_all(still_house)
    assert len(await still_house.history(job)) == 1
    ended = NOON + timedelta(seconds=47)
    await still_house.database.execute("update executions set state = 'succeeded', finished_at = $1", ended)
    assert await still_house.following().run_once() == 1
    second = max(await still_house.history(job), key=lambda each: each.key.slot)
    assert (second.key.slot, second.ready_at) == (
        ended + timedelta(seconds=10),
        ended + timedelta(seconds=10),
    )
    view = await still_house.jobs.get(TENANT, str(job))
    assert view.state == "active"


async def test_a_job_that_waits_is_paused_resumed_and_edited_like_any_other(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="every 10s after finish")
    await still_house.jobs.pause(TENANT, str(job))
    assert await still_house.history(job) == []
    clock.advance(timedelta(hours=1))
    await still_house.jobs.resume(TENANT, str(job))
    [execution] = await still_house.history(job)
    assert execution.key.slot == clock.now() + timedelta(seconds=10)
    assert await still_house.database.fetchval("select count(*) from skips") == 0
    await still_house.jobs.patch(CALLER, str(job), {"schedule": "every 20s after finish"}, revision=None)
    [execution] = await still_house.history(job)
    assert execution.key.slot == clock.now() + timedelta(seconds=20)
