"""Staging: verdicts and cursors move together or not at all, and changes of a job reach what is staged."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta

import asyncpg
import pytest

from cronwell import errors
from cronwell.model.execution import Kind, State
from cronwell.model.planning import PlannedSlot, SkippedRange
from cronwell.model.shards import SHARDS, shard_of
from cronwell.store.port import EVER, Cursor, Store
from tests.contract.desk import (
    DAY,
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    Desk,
    cursor_of,
    ended,
    move,
    new_execution,
    new_job,
)

ALL = dict.fromkeys(range(SHARDS), EVER)
MANY = 100


async def test_a_stage_writes_the_verdicts_and_moves_the_cursor(desk: Desk, store: Store) -> None:
    job = await desk.job(pool="gpu")
    planned = [
        PlannedSlot(NOON - MINUTE, NOON - MINUTE, State.SKIPPED, "catch_up"),
        PlannedSlot(NOON, NOON + SECOND),
    ]
    async with store.transaction() as transaction:
        await transaction.stage([move(job, planned, priority=2, running_limit=3)], NOON)
    run, skipped = [await desk.get(key) for key in await desk.listed(job_id=job.id)]
    assert (run.state, run.ready_at, run.priority, run.pool) == (State.PENDING, NOON + SECOND, 2, "gpu")
    assert (run.fence, run.attempt, run.revision, run.key.kind) == (0, 0, 1, Kind.SCHEDULED)
    assert (skipped.state, skipped.reason, skipped.finished_at) == (State.SKIPPED, "catch_up", NOON)
    found = await store.get_job(1, job.id, NOON)
    assert found is not None
    assert found.next_slot == NOON + MINUTE


@pytest.mark.parametrize(
    "wrong",
    [{"next_slot": NOON - MINUTE}, {"revision": 2}, {"tenant_id": 2}],
    ids=["another slot", "another revision", "another tenant"],
)
async def test_a_cursor_that_is_not_where_it_was_planned_from_refuses_the_whole_batch(
    desk: Desk, store: Store, wrong: dict[str, object]
) -> None:
    jobs = [await desk.job() for _ in range(3)]
    moves = [move(job, [PlannedSlot(NOON, NOON)]) for job in jobs]
    stale = Cursor(
        **{**{f.name: getattr(moves[1].cursor, f.name) for f in dataclasses.fields(Cursor)}, **wrong}
    )
    moves[1] = dataclasses.replace(moves[1], cursor=stale)
    with pytest.raises(errors.LeaseLost, match="1 of 3"):
        async with store.transaction() as transaction:
            await transaction.stage(moves, NOON)
    assert await desk.listed() == []
    for job in jobs:
        found = await store.get_job(1, job.id, NOON)
        assert found is not None
        assert found.next_slot == NOON


async def test_of_many_that_stage_the_same_step_one_does(desk: Desk, store: Store) -> None:
    job = await desk.job()

    async def stage() -> bool:
        try:
            async with store.transaction() as transaction:
                await transaction.stage([move(job, [PlannedSlot(NOON, NOON)])], NOON)
        except errors.LeaseLost:
            return False
        return True

    assert (await asyncio.gather(*(stage() for _ in range(10)))).count(True) == 1
    assert len(await desk.listed()) == 1


@pytest.mark.parametrize("count", [1, 2, 500])
async def test_a_slot_keeps_the_verdict_that_it_has(count: int, desk: Desk, store: Store) -> None:
    job = await desk.job()
    [key] = await desk.staged(job, NOON)
    await store.cancel_execution(1, key, NOON - MINUTE)
    slots = [NOON + number * SECOND for number in range(count)]
    async with store.transaction() as transaction:
        await transaction.stage([move(job, [PlannedSlot(slot, slot) for slot in slots])], NOON)
    assert (await desk.get(key)).state is State.CANCELLED
    assert sorted(each.slot for each in await desk.listed(states=(State.PENDING,))) == slots[1:]


async def test_a_step_without_an_end_leaves_the_cursor_without_a_slot(desk: Desk, store: Store) -> None:
    job = await desk.job()
    async with store.transaction() as transaction:
        await transaction.stage([move(job, next_slot=None)], NOON)
    found = await store.get_job(1, job.id, NOON)
    assert found is not None
    assert (found.next_slot, found.plan) == (None, job.plan)
    async with store.transaction() as transaction:
        assert await transaction.lock_due(ALL, NOON + DAY * 400, MANY) == []


@pytest.mark.parametrize(
    ("noted", "kept"),
    [
        ([(HOUR, 23), (MINUTE, 1439)], (MINUTE, 1439)),
        ([(MINUTE, 1439), (HOUR, 23)], (MINUTE, 1439)),
        ([(HOUR, 23), (HOUR, 24)], (HOUR, 24)),
        ([(HOUR, 23), (MINUTE, None)], (MINUTE, None)),
        ([(MINUTE, None), (HOUR, 23)], (MINUTE, None)),
    ],
    ids=[
        "a longer one",
        "a shorter one",
        "counted anew",
        "uncounted after counted",
        "counted after uncounted",
    ],
)
async def test_of_ranges_that_begin_alike_the_longest_stays_with_its_count(
    desk: Desk,
    store: Store,
    migrated_url: str,
    noted: list[tuple[timedelta, int | None]],
    kept: tuple[timedelta, int | None],
) -> None:
    job = await desk.job()
    for before_noon, count in noted:
        skipped = SkippedRange(NOON - DAY, NOON - before_noon, "catch_up", count)
        async with store.transaction() as transaction:
            await transaction.record([move(job, ranges=[skipped])], NOON)
    connection = await asyncpg.connect(migrated_url)
    [found] = await connection.fetch("select from_slot, to_slot, slots from skips where job_id = $1", job.id)
    await connection.close()
    assert tuple(found) == (NOON - DAY, NOON - kept[0], kept[1])


async def test_due_cursors_are_locked_earliest_first_and_no_others(desk: Desk, store: Store) -> None:
    slots = [NOON - MINUTE * 3, NOON, NOON - MINUTE, NOON + SECOND]
    jobs = [await desk.job(next_slot=slot) for slot in slots]
    await desk.job(plan=None, next_slot=None)
    async with store.transaction() as transaction:
        due = await transaction.lock_due(ALL, NOON, MANY)
    assert {cursor.job_id for cursor in due} == {job.id for job in jobs[:3]}
    assert cursor_of(jobs[1]) in due


async def test_cursors_that_stand_before_the_moment_asked_for_are_passed_over(
    desk: Desk, store: Store
) -> None:
    jobs = [await desk.job(next_slot=NOON - n * MINUTE) for n in range(3)]
    since = ALL | {shard_of(jobs[2].id): NOON - MINUTE, shard_of(jobs[1].id): NOON - MINUTE}
    async with store.transaction() as transaction:
        due = await transaction.lock_due(since, NOON, MANY)
    assert {cursor.job_id for cursor in due} == {job.id for job in jobs[:2]}


async def test_only_the_shards_that_were_asked_for_are_locked(desk: Desk, store: Store) -> None:
    jobs = [await desk.job() for _ in range(20)]
    wanted = shard_of(jobs[0].id)
    async with store.transaction() as transaction:
        due = await transaction.lock_due({wanted: EVER}, NOON, 100)
        assert await transaction.lock_due({}, NOON, 100) == []
    assert {cursor.job_id for cursor in due} == {job.id for job in jobs if shard_of(job.id) == wanted}


async def test_the_earliest_of_a_shard_come_first_when_there_are_more_than_asked_for(
    desk: Desk, store: Store
) -> None:
    jobs = [new_job(next_slot=NOON - n * SECOND) for n in range(400)]
    same = [job for job in jobs if shard_of(job.id) == shard_of(jobs[0].id)]
    async with store.transaction() as transaction:
        await transaction.insert_jobs(same, NOON)
        due = await transaction.lock_due({shard_of(jobs[0].id): EVER}, NOON, 2)
    assert [cursor.next_slot for cursor in due] == sorted(job.next_slot for job in same if job.next_slot)[:2]


async def test_cursors_that_another_has_locked_are_passed_over(desk: Desk, store: Store) -> None:
    jobs = {(await desk.job()).id for _ in range(10)}
    async with asyncio.timeout(5), store.transaction() as one, store.transaction() as other:
        first = {cursor.job_id for cursor in await one.lock_due(ALL, NOON, MANY)}
        assert await other.lock_due(ALL, NOON, MANY) == []
    assert first == jobs


async def test_a_job_that_is_being_changed_is_not_staged_meanwhile(desk: Desk, store: Store) -> None:
    job, free = await desk.job(), await desk.job()
    async with asyncio.timeout(5), store.transaction() as change, store.transaction() as staging:
        assert await change.lock_job(1, job.id) is not None
        assert [cursor.job_id for cursor in await staging.lock_due(ALL, NOON, MANY)] == [free.id]


async def test_a_held_cursor_is_not_due(desk: Desk, store: Store) -> None:
    job = await desk.job()
    async with store.transaction() as transaction:
        await transaction.put_cursor(cursor_of(job), None, is_held=True)
        assert await transaction.lock_due(ALL, NOON + DAY, MANY) == []
        await transaction.put_cursor(cursor_of(job, revision=2), NOON - MINUTE, is_held=False)
        [cursor] = await transaction.lock_due(ALL, NOON, MANY)
    assert (cursor.revision, cursor.next_slot) == (2, NOON - MINUTE)


async def test_what_is_raised_in_a_transaction_undoes_all_of_it(desk: Desk, store: Store) -> None:
    job = await desk.job()

    async def fail_half_way() -> None:
        async with store.transaction() as transaction:
            await transaction.stage([move(job, [PlannedSlot(NOON, NOON)])], NOON)
            await transaction.set_job_state(1, job.id, "paused", NOON)
            await transaction.insert_jobs([new_job("late")], NOON)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_half_way()
    assert await desk.listed() == []
    assert await store.find_job(1, "late") is None
    found = await store.get_job(1, job.id, NOON)
    assert found is not None
    assert (found.state, found.next_slot) == ("active", NOON)


async def test_an_execution_is_added_once(desk: Desk, store: Store) -> None:
    job = await desk.job()
    new = new_execution(job, payload='{"a": 1}', priority=0, running_limit=2)
    async with store.transaction() as transaction:
        assert await transaction.insert_execution(new)
        assert not await transaction.insert_execution(dataclasses.replace(new, payload=None))
    kept = await desk.get(new.key)
    assert (kept.payload, kept.reason, kept.priority) == ('{"a": 1}', "triggered", 0)
    assert (kept.key.kind, kept.state) == (Kind.MANUAL, State.PENDING)
    await desk.staged(job, NOON)  # the same instant as a scheduled slot is another execution
    assert len(await desk.listed(job_id=job.id)) == 2


async def test_what_is_staged_ahead_is_dropped_and_nothing_else(desk: Desk, store: Store) -> None:
    job, other = await desk.job(), await desk.job()
    await desk.claimed(job, NOON + SECOND)
    begun = await desk.claimed(job, NOON + MINUTE * 3)
    await store.complete([ended(begun, State.RETRYING, ready_at=NOON + HOUR)])
    [cancelled] = await desk.staged(job, NOON + MINUTE * 2)
    await store.cancel_execution(1, cancelled, NOON)
    await desk.manual(job, NOON + MINUTE)
    await desk.staged(other, NOON + MINUTE)
    _due, _now, ahead, far = await desk.staged(job, NOON - MINUTE, NOON, NOON + MINUTE, NOON + DAY * 3)
    before = await desk.listed()
    async with store.transaction() as transaction:
        await transaction.drop_staged(1, job.id, NOON)
    assert set(before) - set(await desk.listed()) == {ahead, far}


async def test_a_slot_exactly_at_the_boundary_is_not_ahead(desk: Desk, store: Store) -> None:
    job = await desk.job()
    now, ahead = await desk.staged(job, NOON, NOON + SECOND)
    async with store.transaction() as transaction:
        await transaction.drop_staged(1, job.id, NOON)
    assert await desk.listed() == [now]
    assert await store.get_execution(1, ahead) is None


async def test_withholding_skips_what_waits_and_makes_what_runs_the_last_try(
    desk: Desk, store: Store
) -> None:
    job, other = await desk.job(), await desk.job()
    running = await desk.claimed(job, NOON - MINUTE)
    retrying = await desk.claimed(job, NOON - MINUTE * 2)
    await store.complete([ended(retrying, State.RETRYING, ready_at=NOON + HOUR)])
    done = await desk.claimed(job, NOON - MINUTE * 3)
    await store.complete([ended(done)])
    [pending] = await desk.staged(job, NOON)
    [others] = await desk.staged(other, NOON)
    async with store.transaction() as transaction:
        touched = await transaction.withhold_due(1, job.id, NOON + SECOND, "paused")
    keys = [running.key, retrying.key, done.key, pending, others]
    assert await desk.states(keys) == [
        State.RUNNING,
        State.CANCELLED,
        State.SUCCEEDED,
        State.SKIPPED,
        State.PENDING,
    ]
    skipped = await desk.get(pending)
    assert (skipped.reason, skipped.finished_at) == ("paused", NOON + SECOND)
    assert (await desk.get(running.key)).reason is None
    assert sorted(each.state for each in touched) == ["cancelled", "running", "skipped"]
    [held] = [each for each in touched if each.state is State.RUNNING]
    kept = await desk.get(running.key)
    assert kept.claimed_at is not None
    assert kept.claimed_at > kept.ready_at, "it was late"
    assert (held.worker, held.starts_at) == (kept.worker, kept.claimed_at)


async def test_what_is_unfinished_goes_on_under_a_new_definition(desk: Desk, store: Store) -> None:
    job = await desk.job()
    done = await desk.claimed(job, NOON - HOUR)
    await store.complete([ended(done)])
    running = await desk.claimed(job, NOON - MINUTE)
    [pending] = await desk.staged(job, NOON)
    moved = dataclasses.replace(job, pool="gpu")
    async with store.transaction() as transaction:
        touched = await transaction.rebase_open(moved, 5, 0)
    assert len(touched) == 2
    waits, runs, old = [await desk.get(key) for key in (pending, running.key, done.key)]
    assert (waits.revision, waits.pool, waits.priority) == (5, "gpu", 0)
    assert (runs.revision, runs.pool, runs.priority) == (5, "default", 1), "where it runs is settled"
    assert old.revision == 1


async def test_the_unfinished_of_a_job_are_told_newest_first(desk: Desk, store: Store) -> None:
    job, other = await desk.job(), await desk.job()
    done, oldest, newest, _ahead = await desk.staged(
        job, NOON - DAY, NOON - HOUR, NOON, NOON + SECOND, running_limit=1
    )
    await desk.staged(other, NOON)
    [claim] = [claim for claim in await desk.claim() if claim.key == done]
    await store.complete([ended(claim)])
    async with store.transaction() as transaction:
        assert await transaction.unfinished(1, job.id, NOON, 10) == [newest, oldest]
        assert await transaction.unfinished(1, job.id, NOON, 1) == [newest]


async def test_a_job_is_finished_once_its_last_execution_has_ended(desk: Desk, store: Store) -> None:
    job, paused, going = await desk.job(), await desk.job(), await desk.job()
    claim = await desk.claimed(job)
    async with store.transaction() as transaction:
        await transaction.put_cursor(cursor_of(job), None, is_held=False)
        await transaction.put_cursor(cursor_of(paused), None, is_held=True)
    assert await store.finish_ended(NOON, 10) == 0
    await store.complete([ended(claim, State.RETRYING, ready_at=NOON + HOUR)])
    assert await store.finish_ended(NOON, 10) == 0
    [again] = await desk.claim(ready_by=NOON + HOUR)
    await store.complete([ended(again)])
    assert await store.finish_ended(NOON + HOUR, 10) == 1
    assert await store.finish_ended(NOON + HOUR, 10) == 0
    states = [await store.get_job(1, each.id, NOON) for each in (job, paused, going)]
    assert [each.state for each in states if each is not None] == ["finished", "active", "active"]
    assert states[0] is not None
    assert (states[0].plan, states[0].updated_at) == (None, NOON + HOUR)


async def test_no_more_jobs_are_finished_at_once_than_asked_for(desk: Desk, store: Store) -> None:
    jobs = [await desk.job() for _ in range(5)]
    async with store.transaction() as transaction:
        for job in jobs:
            await transaction.put_cursor(cursor_of(job), None, is_held=False)
    assert [await store.finish_ended(NOON, 2) for _ in range(4)] == [2, 2, 1, 0]
