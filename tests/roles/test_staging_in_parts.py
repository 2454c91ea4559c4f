"""What is too much for one transaction is staged by several, and none of it is passed over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from cronwell import errors
from cronwell.control.scheduling import move_from
from cronwell.model.identity import new_job_ids
from cronwell.model.shards import SHARDS, shard_of
from cronwell.runtime.clock import ManualClock
from cronwell.scheduler import front
from cronwell.scheduler import staging as scheduler_staging
from cronwell.scheduler.staging import PLANNING, staged_to
from cronwell.store.port import Cursor, Move
from tests.support.house import CALLER, SECOND, House

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


async def test_what_is_too_much_for_one_transaction_is_staged_by_smaller_ones(
    still_house: House, clock: ManualClock
) -> None:
    jobs = await _many(still_house, 100)
    # As a statement does that takes longer than it may.
    await still_house.database.execute("""
        create function too_many() returns trigger language plpgsql as $$
        begin
            if (select count(*) from added) > 10 then
                raise exception 'canceling statement due to statement timeout' using errcode = '57014';
            end if;
            return null;
        end $$;
        create trigger too_many after insert on executions
        referencing new table as added for each statement execute function too_many();
    """)
    clock.advance(MINUTE)
    staging = still_house.staging()
    failures = 0
    for _ in range(200):
        try:
            if not await staging.run_once():
                break
        except errors.StoreUnavailable:
            failures += 1
    assert failures > 0
    assert await _slots(still_house) == {job: [NOON + MINUTE, NOON + 2 * MINUTE] for job in jobs}


async def test_a_start_begins_with_a_few_jobs(still_house: House, clock: ManualClock) -> None:
    jobs = await _many(still_house, 300)
    clock.advance(MINUTE)
    staging = still_house.staging()
    assert 0 < await staging.run_once() <= 2 * SHARDS
    while await staging.run_once():
        pass
    assert await _slots(still_house) == {job: [NOON + MINUTE, NOON + 2 * MINUTE] for job in jobs}


async def test_planning_that_takes_long_is_committed_in_parts_and_no_shard_is_believed_further_than_it_is(
    still_house: House, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = _plan_slowly(monkeypatch, 0.4 * PLANNING)
    _look_where_the_last_look_ended(monkeypatch)
    _put_into_one_shard(monkeypatch)
    jobs = await _many(still_house, 20, schedule="*/5 * * * * *")
    await still_house.database.execute("delete from executions")
    await still_house.database.execute("update cursors set next_slot = $1", NOON + 5 * SECOND)
    staging = still_house.staging()
    before = watch.seconds
    while moved := await staging.run_once():
        assert watch.seconds - before < 2 * PLANNING
        assert moved <= 3
        before = watch.seconds
        await _check_watermark(still_house)
    until = NOON + still_house.settings.scheduler.look_ahead
    for slots in (found := await _slots(still_house)).values():
        assert [each for each in slots if each <= until] == [NOON + 5 * SECOND * n for n in range(1, 13)]
    assert found.keys() == set(jobs)


async def test_one_plan_that_takes_longer_than_a_transaction_may_plan_is_followed_all_the_same(
    still_house: House, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _plan_slowly(monkeypatch, 10 * PLANNING)
    jobs = await _many(still_house, 4)
    clock.advance(MINUTE)
    staging = still_house.staging()
    assert [await staging.run_once() for _ in range(5)] == [1, 1, 1, 1, 0]
    assert await _slots(still_house) == {job: [NOON + MINUTE, NOON + 2 * MINUTE] for job in jobs}


async def test_a_transaction_has_no_more_slots_than_so_many_and_those_of_one_job(
    still_house: House, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_staging, "MOST_SLOTS", 100)
    jobs = await _many(still_house, 10, catch_up="all", catch_up_window="2h")
    clock.advance(timedelta(minutes=60))
    staging = still_house.staging()
    before = await _count(still_house)
    while await staging.run_once():
        count = await _count(still_house)
        assert count - before < 100 + 60
        before = count
    assert await _slots(still_house) == {job: [NOON + MINUTE * n for n in range(1, 62)] for job in jobs}


def test_a_shard_is_staged_no_further_than_to_the_first_cursor_that_was_left() -> None:
    first, second, third = (Cursor(1, UUID(int=n * SHARDS), 1, NOON + n * SECOND, "") for n in range(1, 4))
    moves = [Move(first, [], [], NOON + MINUTE, "default", 1, 1)]
    horizon = NOON + timedelta(hours=1)
    shard = shard_of(first.job_id)
    assert {shard_of(each.job_id) for each in (second, third)} == {shard}
    found = [first, second, third]
    for each in (3, 10):
        reached = staged_to([shard], found, moves, [second, third], horizon, each)
        assert reached == {shard: second.next_slot}
    assert staged_to([shard], found[:1], moves, [], horizon, 10) == {shard: NOON + MINUTE}


class _Watch:
    """Stands for the module `time`; it goes on only where it is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    perf_counter = monotonic


def _plan_slowly(monkeypatch: pytest.MonkeyPatch, seconds: float) -> _Watch:
    """Have each plan of staging take so long, by staging's own watch."""
    watch = _Watch()

    def slowly(*given: Any, **named: Any) -> Move:
        watch.seconds += seconds
        return move_from(*given, **named)

    monkeypatch.setattr(scheduler_staging, "time", watch)
    monkeypatch.setattr(scheduler_staging, "move_from", slowly)
    return watch


def _look_where_the_last_look_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second one on: none begins at the beginning again, or near now, for long."""
    monkeypatch.setattr(front, "SLOW", -1000.0)
    monkeypatch.setattr(front, "NEAR_EVERY", 1000.0)
    monkeypatch.setattr(front, "rest_after", lambda _seconds, least=0.0: least or 1000.0)


def _put_into_one_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "cronwell.control.adding.new_job_ids",
        lambda now, random: [UUID(int=each.int - shard_of(each)) for each in new_job_ids(now, random)],
    )


async def _check_watermark(house: House) -> None:
    """No mark lies behind a slot that a job has and that is not staged."""
    owner = house.every_shard
    now = house.clock.now()
    until = now + house.settings.scheduler.look_ahead
    marks = await house.store.mark_shards(owner.member, owner.epochs, until, now)
    for row in await house.database.fetch("select job_id, next_slot from cursors"):
        assert marks[shard_of(row["job_id"])] < row["next_slot"]


async def _many(house: House, count: int, **fields: Any) -> list[UUID]:
    raw = [
        {"target": "https://example.com", "schedule": "* * * * *", **fields, "name": f"job-{n}"}
        for n in range(count)
    ]
    made = await house.jobs.create_many(CALLER, raw)
    return [each.job_id for each in made if each.job_id is not None]


async def _slots(house: House) -> dict[UUID, list[datetime]]:
    """By job, in their order."""
    rows = await house.database.fetch(
        "select job_id, array_agg(slot order by slot) as slots from executions group by job_id"
    )
    return {row["job_id"]: row["slots"] for row in rows}


async def _count(house: House) -> int:
    return int(await house.database.fetchval("select count(*) from executions"))
