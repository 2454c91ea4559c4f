"""Plan jobs anew whose calendar has changed."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from uuid import UUID

from cronwell.config import SchedulerSettings
from cronwell.control.calendars import Calendars, Known
from cronwell.control.replanning import replan
from cronwell.model.filters import Named
from cronwell.model.planning import load_plan
from cronwell.model.schedule import Schedule
from cronwell.runtime.clock import Clock
from cronwell.store.port import Job, Store

BATCH = 200


class FollowingCalendars:
    """Implements `Chore`: a change of a calendar reaches every job that follows it, however many they are."""

    name = "following calendars"
    every = timedelta(seconds=1)

    def __init__(self, store: Store, clock: Clock, settings: SchedulerSettings, calendars: Calendars) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._calendars = calendars

    async def run_once(self) -> int:
        total = 0
        while True:
            due = await self._store.outdated_uses(BATCH)
            read: dict[tuple[int, tuple[str, ...]], Known] = {}
            for tenant_id, job_id in due:
                await self._replan(tenant_id, job_id, read)
            total += len(due)
            if len(due) < BATCH:
                return total

    async def _replan(
        self, tenant_id: int, job_id: UUID, read: dict[tuple[int, tuple[str, ...]], Known]
    ) -> None:
        """Plan one job anew. What is `read` once serves a batch: a job notes which revision it went by, so that a calendar
        which changes meanwhile has it planned once more."""
        now = self._clock.now()
        async with self._store.transaction() as transaction:
            job = await transaction.lock_job(tenant_id, job_id)
            schedule = _schedule_of(job)
            if job is None or schedule is None or schedule.filter is None:
                await transaction.note_uses(tenant_id, [job_id], [])
                return
            names = tuple(schedule.filter.names)
            known = read.get((tenant_id, names)) or await self._calendars.named(tenant_id, names)
            read[tenant_id, names] = known
            await replan(transaction, job, lambda old: _renewed(old, known), now=now, settings=self._settings)
            await transaction.note_uses(tenant_id, [job_id], known.uses(job_id, schedule))


def _schedule_of(job: Job | None) -> Schedule | None:
    if job is None or job.plan is None or job.state not in ("active", "paused"):
        return None
    return load_plan(job.plan).schedule


def _renewed(schedule: Schedule, known: Known) -> Schedule:
    """The same schedule with its calendars as they are now."""
    assert schedule.filter is not None
    exclude, only = (
        tuple(Named(each.name, known.calendars.get(each.name, each.calendar)) for each in named)
        for named in (schedule.filter.exclude, schedule.filter.only)
    )
    return dataclasses.replace(
        schedule, filter=dataclasses.replace(schedule.filter, exclude=exclude, only=only)
    )
