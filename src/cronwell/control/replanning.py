"""Give a job's present definition a new plan, where something that it depends on has changed: a calendar, or a zone's rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime

from cronwell.config import SchedulerSettings
from cronwell.control.overriding import begin
from cronwell.control.scheduling import put_moved, settle_past, unstage
from cronwell.model.planning import load_plan
from cronwell.model.schedule import Schedule
from cronwell.store.port import Cursor, Job, Move, Transaction

Change = Callable[[Schedule], Schedule]


async def replan(
    transaction: Transaction, job: Job, change: Change, *, now: datetime, settings: SchedulerSettings
) -> Move | None:
    """Plan a locked job anew, from now on. Its revision stays; slots that it has passed keep their verdicts, and what it
    went by is kept, so that they can be told from those that it never had."""
    if job.plan is None or job.state not in ("active", "paused"):
        return None
    plan = load_plan(job.plan)
    changed = dataclasses.replace(plan, schedule=change(plan.schedule))
    if changed == plan:
        return None
    if job.state == "paused":
        await settle_past(transaction, job, now=now, settings=settings)
        await transaction.keep_plan(job.tenant_id, job.id, now)
        held = Cursor(job.tenant_id, job.id, job.revision, now, changed.canonical(), job.runs_left)
        await transaction.put_cursor(held, None, is_held=True)
        return None
    runs_left = await unstage(transaction, job, now=now, settings=settings)
    await transaction.keep_plan(job.tenant_id, job.id, now)
    cursor = Cursor(job.tenant_id, job.id, job.revision, now, changed.canonical(), runs_left)
    move = await begin(transaction, cursor, now=now, settings=settings)
    await put_moved(transaction, move, now)
    return move
