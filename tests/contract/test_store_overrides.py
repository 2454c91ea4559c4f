"""Overrides in the store: kept one to a slot, found when they come near, and written over slots that nobody has."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import datetime, timedelta
from typing import Any

import pytest

from cronwell.model.execution import State
from cronwell.model.planning import PlannedSlot
from cronwell.store.port import NewJob, Override, Store
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
    new_override,
)

MONTH = 31 * DAY


async def _put(store: Store, *overrides: Override) -> None:
    async with store.transaction() as transaction:
        for each in overrides:
            await transaction.put_override(each)


async def _write(store: Store, job: NewJob, *planned: PlannedSlot) -> set[datetime]:
    async with store.transaction() as transaction:
        return await transaction.write_decided(move(job, planned, priority=2, running_limit=3), NOON)


async def _waiting(store: Store, now: datetime = NOON, until: datetime = NOON + DAY) -> list[datetime]:
    return [each.slot for each in await store.overrides_waiting(now, until, MONTH, None, 100)]


async def test_an_override_comes_back_as_it_was_put_and_the_later_one_counts(
    desk: Desk, store: Store
) -> None:
    job = await desk.job()
    first = new_override(job, NOON + HOUR, expires_at=NOON + MINUTE)
    await _put(store, first)
    assert await store.get_override(1, job.id, NOON + HOUR) == first
    second = new_override(job, NOON + HOUR, action="move", ready_at=NOON + 2 * HOUR, payload="[1]", note=None)
    await _put(store, second)
    assert await store.list_overrides(1, job.id, None, 10) == [second]
    async with store.transaction() as transaction:
        assert await transaction.drop_override(1, job.id, NOON + HOUR)
        assert not await transaction.drop_override(1, job.id, NOON + HOUR)
    assert await store.get_override(1, job.id, NOON + HOUR) is None


async def test_a_list_goes_back_from_the_latest_slot_and_goes_on_where_it_ended(
    desk: Desk, store: Store
) -> None:
    job = await desk.job()
    slots = [NOON + n * HOUR for n in range(5)]
    await _put(store, *(new_override(job, slot) for slot in slots))
    first = await store.list_overrides(1, job.id, None, 3)
    assert [each.slot for each in first] == slots[:1:-1]
    rest = await store.list_overrides(1, job.id, first[-1].slot, 3)
    assert [each.slot for each in rest] == slots[1::-1]


async def test_what_holds_for_a_jobs_slots_leaves_out_what_expired_before_it_was_applied(
    desk: Desk, store: Store
) -> None:
    job = await desk.job()
    held = [new_override(job, NOON + n * HOUR, expires_at=NOON + MINUTE) for n in (2, 1)]
    await _put(store, *held, new_override(job, NOON))
    for after, now, expected in (
        (NOON, NOON, [1, 2]),
        (NOON, NOON + MINUTE, []),
        (NOON - SECOND, NOON + MINUTE, [0]),
    ):
        found = await store.overrides_of(1, job.id, after, now)
        assert [(each.slot - NOON) // HOUR for each in found] == expected
    await _write(store, job, PlannedSlot(NOON + HOUR, NOON + HOUR, State.SKIPPED, "override"))
    async with store.transaction() as transaction:
        found = await transaction.overrides_after(1, job.id, NOON, NOON + MINUTE)
    assert [(each.slot, each.applied_at) for each in found] == [(NOON + HOUR, NOON)]


async def test_what_is_written_is_what_was_decided_and_is_noted_as_applied(desk: Desk, store: Store) -> None:
    job = await desk.job(pool="gpu")
    slot, far = NOON + HOUR, NOON + 20 * DAY
    await _put(store, new_override(job, slot), new_override(job, far, action="move", ready_at=NOON + MINUTE))
    skip = PlannedSlot(slot, slot, State.SKIPPED, "override")
    moved = PlannedSlot(far, NOON + MINUTE, reason="moved", payload='{"n":1}')
    assert await _write(store, job, skip, moved) == {slot, far}
    run, skipped = [await desk.get(key) for key in await desk.listed(job_id=job.id)]
    assert (skipped.state, skipped.reason, skipped.finished_at) == (State.SKIPPED, "override", NOON)
    assert (run.state, run.ready_at, run.payload, run.reason) == (
        State.PENDING,
        NOON + MINUTE,
        '{"n":1}',
        "moved",
    )
    assert (run.pool, run.priority, run.revision) == ("gpu", 2, 1)
    assert [each.applied_at for each in await store.list_overrides(1, job.id, None, 10)] == [NOON, NOON]
    assert await _write(store, job, dataclasses.replace(skip, reason="again")) == set()
    # Staging finds the rows and leaves them.
    async with store.transaction() as transaction:
        await transaction.record([move(job, [PlannedSlot(slot, slot)])], NOON)
    assert (await desk.get(skipped.key)).state is State.SKIPPED


async def test_a_slot_is_cleared_unless_it_has_begun_or_ended(desk: Desk, store: Store) -> None:
    job = await desk.job()
    held = await desk.claimed(job, NOON)
    [pending] = await desk.staged(job, NOON + MINUTE)
    await _write(store, job, PlannedSlot(NOON + HOUR, NOON + HOUR, State.SKIPPED, "override"))
    await _write(store, job, PlannedSlot(NOON + 2 * HOUR, NOON + 2 * HOUR, State.SKIPPED, "overlap"))
    async with store.transaction() as transaction:
        found = [
            await transaction.clear_slot(1, job.id, slot)
            for slot in (NOON, pending.slot, NOON + HOUR, NOON + 2 * HOUR, NOON + DAY)
        ]
        assert await transaction.slot_state(1, job.id, NOON) is State.RUNNING
    assert found == [State.RUNNING, None, None, State.SKIPPED, None]
    await store.complete([ended(held)])
    async with store.transaction() as transaction:
        assert await transaction.clear_slot(1, job.id, NOON) is State.SUCCEEDED
    assert [key.slot for key in await desk.listed(job_id=job.id)] == [NOON + 2 * HOUR, NOON]


async def test_a_slot_is_either_cleared_or_claimed(desk: Desk, store: Store) -> None:
    job = await desk.job()
    slots = [NOON - n * SECOND for n in range(40)]
    await desk.staged(job, *slots)
    worker = await desk.worker()

    async def clear(slot: datetime) -> State | None:
        async with store.transaction() as transaction:
            return await transaction.clear_slot(1, job.id, slot)

    cleared, claims = await asyncio.gather(
        asyncio.gather(*(clear(slot) for slot in slots)), desk.claim(worker, ready_by=NOON)
    )
    kept = {slot for slot, state in zip(slots, cleared, strict=True) if state is State.RUNNING}
    assert {claim.key.slot for claim in claims} == kept


async def test_unstaging_takes_back_what_overrides_wrote_ahead(desk: Desk, store: Store) -> None:
    job = await desk.job()
    skips = [PlannedSlot(NOON + n * HOUR, NOON, State.SKIPPED, "override") for n in (0, 1)]
    moved = PlannedSlot(NOON + 2 * HOUR, NOON + MINUTE, reason="moved")
    await _write(store, job, *skips, moved)
    await desk.staged(job, NOON + MINUTE)
    async with store.transaction() as transaction:
        assert await transaction.count_ahead(1, job.id, NOON, None) == 2
        assert await transaction.count_ahead(1, job.id, NOON, NOON + HOUR) == 1
        assert await transaction.drop_staged(1, job.id, NOON) == 3
    assert [key.slot for key in await desk.listed(job_id=job.id)] == [NOON]


async def test_slots_that_are_skipped_are_told_from_the_cursor_to_the_horizon(
    desk: Desk, store: Store
) -> None:
    job, other = await desk.job(), await desk.job()
    slots = [NOON + n * HOUR for n in range(-1, 4)]
    for each in (job, other):
        await _put(store, *(new_override(each, slot) for slot in slots))
        await _put(store, new_override(each, NOON + 90 * MINUTE, action="payload", payload="1"))
        await _write(
            store, each, *(PlannedSlot(slot, slot, State.SKIPPED, "override") for slot in slots[:-1])
        )
    async with store.transaction() as transaction:
        found = await transaction.slots_left_out([cursor_of(job)], NOON + DAY)
        near = await transaction.slots_left_out([cursor_of(job), cursor_of(other)], NOON + HOUR)
    assert found == {(1, job.id): frozenset(slots[1:-1])}
    assert near == {(1, each.id): frozenset(slots[1:3]) for each in (job, other)}


@pytest.mark.parametrize(
    ("fields", "is_found"),
    [
        ({}, True),
        ({"slot": NOON + 2 * DAY}, False),
        ({"slot": NOON + 2 * DAY, "action": "move", "ready_at": NOON + HOUR}, True),
        ({"slot": NOON + 2 * DAY, "action": "move", "ready_at": NOON - HOUR}, True),
        ({"action": "move", "ready_at": NOON + 2 * DAY}, True),
        ({"slot": NOON}, False),
        ({"expires_at": NOON}, False),
        ({"expires_at": NOON + SECOND}, True),
    ],
)
async def test_what_waits_is_found_when_its_slot_or_its_time_is_near(
    desk: Desk, store: Store, fields: dict[str, Any], is_found: bool
) -> None:
    job = await desk.job()
    override = new_override(job, **{"slot": NOON + HOUR, **fields})
    await _put(store, override)
    assert await _waiting(store) == ([override.slot] if is_found else [])
    if is_found:
        [found] = await store.overrides_waiting(NOON, NOON + DAY, MONTH, None, 10)
        assert (found.due_at, found.plan, found.job_id) == (override.due_at, job.plan, job.id)
    await _write(store, job, PlannedSlot(override.slot, override.slot, State.SKIPPED, "override"))
    assert await _waiting(store) == []


async def test_what_waits_comes_in_pages_and_not_of_jobs_that_stand_still(desk: Desk, store: Store) -> None:
    jobs = [await desk.job() for _ in range(3)]
    slots = [NOON + n * MINUTE for n in range(1, 5)]
    await _put(store, *(new_override(job, slot) for job in jobs for slot in slots))
    async with store.transaction() as transaction:
        await transaction.put_cursor(cursor_of(jobs[0]), None, is_held=True)
        await transaction.drop_cursor(1, jobs[1].id)
    found = []
    last = None
    while page := await store.overrides_waiting(NOON, NOON + DAY, MONTH, last, 3):
        found += [(each.job_id, each.slot) for each in page]
        last = page[-1]
    assert found == [(jobs[2].id, slot) for slot in slots]


async def test_overrides_of_long_ago_are_forgotten(desk: Desk, store: Store) -> None:
    job = await desk.job()
    await _put(store, new_override(job, NOON), new_override(job, NOON - SECOND))
    await store.forget_overrides(NOON)
    assert [each.slot for each in await store.list_overrides(1, job.id, None, 10)] == [NOON]


async def test_a_job_is_read_with_the_slots_that_are_not_what_they_would_be(desk: Desk, store: Store) -> None:
    job = await desk.job()
    to = NOON + 5 * HOUR
    await _put(
        store,
        new_override(job, NOON - HOUR),
        new_override(job, NOON + HOUR),
        new_override(job, NOON + 2 * HOUR, action="move", ready_at=to),
        new_override(job, NOON + 3 * HOUR, action="payload", payload="1"),
        new_override(job, NOON + 4 * HOUR, expires_at=NOON - timedelta(minutes=1)),
    )
    expected = {NOON + HOUR: None, NOON + 2 * HOUR: to}
    found = await store.get_job(1, job.id, NOON)
    assert found is not None
    assert dict(found.decided) == expected
    await _write(store, job, PlannedSlot(NOON + 2 * HOUR, to, reason="moved"))
    found = await store.get_job(1, job.id, NOON)
    assert found is not None
    assert dict(found.decided) == expected | {NOON + 2 * HOUR: None}
