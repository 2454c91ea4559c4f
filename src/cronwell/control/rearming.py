"""Telling what is wrong with a job that stands where none should, and letting it go on.

A job is armed anew as an edit would do it: from its next slot after now. What it passed meanwhile is skipped as a range,
with a reason; nothing that is past due is made. Where that could be wrong (a count of runs is lost) or is somebody
else's to do (a late cursor is staged by its shard's owner, by the job's own catch-up policy), it is only told.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import orjson

from cronwell.config import SchedulerSettings
from cronwell.control.calendars import Calendars
from cronwell.control.overriding import begin
from cronwell.control.scheduling import put_moved, unstage
from cronwell.model.job import JobSpec
from cronwell.model.planning import Plan, SkippedRange, load_plan, plan_of
from cronwell.model.schedule import parse
from cronwell.model.validation import validate
from cronwell.runtime.clock import Clock
from cronwell.store.port import Cursor, Job, Store, Suspect

NO_CURSOR = "no_cursor"
NO_SLOT = "no_slot"
HELD = "held"
STUCK = "stuck"
AWAITING = "awaiting_ended"
STRAY = "stray"
MENDED = frozenset({NO_CURSOR, NO_SLOT, HELD})
REARMED = "rearmed"
"""The reason of slots that were passed before a job was armed anew."""

STUCK_AFTER = timedelta(minutes=1)
ENDED_FOR = timedelta(seconds=30)


def kind_of(suspect: Suspect, last: datetime | None, now: datetime) -> str | None:
    """What is wrong with a suspect; None where it has a good reason to stand where it stands.

    `last` is its newest slot that has an execution, which may lie ahead.
    """
    if suspect.state != "active":
        return STRAY
    if not suspect.has_cursor:
        return NO_CURSOR
    assert suspect.plan is not None, "a cursor has a plan"
    if suspect.is_held:
        # A calendar that leaves nothing is a reason: the job waits for it to change, and is looked at again.
        is_waiting = suspect.held_until is not None and suspect.held_until > now - STUCK_AFTER
        return None if is_waiting else HELD
    if suspect.next_slot is None:
        following = load_plan(suspect.plan).schedule.next_after(max(now, last or now))
        has_ended = suspect.runs_left == 0 or following is None
        return None if has_ended else NO_SLOT
    return AWAITING if suspect.awaits else STUCK


class Rearming:
    """The verb. One instance serves a process."""

    def __init__(self, store: Store, clock: Clock, settings: SchedulerSettings, calendars: Calendars) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._calendars = calendars

    async def last_slots(self, suspects: Sequence[Suspect]) -> dict[UUID, datetime]:
        """The newest slot of each suspect that has an execution."""
        found: dict[UUID, datetime] = {}
        for tenant_id in {each.tenant_id for each in suspects}:
            jobs = [each.job_id for each in suspects if each.tenant_id == tenant_id]
            found |= await self._store.last_slots(tenant_id, jobs)
        return found

    async def rearm(self, suspect: Suspect, last: datetime | None) -> bool:
        """Let a job go on from its next slot; False where it goes on by itself by now, or nobody can tell from where."""
        tenant_id, job_id = suspect.tenant_id, suspect.job_id
        async with self._store.transaction() as transaction:
            job = await transaction.lock_job(tenant_id, job_id)
            now = self._clock.now()
            again = await transaction.suspect(
                (tenant_id, job_id), due_before=now - STUCK_AFTER, ended_before=now - ENDED_FOR
            )
            if job is None or again is None or kind_of(again, last, now) not in MENDED:
                return False
            plan = await self._plan(job)
            if plan is None:
                return False
            job = dataclasses.replace(job, plan=plan.canonical())
            runs_left = await unstage(transaction, job, now=now, settings=self._settings)
            cursor = Cursor(tenant_id, job_id, job.revision, now, plan.canonical(), runs_left)
            move = await begin(transaction, cursor, now=now, settings=self._settings)
            passed = _passed(plan, max(last or job.updated_at, job.updated_at), now)
            await put_moved(transaction, dataclasses.replace(move, ranges=[*move.ranges, *passed]), now)
        return True

    async def _plan(self, job: Job) -> Plan | None:
        """The plan that the job has or, where it was lost, one made of its definition as of the time of that."""
        if job.plan is not None:
            return load_plan(job.plan)
        raw = orjson.loads(job.spec)
        spec = validate(JobSpec, raw)
        if spec.schedule is None:
            return None
        known = await self._calendars.known(job.tenant_id, [raw])
        schedule = parse(
            spec.schedule,
            timezone=spec.timezone,
            window=spec.window,
            now=job.defined_at or job.created_at,
            seed=spec.name,
            calendars=known.calendars,
        )
        # How many runs are left was lost with the cursor, and one too many was not asked for.
        return None if schedule.max_runs is not None else plan_of(spec, schedule)


def _passed(plan: Plan, since: datetime, now: datetime) -> list[SkippedRange]:
    """The slots that were passed since a time, which are not run."""
    first = plan.schedule.next_after(since)
    if first is None or first > now or plan.schedule.delay is not None:
        return []
    return [SkippedRange(first, now, REARMED)]
