"""Keeping staged slots right when a job changes inside the look-ahead, and what to wait for before saying so.

A change of a job happens in one transaction with its cursor and its staged slots: what was staged ahead is dropped and
staged anew under the new definition, and what the old schedule missed before now gets its verdict first. A worker may
hold an execution that it claimed a moment before its instant; the change is acknowledged only once those have started
or been given up, so that nothing starts after the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from cronwell.config import SchedulerSettings
from cronwell.model.execution import State
from cronwell.model.planning import Plan, load_plan, plan_slots
from cronwell.runtime.clock import Clock
from cronwell.store.port import Cursor, Job, Move, Touched, Transaction

# A held execution starts on its worker's clock, which may be a little behind ours; one that was due already starts once
# its worker has heard that the claim succeeded and has looked up the job.
_SETTLING = timedelta(milliseconds=50)


def first_move(
    plan: Plan,
    job_id: UUID,
    tenant_id: int,
    revision: int,
    *,
    now: datetime,
    settings: SchedulerSettings,
) -> Move | None:
    """What to stage at once for a job that begins now; None where it has no slot ahead."""
    first = plan.schedule.next_after(now)
    if first is None:
        return None
    return move_from(Cursor(tenant_id, job_id, revision, first, plan.canonical()), now=now, settings=settings)


def move_from(
    cursor: Cursor, *, now: datetime, settings: SchedulerSettings, until: datetime | None = None
) -> Move:
    """Plan a cursor's step up to the horizon, or to `until`."""
    plan = load_plan(cursor.plan)
    horizon = now + settings.look_ahead if until is None else until
    staging = plan_slots(
        plan, cursor.job_id, cursor.next_slot, now=now, until=horizon, grace=settings.late_grace
    )
    return Move(
        cursor=cursor,
        planned=staging.planned,
        ranges=staging.ranges,
        next_slot=staging.next_slot,
        pool=plan.pool,
        priority=plan.priority,
        running_limit=plan.running_limit,
    )


async def settle_past(
    transaction: Transaction, job: Job, *, now: datetime, settings: SchedulerSettings
) -> None:
    """Give the slots that the job's schedule has passed, and nobody staged, their verdict before it changes."""
    cursor = cursor_of(job)
    if cursor is not None and cursor.next_slot <= now:
        await transaction.record([move_from(cursor, now=now, settings=settings, until=now)], now)


def cursor_of(job: Job) -> Cursor | None:
    if job.plan is None or job.next_slot is None:
        return None
    return Cursor(job.tenant_id, job.id, job.revision, job.next_slot, job.plan)


async def wait_until_started(touched: Iterable[Touched], clock: Clock) -> None:
    """Wait until the executions that workers hold, for an instant ahead or just claimed, have started."""
    held = [each.starts_at for each in touched if each.state is State.RUNNING]
    if held:
        wait = (max(held) - clock.now() + _SETTLING).total_seconds()
        if wait > 0:
            await asyncio.sleep(min(wait, 2.0))
