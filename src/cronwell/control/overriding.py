"""Writing overrides over the slots that they are for.

Staging writes a slot only where it has no row yet. So an override is applied by writing the row first: skipped, or
pending with a time or a payload of its own; staging passes over it. Rows are written a day ahead and not earlier, so
that a decision about next year does not make next year's partitions; a chore writes those that come near.

All of it happens under the job's lock, which staging takes as well. What takes back the slots ahead of a job takes
these rows back too, and lays the overrides anew under the definition that holds then.

A job that counts its runs is staged anew as a whole for each override: a slot that is skipped leaves its run to a later
one, so that every slot behind it may come to run or not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from cronwell.config import SchedulerSettings
from cronwell.control.scheduling import (
    FireMissed,
    first_move,
    put_moved,
    resumption,
    standstill,
    unstage,
)
from cronwell.model.execution import State
from cronwell.model.planning import PlannedSlot, load_plan
from cronwell.model.schedule import Schedule, effective_at, slots
from cronwell.store.port import Cursor, Job, Move, Override, Transaction

AHEAD = timedelta(days=1)
"""How long before it makes a difference an override is written over its slot."""
LONGEST_MOVE = timedelta(days=31)
"""A slot may be moved so far; its day's history cannot be dropped before it has run."""
MOST_COUNTED = 5000
"""Of a job that counts its runs, only so many slots ahead can be told to come."""

SKIPPED = "override"
MOVED = "moved"
CHANGED = "override"


def fitting(
    schedule: Schedule, overrides: Sequence[Override], *, after: datetime, runs_left: int | None
) -> list[Override]:
    """Those of a job's overrides, in the order of their slots, whose slot the schedule has and the job will reach."""
    if runs_left is None or not overrides or schedule.delay is not None:
        return [each for each in overrides if schedule.has(each.slot)]
    by_slot = {each.slot: each for each in overrides}
    kept: list[Override] = []
    for slot in slots(schedule, after, overrides[-1].slot, MOST_COUNTED):
        if runs_left == 0:
            break
        override = by_slot.get(slot)
        if override is not None:
            kept.append(override)
        if override is None or override.action != "skip":
            runs_left -= 1
    return kept


async def lay(
    transaction: Transaction, cursor: Cursor, *, now: datetime, since: datetime | None = None
) -> frozenset[datetime]:
    """Write those overrides of a job that fit its plan and come near over its slots; the slots that are skipped.

    What a worker has, or what has ended, stays as it is. With `since`, slots from then on that are over are skipped as
    well, for a job that is about to fire what it missed.
    """
    since = now if since is None else min(since, now)
    overrides = await transaction.overrides_after(cursor.tenant_id, cursor.job_id, since, now)
    if not overrides:
        return frozenset()
    plan = load_plan(cursor.plan)
    fit = fitting(plan.schedule, overrides, after=since, runs_left=cursor.runs_left)
    near = [each for each in fit if each.due_at <= now + AHEAD and (each.slot > now or each.action == "skip")]
    await transaction.write_decided(_move(cursor, near), now)
    return frozenset(each.slot for each in near if each.action == "skip")


async def begin(
    transaction: Transaction, cursor: Cursor, *, now: datetime, settings: SchedulerSettings
) -> Move:
    """Lay a job's overrides and plan what to stage at once, wherever its cursor stands."""
    left_out = await lay(transaction, cursor, now=now)
    return first_move(cursor, now=now, settings=settings, left_out=left_out)


async def begin_again(
    transaction: Transaction,
    job: Job,
    text: str,
    *,
    now: datetime,
    settings: SchedulerSettings,
    fire_missed: FireMissed,
) -> Move:
    """Lay the overrides of a job that is resumed, and plan its step. What was to be skipped is not fired later either."""
    start = Cursor(job.tenant_id, job.id, job.revision, now, text, job.runs_left)
    left_out = await lay(transaction, start, now=now, since=None if fire_missed == "none" else job.paused_at)
    return resumption(job, text, now=now, settings=settings, fire_missed=fire_missed, left_out=left_out)


async def lay_over_slot(
    transaction: Transaction, job: Job, slot: datetime, override: Override | None, now: datetime
) -> tuple[State | None, Move | None]:
    """Write one slot of a job that does not count its runs as its override has it, or as it is without one.

    Where a worker has the slot or it has ended, nothing is written and its state comes back; else what is written now.
    """
    state = await transaction.clear_slot(job.tenant_id, job.id, slot)
    if state is not None or job.state != "active" or job.plan is None:
        # A paused job has nothing staged: it is laid over its slots when it is resumed.
        return state, None
    cursor = Cursor(job.tenant_id, job.id, job.revision, now, job.plan)
    schedule = load_plan(job.plan).schedule
    if not schedule.has(slot):
        return None, None
    if override is not None:
        move = _move(cursor, [override] if override.due_at <= now + AHEAD else [])
        await transaction.write_decided(move, now)
        return None, move
    if job.next_slot is not None and slot >= job.next_slot:
        return None, None
    plain = PlannedSlot(slot, effective_at(schedule, job.id, slot))
    move = dataclasses.replace(_move(cursor, []), planned=[plain])
    await transaction.record([move], now)
    return None, move


async def restage(
    transaction: Transaction, job: Job, *, now: datetime, settings: SchedulerSettings
) -> tuple[int | None, Move]:
    """Stage a job anew that counts its runs: how many were left with nothing staged, and what is staged now."""
    assert job.plan is not None, "a job without a schedule counts no runs"
    runs_left = await unstage(transaction, job, now=now, settings=settings)
    cursor = Cursor(job.tenant_id, job.id, job.revision, now, job.plan, runs_left)
    move = await begin(transaction, cursor, now=now, settings=settings)
    await put_moved(transaction, move, now)
    return runs_left, move


def decided(override: Override, schedule: Schedule) -> PlannedSlot:
    """A slot as its override has it."""
    if override.action == "skip":
        return PlannedSlot(override.slot, override.slot, State.SKIPPED, SKIPPED)
    if override.action == "move":
        assert override.ready_at is not None, "a move has a time"
        return PlannedSlot(override.slot, override.ready_at, reason=MOVED, payload=override.payload)
    at = effective_at(schedule, override.job_id, override.slot)
    return PlannedSlot(override.slot, at, reason=CHANGED, payload=override.payload)


def _move(cursor: Cursor, overrides: Iterable[Override]) -> Move:
    """What the overrides write, as a step of a cursor that stays where it is."""
    plan = load_plan(cursor.plan)
    planned = [decided(each, plan.schedule) for each in overrides]
    return dataclasses.replace(standstill(cursor, plan), planned=planned)
