"""Finish the jobs that have no further slot, look again at those that wait for a calendar, resume the jobs whose pause is
over, and give the next slot to the jobs that have waited for an execution's end."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from uuid import UUID

from cronwell import errors, telemetry
from cronwell.config import SchedulerSettings
from cronwell.control.jobs import Jobs
from cronwell.control.overriding import begin
from cronwell.control.scheduling import move_from, put_moved, standstill
from cronwell.model.planning import load_plan
from cronwell.runtime.clock import Clock
from cronwell.store.port import Cursor, Move, Store

BATCH = 1000
# Finishing a job writes its definition twice and takes PostgreSQL 45 µs, more than to claim and record its execution. After a
# herd of jobs that run once that can wait until the herd is through: each spell is short at first, and twice as long as the one
# before for as long as there is more.
SHORTEST_SPELL, LONGEST_SPELL = 0.5, 8.0
REST = 5


class Finishing:
    """Implements `Chore`: a job whose last execution has ended is finished; one that waits for a calendar is not, until
    its schedule is over too."""

    name = "finishing"
    every = timedelta(seconds=2)

    def __init__(self, store: Store, clock: Clock, settings: SchedulerSettings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._spell = SHORTEST_SPELL
        self._rests_until = 0.0

    async def run_once(self) -> int:
        for tenant_id, job_id in await self._store.waits_over(self._clock.now(), BATCH):
            await self._look_again(tenant_id, job_id)
        total, began = 0, self._clock.monotonic()
        if began < self._rests_until:
            return total
        while True:
            looked = self._clock.monotonic()
            finished = await self._store.finish_ended(self._clock.now(), BATCH)
            ended = self._clock.monotonic()
            if finished:
                telemetry.finished_jobs(finished)
            total += finished
            if finished < BATCH:
                # It has looked through all whose executions still go on, and these may be many.
                self._rests_until = ended + REST * (ended - looked)
                self._spell = SHORTEST_SPELL
                return total
            if ended - began >= self._spell:
                self._spell = min(2 * self._spell, LONGEST_SPELL)
                return total

    async def _look_again(self, tenant_id: int, job_id: UUID) -> None:
        async with self._store.transaction() as transaction:
            job = await transaction.lock_job(tenant_id, job_id)
            now = self._clock.now()
            if job is None or job.plan is None or job.held_until is None or job.held_until > now:
                return
            cursor = Cursor(tenant_id, job_id, job.revision, now, job.plan, job.runs_left)
            move = await begin(transaction, cursor, now=now, settings=self._settings)
            await put_moved(transaction, move, now)


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


class Following:
    """Implements `Chore`: `every … after finish` comes due so long after the end of the execution before."""

    name = "following"
    every = timedelta(milliseconds=250)

    def __init__(self, store: Store, clock: Clock, settings: SchedulerSettings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings

    async def run_once(self) -> int:
        total = 0
        while True:
            now = self._clock.now()
            async with self._store.transaction() as transaction:
                ended = await transaction.lock_awaiting(now, BATCH)
                moves = [self._follow(cursor, finished_at or now, now) for cursor, finished_at in ended]
                if moves:
                    await transaction.stage(moves, now)
            total += len(ended)
            if len(ended) < BATCH:
                return total

    def _follow(self, cursor: Cursor, finished_at: datetime, now: datetime) -> Move:
        plan = load_plan(cursor.plan)
        assert plan.schedule.delay is not None, "only such a schedule awaits an end"
        following = finished_at + plan.schedule.delay
        if plan.schedule.end is not None and following > plan.schedule.end:
            return standstill(cursor, plan)
        move = move_from(dataclasses.replace(cursor, next_slot=following), now=now, settings=self._settings)
        return dataclasses.replace(move, cursor=cursor)
