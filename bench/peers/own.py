"""Cronwell's own part: the processes of its benchmark, and the start times that its workers recorded."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from bench.peers.figures import Figures, figures_of
from bench.peers.ground import PostgresServer
from bench.peers.protocol import Report, Task
from cronwell.bench.facts import facts_of
from cronwell.bench.fleet import Server, fleet, scratch
from cronwell.bench.ground import Ground
from cronwell.bench.limit import measure_limit
from cronwell.bench.load import TENANT, Load, register
from cronwell.bench.measure import PATIENCE, measure_drain, until_done, until_up
from cronwell.config import Settings
from cronwell.model.execution import ExecutionKey, Kind
from cronwell.model.planning import PRIORITIES
from cronwell.runtime.postgres import Database
from cronwell.store.port import NewExecution
from cronwell.store.postgres.store import PostgresStore

Progress = Callable[[int, int], None]
CONFIGURATION = (
    "One scheduler and a worker process for each core, defaults. What peers call a job, a run of a function that workers know,"
    " is here an execution of a job: its drain is of one job that was triggered so many times. Every execution is kept as history."
)

TRIGGERED_AT_ONCE = 1000

_STAGED = "select count(*) from executions"
_STARTS = """
select
    extract(epoch from started_at)::float8 as started,
    extract(epoch from slot)::float8 as due,
    extract(epoch from finished_at)::float8 as finished,
    job_id
from executions
where started_at is not null
"""


@dataclass(frozen=True, slots=True)
class Own:
    """Runs Cronwell on the server that the peers run on."""

    server: PostgresServer

    async def survey(self, limit_executions: int) -> tuple[dict[str, Any], float]:
        """Where and on what this run is measured, and the limit of the bare statements."""
        async with scratch(self.server.url) as (database, url):
            return await facts_of(database), await measure_limit(database, url, limit_executions)

    async def run(self, task: Task, progress: Progress) -> tuple[Task, Figures]:
        """Run the work and read from the store what came of it."""
        if task.work == "drain":
            return task, figures_of(task, *await self._drain_of(_trigger, task, progress))
        async with scratch(self.server.url) as (database, url):
            task = await self._run_timed(task, database, url, progress)
            report, ended_at = await _read(database)
        return task, figures_of(task, report, ended_at)

    async def note(self, task: Task, progress: Progress) -> str:
        """What stands beside a drain of one job that was triggered: jobs that run once each, staged and not yet staged."""
        registered = await self._from_registered(task, progress)
        staged = figures_of(task, *await self._drain_of(_stage, task, progress)).per_second
        return f"of as many jobs that run once each: {staged:,.0f}/s, and {registered:,.0f}/s where they are staged meanwhile"

    async def _from_registered(self, task: Task, progress: Progress) -> float:
        """Drain jobs that are registered and have to be staged first; how many a second."""
        ground = Ground(
            _patient(Settings()), Server(self.server.url, self.server.pid), lambda title: progress,
            task.cores, 0, {},
        )  # fmt: skip
        async with scratch(self.server.url) as (database, url):
            drained = await measure_drain(ground, database, url, count=task.jobs, progress=progress)
        return drained.per_second

    async def _drain_of(
        self, fill: Callable[[Database, int], Awaitable[None]], task: Task, progress: Progress
    ) -> tuple[Report, float | None]:
        """Have everything due before the workers start, as the peers' jobs are enqueued before theirs."""
        settings = _patient(Settings())
        async with scratch(self.server.url) as (database, url):
            async with fleet(settings, url, workers=0) as _:
                await until_up(database, 0)
                await fill(database, task.jobs)
                async with fleet(settings, url, schedulers=0, workers=task.cores) as _:
                    await until_done(database, task.jobs, progress)
            return await _read(database)

    async def _run_timed(self, task: Task, database: Database, url: str, progress: Progress) -> Task:
        async with fleet(_patient(Settings()), url, workers=task.cores) as _:
            await until_up(database, task.cores)
            # Whole seconds: the slots of an interval count from its anchor, those of a peer's cron from the full second.
            start = float(int(time.time() + 5 + (task.jobs + task.schedules) / 4000))
            first = datetime.fromtimestamp(start, UTC)
            if task.work == "steady":
                await register(database, Load(task.jobs, first, spread=timedelta(seconds=task.seconds)))
            else:
                await register(database, Load(task.schedules, first, every=timedelta(seconds=task.period)))
            end = start + task.seconds
            expected = task.jobs or round(task.schedules * task.seconds / task.period)
            while (now := time.time()) < end:
                progress(min(max(round(expected * (now - start) / task.seconds), 0), expected), expected)
                await asyncio.sleep(0.5)
            await _until_recorded(database, first, datetime.fromtimestamp(end, UTC))
            progress(expected, expected)
        return dataclasses.replace(task, start=start)


def _patient(settings: Settings) -> Settings:
    """The last of a herd is not a miss."""
    scheduler = dataclasses.replace(settings.scheduler, late_grace=PATIENCE)
    return dataclasses.replace(settings, scheduler=scheduler)


async def _stage(database: Database, jobs: int) -> None:
    """Register jobs that run once each, and wait until all are staged and due."""
    due = datetime.fromtimestamp(int(time.time() + 5 + jobs / 4000), UTC)
    await register(database, Load(jobs, due, spread=timedelta(milliseconds=1)))
    deadline = due.timestamp() + 60
    while (now := time.time()) < deadline:
        if now > due.timestamp() + 1 and await database.fetchval(_STAGED) == jobs:
            return
        await asyncio.sleep(0.2)
    raise TimeoutError(f"not all of {jobs} jobs were staged")


async def _trigger(database: Database, times: int) -> None:
    """Register one job and trigger it so many times, a microsecond apart, with the statement that triggers go by."""
    store, now = PostgresStore(database), datetime.now(UTC)
    await register(database, Load(1, now + timedelta(days=1)))
    job_id: UUID = await database.fetchval("select id from jobs")
    for first in range(0, times, TRIGGERED_AT_ONCE):
        slots = [
            now - timedelta(microseconds=times - number)
            for number in range(first, min(first + TRIGGERED_AT_ONCE, times))
        ]
        async with store.transaction() as transaction:
            await transaction.insert_executions([_triggered(job_id, slot) for slot in slots])
    await database.execute("analyze executions")


def _triggered(job_id: UUID, slot: datetime) -> NewExecution:
    return NewExecution(
        tenant_id=TENANT,
        key=ExecutionKey(job_id, Kind.MANUAL, slot),
        ready_at=slot,
        revision=1,
        priority=PRIORITIES["normal"],
        running_limit=None,
        pool="default",
        payload=None,
        reason="triggered",
    )


async def _until_recorded(database: Database, first: datetime, end: datetime) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        left = await database.fetchval(
            "select exists (select from executions where ready_at >= $1 and ready_at < $2 and finished_at is null)"
            " or exists (select from cursors where next_slot >= $1 and next_slot < $2)",
            first,
            end,
        )
        if not left:
            return
        await asyncio.sleep(0.2)


async def _read(database: Database) -> tuple[Report, float | None]:
    async with database.transaction() as connection:
        await connection.execute("set local statement_timeout = 0")
        rows = await connection.fetch(_STARTS, timeout=600)
    numbers = {job: number for number, job in enumerate({row["job_id"] for row in rows})}
    report = Report(
        [row["started"] for row in rows],
        [row["due"] for row in rows],
        [numbers[row["job_id"]] for row in rows],
    )
    return report, max((row["finished"] for row in rows if row["finished"] is not None), default=None)
