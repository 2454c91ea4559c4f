"""Keeping staged slots right when a job changes inside the look-ahead, and what to wait for before saying so.

A change of a job happens in one transaction with its cursor and its staged slots: what was staged ahead is dropped and
staged anew under the new definition, and what the old schedule missed before now gets its verdict first. A worker may
hold an execution that it claimed a moment before its instant; the change is acknowledged only once those have started
or been given up, so that nothing starts after the answer.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from cronwell.config import SchedulerSettings
from cronwell.control.pacing import Pace
from cronwell.model.execution import State
from cronwell.model.planning import Plan, SkippedRange, load_plan, plan_slots
from cronwell.model.schedule import first_after
from cronwell.runtime.clock import Clock
from cronwell.store.port import Cursor, Job, Move, Touched, Transaction

FireMissed = Literal["none", "last", "all"]

# A worker starts what it claimed within START_WITHIN of its instant, or asks anew. Its clock may be a little behind ours.
START_WITHIN = timedelta(milliseconds=250)
_SETTLING = START_WITHIN + timedelta(milliseconds=50)
_TICK = timedelta(microseconds=1)


def rests_until(
    plan: Plan, *, now: datetime, settings: SchedulerSettings, judged_at: datetime
) -> datetime | None:
    """The first slot of a job that begins now, where that lies so far ahead that nothing is staged yet; else None.

    Asked from `judged_at`, a moment before now: what came due since then is promised to some, see `first_move`.
    """
    first = first_after(plan.schedule, judged_at)
    return first if first is not None and first > now + settings.look_ahead else None


def first_move(
    cursor: Cursor,
    *,
    now: datetime,
    settings: SchedulerSettings,
    left_out: Collection[datetime] = (),
    judged_at: datetime | None = None,
) -> Move:
    """What to stage at once for a job that begins now, wherever its cursor stands.

    A moment that was still to come when the definition was judged (`judged_at`) counts, also if it is over by now.
    """
    plan = load_plan(cursor.plan)
    promised = judged_at or now
    first = first_after(plan.schedule, promised if plan.schedule.has_moments else now)
    first = first or first_after(plan.schedule, promised)
    if first is None:
        return standstill(cursor, plan)
    start = Cursor(
        cursor.tenant_id, cursor.job_id, cursor.revision, first, cursor.plan, cursor.runs_left, cursor.tzdata
    )
    return move_from(start, now=now, settings=settings, left_out=left_out)


def move_from(
    cursor: Cursor,
    *,
    now: datetime,
    settings: SchedulerSettings,
    until: datetime | None = None,
    left_out: Collection[datetime] = (),
) -> Move:
    """Plan a cursor's step up to the horizon, or to `until`. What is `left_out` uses up no run."""
    plan = load_plan(cursor.plan)
    horizon = now + settings.look_ahead if until is None else until
    staging = plan_slots(
        plan,
        cursor.job_id,
        cursor.next_slot,
        now=now,
        until=horizon,
        grace=settings.late_grace,
        runs_left=cursor.runs_left,
        left_out=left_out,
    )
    return Move(
        cursor=cursor,
        planned=staging.planned,
        ranges=staging.ranges,
        next_slot=staging.next_slot,
        pool=plan.pool,
        priority=plan.priority,
        running_limit=plan.running_limit,
        runs_left=staging.runs_left,
        awaits=staging.awaits,
        queueing=plan.queueing,
        group=plan.group,
        is_followed=plan.is_followed,
    )


async def settle_past(
    transaction: Transaction, job: Job, *, now: datetime, settings: SchedulerSettings
) -> int | None:
    """Give the slots that the job's schedule has passed, and nobody staged, their verdict before it changes.

    Returns how many runs are left after them; None for any number.
    """
    if (passed := _passed_over(job, now)) is not None:
        await transaction.record([passed], now)
    cursor = cursor_of(job)
    if cursor is None or cursor.next_slot > now:
        return job.runs_left
    left_out = await left_out_of(transaction, [cursor], now)
    while True:
        move = move_from(
            cursor, now=now, settings=settings, until=now, left_out=left_out.get((job.tenant_id, job.id), ())
        )
        await transaction.record([move], now)
        # One plan has room for so many slots, and nobody will come back for what lies beyond. The slot of a job that awaits
        # the end of its execution stays where it is, and has its verdict.
        if move.awaits or move.next_slot is None or move.next_slot > now:
            return move.runs_left
        cursor = dataclasses.replace(cursor, next_slot=move.next_slot, runs_left=move.runs_left)


async def left_out_of(
    transaction: Transaction, cursors: Iterable[Cursor], until: datetime
) -> Mapping[tuple[int, UUID], Collection[datetime]]:
    """The slots that overrides have skipped, of those cursors that count their runs: others need not know."""
    counting = [cursor for cursor in cursors if cursor.runs_left is not None]
    return await transaction.slots_left_out(counting, until) if counting else {}


async def unstage(
    transaction: Transaction, job: Job, *, now: datetime, settings: SchedulerSettings
) -> int | None:
    """Take back the slots ahead; the runs that they would have been are left again, and told."""
    runs_left = await settle_past(transaction, job, now=now, settings=settings)
    taken = 0
    is_following = job.plan is None or load_plan(job.plan).schedule.delay is not None
    if runs_left is not None and not is_following:
        # Also those that a worker holds: their slots lie ahead, so they are counted again when they are passed.
        taken = await transaction.count_ahead(job.tenant_id, job.id, now, job.next_slot)
    dropped = await transaction.drop_staged(job.tenant_id, job.id, now)
    return None if runs_left is None else runs_left + (dropped if is_following else taken)


def _passed_over(job: Job, now: datetime) -> Move | None:
    """What a pause that lasts has passed over so far: once the schedule changes nobody could tell."""
    if job.state != "paused" or job.plan is None or job.paused_at is None:
        return None
    plan = load_plan(job.plan)
    first = plan.schedule.next_after(job.paused_at)
    if first is None or first > now or plan.schedule.delay is not None:
        return None
    cursor = Cursor(job.tenant_id, job.id, job.revision, now, job.plan, job.runs_left)
    return dataclasses.replace(standstill(cursor, plan), ranges=[SkippedRange(first, now, "paused")])


async def put_moved(transaction: Transaction, move: Move, now: datetime) -> None:
    """Write the verdicts of a move, and set the cursor to where it leads."""
    await transaction.record([move], now)
    cursor = dataclasses.replace(move.cursor, runs_left=move.runs_left)
    await transaction.put_cursor(cursor, move.next_slot, awaits=move.awaits, held_until=move.held_until(now))


def resumption(
    job: Job,
    text: str,
    *,
    now: datetime,
    settings: SchedulerSettings,
    fire_missed: FireMissed,
    left_out: Collection[datetime] = (),
) -> Move:
    """The step of a job that goes on after a pause. What it missed is skipped as a range, unless asked for."""
    plan = load_plan(text)
    since = job.paused_at or now
    start = Cursor(job.tenant_id, job.id, job.revision, now, text, job.runs_left)
    first = plan.schedule.next_after(since)
    if first is None or first > now or plan.schedule.delay is not None:
        return first_move(start, now=now, settings=settings, left_out=left_out)
    if fire_missed == "none":
        move = first_move(start, now=now, settings=settings, left_out=left_out)
        return dataclasses.replace(move, ranges=[SkippedRange(first, now, "paused")])
    asked = dataclasses.replace(plan, catch_up=fire_missed, catch_up_window=now - since)
    missed = move_from(
        dataclasses.replace(start, next_slot=first, plan=asked.canonical()),
        now=now,
        settings=settings,
        left_out=left_out,
    )
    [paced] = Pace(settings.catch_up_rate).spread([dataclasses.replace(missed, cursor=start)], now)
    return paced


def resumed_at(job: Job, now: datetime, grace: timedelta) -> datetime:
    """From when on a paused job has its slots again: now or, where its pause has just come to its end, from that end on.

    A slot at the very end is not the pause's any more, whenever a scheduler gets round to it.
    """
    end = job.paused_until
    return end - _TICK if end is not None and end <= now <= end + grace else now


def standstill(cursor: Cursor, plan: Plan) -> Move:
    """No further slot."""
    return Move(
        cursor=cursor,
        planned=[],
        ranges=[],
        next_slot=None,
        pool=plan.pool,
        priority=plan.priority,
        running_limit=plan.running_limit,
        runs_left=cursor.runs_left,
        queueing=plan.queueing,
        group=plan.group,
        is_followed=plan.is_followed,
    )


def cursor_of(job: Job) -> Cursor | None:
    if job.plan is None or job.next_slot is None:
        return None
    return Cursor(job.tenant_id, job.id, job.revision, job.next_slot, job.plan, job.runs_left)


async def wait_until_started(touched: Iterable[Touched], clock: Clock) -> None:
    """Wait until the executions that workers hold, for an instant ahead or just claimed, have started."""
    held = [each.starts_at for each in touched if each.state is State.RUNNING]
    if held:
        wait = (max(held) - clock.now() + _SETTLING).total_seconds()
        if wait > 0:
            await asyncio.sleep(min(wait, 2.0))
