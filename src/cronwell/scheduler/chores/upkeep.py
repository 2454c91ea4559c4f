"""Finish the jobs that have no further slot, and resume the jobs whose pause is over."""

from __future__ import annotations

from datetime import timedelta

from cronwell import errors, telemetry
from cronwell.control.jobs import Jobs
from cronwell.runtime.clock import Clock
from cronwell.store.port import Store

BATCH = 1000


class Finishing:
    """Implements `Chore`: a job whose last execution has ended is finished."""

    name = "finishing"
    every = timedelta(seconds=2)

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run_once(self) -> int:
        total = 0
        while True:
            finished = await self._store.finish_ended(self._clock.now(), BATCH)
            if finished:
                telemetry.finished_jobs(finished)
            total += finished
            if finished < BATCH:
                return total


class Resuming:
    """Implements `Chore`: a pause with an end ends by itself."""

    name = "resuming"
    every = timedelta(seconds=1)

    def __init__(self, store: Store, clock: Clock, jobs: Jobs) -> None:
        self._store = store
        self._clock = clock
        self._jobs = jobs

    async def run_once(self) -> int:
        due = await self._store.pauses_over(self._clock.now(), BATCH)
        for tenant_id, job_id in due:
            try:
                await self._jobs.resume(tenant_id, str(job_id))
            except errors.UserError:
                # Someone resumed or deleted it in this moment.
                continue
        return len(due)
