"""What lies ahead: a job's coming slots, its status, and schedules tried out without storing anything."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from cronwell.control.jobs import Jobs
from cronwell.control.overriding import LONGEST_MOVE
from cronwell.control.prospects import follows, next_fire_at, why_idle
from cronwell.control.views import (
    ExecutionView,
    JobStatus,
    Preview,
    Upcoming,
    UpcomingSlot,
    change_view,
    execution_view,
    override_mark,
)
from cronwell.model import zones
from cronwell.model.calendars import Calendar
from cronwell.model.describe import clock_changes, describe, warnings
from cronwell.model.execution import ExecutionKey, Kind, State
from cronwell.model.planning import load_plan
from cronwell.model.schedule import Schedule, effective_at, parse, slots
from cronwell.model.waiting import waits_until, why_waiting
from cronwell.runtime.clock import Clock
from cronwell.store.port import ExecutionFilter, Job, Override, Store

_BEGUN = (State.RUNNING, State.RETRYING, State.SUCCEEDED, State.FAILED, State.CANCELLED)
_NO_JOB = UUID(int=0)


class Outlook:
    """The verbs. One instance serves a process."""

    def __init__(self, store: Store, clock: Clock, jobs: Jobs) -> None:
        self._store = store
        self._clock = clock
        self._jobs = jobs

    async def upcoming(self, tenant_id: int, reference: str, count: int) -> Upcoming:
        """The next slots of a job. A paused job shows those it would have."""
        job = await self._jobs.find(tenant_id, reference)
        if job.plan is None:
            return Upcoming(job_id=job.id, timezone="UTC", items=[], note=follows(job))
        schedule = load_plan(job.plan).schedule
        ahead = await self._ahead(job, schedule, count)
        if job.state == "paused":
            until = job.paused_until
            ahead = [
                each.model_copy(update={"note": "paused"}) if until is None or each.slot < until else each
                for each in ahead
            ]
        note = await asyncio.to_thread(_why_no_more, job, schedule, ahead, count, self._clock.now())
        ahead = await self._overridden(job, schedule, ahead, count)
        return Upcoming(job_id=job.id, timezone=schedule.timezone, items=ahead, note=note)

    async def _ahead(self, job: Job, schedule: Schedule, count: int) -> list[UpcomingSlot]:
        """The slots to come: no more than the job may still run, and only those that are known."""
        now = self._clock.now()
        if schedule.delay is not None:
            at = next_fire_at(job)
            note = "the next one is known when this has finished"
            local = None if at is None else at.astimezone(schedule.zone).isoformat()
            return (
                [] if at is None else [UpcomingSlot(slot=at, local=local or "", effective_at=at, note=note)]
            )
        if job.runs_left is not None:
            where = ExecutionFilter(job_id=job.id, states=(State.PENDING,), from_slot=now)
            staged = await self._store.list_executions(job.tenant_id, where, None, count)
            count = min(count, job.runs_left + len(staged))
        # A thousand slots take up to 50 ms, too long to keep the event loop from others.
        return await asyncio.to_thread(coming, schedule, job.id, now, count)

    async def _overridden(
        self, job: Job, schedule: Schedule, ahead: list[UpcomingSlot], count: int
    ) -> list[UpcomingSlot]:
        """The coming slots with what was decided about them, after those that were moved and are still to start."""
        now = self._clock.now()
        overrides = await self._store.overrides_of(job.tenant_id, job.id, now - LONGEST_MOVE, now)
        by_slot = {each.slot: each for each in overrides}
        shown = [_marked(each, by_slot.get(each.slot)) for each in ahead]
        late: list[UpcomingSlot] = []
        for each in overrides:
            if each.slot <= now and each.ready_at is not None and each.ready_at > now:
                key = ExecutionKey(job.id, Kind.SCHEDULED, each.slot)
                execution = await self._store.get_execution(job.tenant_id, key)
                if execution is not None and execution.state is State.PENDING:
                    local = each.slot.astimezone(schedule.zone).isoformat()
                    slot = UpcomingSlot(slot=each.slot, local=local, effective_at=each.slot)
                    late.append(_marked(slot, each))
        return (late + shown)[:count]

    async def status(self, tenant_id: int, reference: str) -> JobStatus:
        """How the job's latest execution stands. What a worker holds for an instant ahead has not begun."""
        job = await self._jobs.find(tenant_id, reference)
        now = self._clock.now()
        where = ExecutionFilter(job_id=job.id, states=_BEGUN, begun_by=now)
        latest = await self._store.list_executions(tenant_id, where, None, 2)
        begun = [each for each in latest if each.state is not State.RUNNING or each.ready_at <= now]
        last = execution_view(begun[0]) if begun else None
        return JobStatus(
            id=job.id,
            name=job.name,
            state=job.state,
            status=last.state if last else None,
            last_run=_begun_at(last) if last else None,
            next_run=next_fire_at(job),
            retry_count=max(0, last.attempt - 1) if last else 0,
            last_execution=last,
            note=why_idle(job) or follows(job),
        )

    def preview(
        self,
        schedule: str | Mapping[str, Any],
        *,
        timezone: str | None,
        window: str | None = None,
        after: datetime | None,
        count: int,
        job: str = "",
        calendars: Mapping[str, Calendar] | None = None,
    ) -> Preview:
        """What a schedule would do; nothing is stored. `H` is shown for a job of that name, the window for none."""
        now = after or self._clock.now()
        parsed = parse(schedule, timezone=timezone, window=window, now=now, seed=job, calendars=calendars)
        most = count if parsed.max_runs is None else min(count, parsed.max_runs)
        return Preview(
            slots=coming(parsed, _NO_JOB, now, most),
            description=describe(parsed),
            warnings=warnings(parsed, now),
            clock_changes=[change_view(change) for change in clock_changes(parsed, now)],
        )


def _why_no_more(
    job: Job, schedule: Schedule, ahead: list[UpcomingSlot], count: int, now: datetime
) -> str | None:
    """Which calendar leaves no slot after those ahead; None where there are enough, or the schedule is over."""
    has_run_out = job.runs_left is not None and len(ahead) >= job.runs_left
    if not ahead and job.held_until is not None:
        return why_idle(job)
    if len(ahead) >= count or has_run_out:
        return None
    until = waits_until(schedule, ahead[-1].slot if ahead else now)
    if until is None:
        return None
    return f"{'then ' if ahead else ''}{why_waiting(schedule, until)}"


def _marked(slot: UpcomingSlot, override: Override | None) -> UpcomingSlot:
    if override is None:
        return slot
    at = slot.effective_at if override.ready_at is None else override.ready_at
    return slot.model_copy(update={"override": override_mark(override), "effective_at": at})


def _begun_at(execution: ExecutionView) -> datetime:
    """When it started. Until its worker has told, that is when it was ready; it was claimed a little before."""
    if execution.started_at is not None or execution.claimed_at is None:
        return execution.started_at or execution.slot
    return max(execution.claimed_at, execution.ready_at)


def coming(schedule: Schedule, job_id: UUID, after: datetime, count: int) -> list[UpcomingSlot]:
    """The next slots with their local time and a note where the clocks change."""
    zone = zones.find(schedule.timezone)
    shown: list[UpcomingSlot] = []
    before = after.astimezone(zone).utcoffset()
    for slot in slots(schedule, after, None, count):
        local = slot.astimezone(zone)
        offset = local.utcoffset()
        note = None
        if offset != before and offset is not None and before is not None:
            way = "forward" if offset > before else "back"
            note = f"clocks in {schedule.timezone} have gone {way} by {_minutes(abs(offset - before))} since the last slot"
        before = offset
        shown.append(
            UpcomingSlot(
                slot=slot,
                local=local.isoformat(),
                effective_at=effective_at(schedule, job_id, slot),
                note=note,
            )
        )
    return shown


def _minutes(length: timedelta) -> str:
    minutes = length // timedelta(minutes=1)
    return f"{minutes // 60} h" if minutes % 60 == 0 else f"{minutes} min"
