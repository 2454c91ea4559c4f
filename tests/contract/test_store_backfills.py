"""The store's promises on backfills: kept as asked, moved by one at a time, staged once for each slot."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from cronwell.model.execution import ExecutionKey, Kind, State
from cronwell.store.port import Backfill, NewJob, Store
from tests.contract.desk import (
    DAY,
    HOUR,
    MINUTE,
    NOON,
    OTHER_TENANT,
    SECOND,
    TENANT,
    Desk,
    ended,
    new_backfill,
    past,
)
from tests.support.waiting import until


async def _made(desk: Desk, job: NewJob, **fields: Any) -> Backfill:
    new = new_backfill(job, **fields)
    async with desk.store.transaction() as transaction:
        await transaction.insert_backfill(new)
    return new


async def _stage(desk: Desk, job: NewJob, *slots: datetime, **fields: Any) -> set[ExecutionKey]:
    async with desk.store.transaction() as transaction:
        return await transaction.insert_executions([past(job, slot, **fields) for slot in slots])


async def test_a_backfill_is_read_as_it_was_kept(desk: Desk) -> None:
    job = await desk.job()
    new = await _made(desk, job, payload='{"a": 1}', note="why", rate=0.5, definition="then")
    assert await desk.store.get_backfill(TENANT, new.id) == new
    assert await desk.store.get_backfill(TENANT, uuid4()) is None


async def test_how_far_it_has_come_is_kept(desk: Desk) -> None:
    job = await desk.job()
    new = await _made(desk, job)
    moved = dataclasses.replace(
        new,
        state="paused",
        reached=NOON - HOUR,
        next_ready_at=NOON + MINUTE,
        staged=5,
        passed_over=4,
        succeeded=2,
        failed=1,
        unfinished=(NOON - 2 * HOUR, NOON - HOUR),
        note="held",
        updated_at=NOON + SECOND,
        finished_at=NOON + MINUTE,
    )
    async with desk.store.transaction() as transaction:
        assert await transaction.lock_backfill(TENANT, new.id) == new
        await transaction.put_backfill(moved)
    assert await desk.store.get_backfill(TENANT, new.id) == moved


async def test_a_lock_waits_for_the_one_that_holds_it_and_sees_what_it_did(desk: Desk) -> None:
    job = await desk.job()
    new = await _made(desk, job)
    seen: list[int] = []
    is_waiting = asyncio.Event()

    async def second() -> None:
        async with desk.another_process().transaction() as transaction:
            is_waiting.set()
            locked = await transaction.lock_backfill(TENANT, new.id)
            assert locked is not None
            seen.append(locked.staged)

    async with desk.store.transaction() as transaction:
        locked = await transaction.lock_backfill(TENANT, new.id)
        assert locked is not None
        task = asyncio.create_task(second())
        await is_waiting.wait()
        await transaction.put_backfill(dataclasses.replace(locked, staged=7))
        assert seen == []
    await task
    assert seen == [7]


async def test_a_job_is_not_deleted_while_its_backfill_is_moved(desk: Desk) -> None:
    job = await desk.job()
    new = await _made(desk, job)
    order: list[str] = []

    async def delete() -> None:
        async with desk.another_process().transaction() as transaction:
            order.append("asked")
            await transaction.set_job_state(TENANT, job.id, "deleted", NOON)
            order.append("deleted")

    async with desk.store.transaction() as transaction:
        assert await transaction.lock_backfill(TENANT, new.id) is not None
        task = asyncio.create_task(delete())
        await until(lambda: order == ["asked"])
        await transaction.insert_executions([past(job, NOON - HOUR)])
        order.append("staged")
    await task
    assert order == ["asked", "staged", "deleted"]
    found = await desk.store.get_backfill(TENANT, new.id)
    assert found is not None
    assert found.job_state == "deleted"


async def test_lists_are_newest_first_by_job_and_by_state(desk: Desk) -> None:
    jobs = [await desk.job(), await desk.job()]
    made = [
        await _made(desk, jobs[number % 2], id=UUID(int=number), state="paused" if number > 3 else "running")
        for number in range(1, 6)
    ]
    ids = [each.id for each in made][::-1]

    async def listed(*where: Any) -> list[UUID]:
        return [each.id for each in await desk.store.list_backfills(TENANT, *where)]

    assert await listed(None, None, None, 10) == ids
    assert await listed(None, None, ids[1], 2) == ids[2:4]
    assert await listed(jobs[1].id, None, None, 10) == [UUID(int=5), UUID(int=3), UUID(int=1)]
    assert await listed(None, "paused", None, 10) == [UUID(int=5), UUID(int=4)]


async def test_open_are_those_with_something_to_do(desk: Desk) -> None:
    job, gone = await desk.job(), await desk.job()
    running = await _made(desk, job)
    ending = await _made(desk, job)
    orphan = await _made(desk, gone)
    idle = await _made(desk, job)
    over = await _made(desk, job)
    async with desk.store.transaction() as transaction:
        for backfill, fields in (
            (ending, {"state": "cancelled", "unfinished": (NOON,)}),
            (orphan, {"state": "paused"}),
            (idle, {"state": "paused"}),
            (over, {"state": "finished", "finished_at": NOON}),
        ):
            await transaction.put_backfill(dataclasses.replace(backfill, **fields))
        await transaction.set_job_state(TENANT, gone.id, "deleted", NOON)
    found = await desk.store.open_backfills(10)
    assert set(found) == {(TENANT, each.id) for each in (running, ending, orphan)}
    assert len(await desk.store.open_backfills(2)) == 2


async def test_a_slot_is_staged_once_and_in_days_that_had_no_room_yet(desk: Desk) -> None:
    job = await desk.job()
    old = NOON - 20 * DAY
    first = await _stage(desk, job, old, NOON - HOUR, payload='{"n": 1}')
    assert {key.slot for key in first} == {old, NOON - HOUR}
    again = await _stage(desk, job, old, NOON - 2 * HOUR, payload='{"n": 2}')
    assert {key.slot for key in again} == {NOON - 2 * HOUR}
    kept = await desk.get(ExecutionKey(job.id, Kind.BACKFILL, old))
    assert (kept.payload, kept.state, kept.priority, kept.reason) == (
        '{"n": 1}',
        State.PENDING,
        2,
        "backfill",
    )
    # A scheduled execution of the same slot is another one.
    await desk.staged(job, NOON - HOUR)
    assert len(await desk.listed(job_id=job.id, from_slot=NOON - HOUR)) == 2


async def test_what_is_staged_rolls_back_with_its_transaction(desk: Desk) -> None:
    job = await desk.job()
    new = await _made(desk, job)

    async def fails() -> None:
        async with desk.store.transaction() as transaction:
            await transaction.insert_executions([past(job, NOON - 9 * DAY)])
            await transaction.put_backfill(dataclasses.replace(new, staged=1))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fails()
    assert await desk.listed(job_id=job.id) == []
    assert (await desk.store.get_backfill(TENANT, new.id)) == new


async def test_the_states_of_some_slots_are_told(desk: Desk) -> None:
    job = await desk.job()
    await _stage(desk, job, NOON - HOUR, NOON - 2 * HOUR)
    [claim] = await desk.claim(priority=2, limit=1)
    await desk.store.complete([ended(claim)])
    async with desk.store.transaction() as transaction:
        states = await transaction.backfilled(TENANT, job.id, [NOON - HOUR, NOON - 2 * HOUR, NOON - 3 * HOUR])
        assert await transaction.backfilled(OTHER_TENANT, job.id, [NOON - HOUR]) == {}
    assert sorted(states.values()) == [State.PENDING, State.SUCCEEDED]
    assert states[claim.key.slot] is State.SUCCEEDED
    counts = [
        await desk.store.count_backfilled(TENANT, job.id, NOON - 2 * HOUR, end, most)
        for end, most in ((NOON, 10), (NOON - HOUR, 10), (NOON, 1))
    ]
    assert counts == [2, 1, 1]


async def test_what_has_not_begun_is_taken_back_and_what_runs_may_finish(desk: Desk) -> None:
    job = await desk.job()
    slots = [NOON - 3 * HOUR, NOON - 2 * HOUR, NOON - HOUR]
    await _stage(desk, job, *slots)
    claims = await desk.claim(priority=2, limit=2)
    await desk.store.complete([ended(claims[0], State.RETRYING, ready_at=NOON + DAY)])
    async with desk.store.transaction() as transaction:
        taken = await transaction.withdraw(TENANT, job.id, slots, NOON + MINUTE)
    [left] = set(slots) - {claim.key.slot for claim in claims}
    assert taken == {left}
    assert await desk.store.get_execution(TENANT, ExecutionKey(job.id, Kind.BACKFILL, left)) is None
    retried = await desk.get(claims[0].key)
    assert (retried.state, retried.finished_at) == (State.CANCELLED, NOON + MINUTE)
    assert (await desk.get(claims[1].key)).state is State.RUNNING
    assert await desk.store.complete([ended(claims[1], State.RETRYING, ready_at=NOON + DAY)]) == [
        State.FAILED
    ]


async def test_what_was_redriven_is_ended_but_stays_in_the_history(desk: Desk) -> None:
    job = await desk.job()
    await _stage(desk, job, NOON - HOUR)
    [claim] = await desk.claim(priority=2)
    await desk.store.complete([ended(claim, State.FAILED)])
    assert await desk.store.revive_execution(TENANT, claim.key, NOON) == "default"
    async with desk.store.transaction() as transaction:
        assert await transaction.withdraw(TENANT, job.id, [NOON - HOUR], NOON) == set()
    assert (await desk.get(claim.key)).state is State.CANCELLED


async def test_the_definitions_of_a_time_come_in_order(desk: Desk, store: Store) -> None:
    job = await desk.job()
    for number in range(3):
        now = NOON + number * HOUR
        async with store.transaction() as transaction:
            await transaction.keep_revision(TENANT, job.id, now)
            await transaction.update_job(dataclasses.replace(job, spec=f'{{"n": {number}}}'), "active", now)
    found = await store.revisions_over(TENANT, job.id, NOON - 2 * DAY, NOON + DAY, 10)
    assert [(each.revision, each.valid_from, each.valid_to) for each in found] == [
        (1, NOON - DAY, NOON),
        (2, NOON, NOON + HOUR),
        (3, NOON + HOUR, NOON + 2 * HOUR),
        (4, NOON + 2 * HOUR, None),
    ]
    assert found[0].plan == job.plan
    part = await store.revisions_over(TENANT, job.id, NOON + MINUTE, NOON + HOUR, 10)
    assert [each.revision for each in part] == [2]
    assert len(await store.revisions_over(TENANT, job.id, NOON - DAY, NOON + DAY, 2)) == 2
    assert await store.revisions_over(OTHER_TENANT, job.id, NOON - DAY, NOON + DAY, 2) == []
    replaced = await store.definitions_at([(TENANT, job.id, 2), (TENANT, job.id, 4), (TENANT, uuid4(), 1)])
    assert [(each.job_id, each.revision, each.spec) for each in replaced] == [(job.id, 2, '{"n": 0}')]
