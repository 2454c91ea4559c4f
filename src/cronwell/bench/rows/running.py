"""Executions that all run at once and wait: what so many cost a worker that also has to beat, to obey and to record.

They start at one instant, are held for a while, and some of them are cancelled; then all others are let go and must succeed,
none of them earlier, nor in another attempt than the first.
The handlers do not look whether they are cancelled, as code that waits for something else does not: it is the grace from a
cooperative stop to a forced one that has to pass, so the row makes that short (`worker.cancel_grace`).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from cronwell.bench.cost import memory_of
from cronwell.bench.fleet import Fleet, fleet
from cronwell.bench.ground import Ground, Progress
from cronwell.bench.load import Load, register
from cronwell.bench.measure import LEAD, PATIENCE, until_done, until_up
from cronwell.bench.noop import LET_GO, WAIT
from cronwell.bench.row import Check, Row
from cronwell.bus.port import orders_for
from cronwell.bus.postgres import PostgresBus
from cronwell.config import Settings
from cronwell.model.execution import ExecutionKey, Kind
from cronwell.runtime.postgres import Database
from cronwell.store.postgres.store import PostgresStore

HEARTBEAT_SECONDS_OVER = 1.0
CANCEL_SECONDS = 1.0
BYTES_EACH = 10 * 1024
GRACE = timedelta(milliseconds=100)
REGISTERED_PER_SECOND = 4000
"""Jobs that are written and staged in a second, at the least: so long before their instant they are registered."""
SAMPLE_SECONDS = 0.1

_RUNNING = "select count(*) from executions where state = 'running' and started_at is not null"
_AGES = "select extract(epoch from clock_timestamp() - min(heartbeat_at))::float8 from workers where state = 'active'"
_CANCELLED = """
select
    count(*) filter (where state = 'cancelled') as cancelled,
    max(extract(epoch from finished_at - cancel_requested_at))::float8 as slowest
from executions
where cancel_requested_at is not null
"""
_ALL_CANCELLED = (
    "select count(*) = 0 from executions where cancel_requested_at is not null and state <> 'cancelled'"
)
_OUTCOME = """
select
    -- Held to the end, by the attempt that began; a worker's clock may be behind by a few milliseconds.
    count(*) filter (
        where state = 'succeeded' and attempt = 1 and finished_at > $1::timestamptz - interval '100 ms'
    ) as succeeded,
    max(extract(epoch from started_at - ready_at))::float8 as started_after,
    max(extract(epoch from finished_at - $1::timestamptz))::float8 as ended_after
from executions
where cancel_requested_at is null
"""


@dataclass(frozen=True, slots=True)
class Plan:
    executions: int = 100_000
    workers: int = 2
    cancels: int = 100
    held_seconds: int = 60


QUICK = Plan(executions=300, workers=1, cancels=5, held_seconds=1)


async def measure(ground: Ground, plan: Plan) -> Row:
    title = f"running: {plan.executions:,} executions at once in {plan.workers} workers"
    progress = ground.stage(title)
    settings = settings_for(ground.settings, plan)
    interval = settings.worker.heartbeat.total_seconds()
    async with ground.scratch() as (database, url):
        async with fleet(settings, url, workers=plan.workers) as processes:
            await until_up(database, plan.workers)
            # Before the first slot: what a worker needs that has nothing to do.
            idle = _memory(processes)
            now: datetime = await database.fetchval("select now()")
            instant = now + LEAD + timedelta(seconds=plan.executions / REGISTERED_PER_SECOND)
            await register(database, Load(plan.executions, instant, target={"handler": {"name": WAIT}}))
            before = await ground.read_meters(database, processes)
            async with _ages(database) as ages:
                await _until_running(database, plan.executions, progress)
                await asyncio.sleep(plan.held_seconds / 2)
                held = _memory(processes)
                seen_after = await _cancel(database, url, plan.cancels)
                await asyncio.sleep(plan.held_seconds / 2)
                let_go_at: datetime = await database.fetchval("select clock_timestamp()")
                for pid in processes.pids("worker"):
                    os.kill(pid, LET_GO)
                await until_done(database, plan.executions, progress)
            after = await ground.read_meters(database, processes)
        cancelled = await database.fetchrow(_CANCELLED)
        outcome = await database.fetchrow(_OUTCOME, let_go_at)
    assert cancelled is not None
    assert outcome is not None
    ended = cancelled["cancelled"] + outcome["succeeded"]
    each = (held - idle) / plan.executions
    return Row(
        "running",
        title,
        [
            Check("oldest heartbeat", interval + HEARTBEAT_SECONDS_OVER, max(age for _, age in ages), "s"),
            Check("slowest cancel", CANCEL_SECONDS, cancelled["slowest"] or 0.0, "s"),
            Check("all cancels recorded, after the last", CANCEL_SECONDS, seen_after, "s"),
            Check("memory of each", BYTES_EACH / 1024, each / 1024, "KiB"),
            Check("cancelled, of those asked to", 1.0, cancelled["cancelled"] / plan.cancels, is_floor=True),
            Check("ended as they should, of all", 1.0, ended / plan.executions, is_floor=True),
        ],
        limit=ground.limit,
        cost=before.until(after, plan.executions),
        detail={
            "memory_mb": {"idle": idle / 1024**2, "held": held / 1024**2},
            "last started after its instant_s": outcome["started_after"],
            "last ended after all were let go_s": outcome["ended_after"],
            "settings": {
                "worker.concurrency": settings.worker.concurrency,
                "worker.cancel_grace_s": GRACE.total_seconds(),
                "worker.heartbeat_s": interval,
            },
        },
        series={"age of the oldest heartbeat (s) over time": ages},
    )


def settings_for(settings: Settings, plan: Plan) -> Settings:
    """Places for all of them, evenly over the workers, with a few to spare."""
    share = -(-plan.executions // plan.workers)
    return dataclasses.replace(
        settings,
        worker=dataclasses.replace(settings.worker, concurrency=share + share // 100, cancel_grace=GRACE),
        # Every cancelled attempt would be told.
        log=dataclasses.replace(settings.log, level="error"),
        # The last of the herd is not a miss.
        scheduler=dataclasses.replace(settings.scheduler, late_grace=PATIENCE),
    )


def _memory(processes: Fleet) -> int:
    return sum(memory_of(pid) for pid in processes.pids("worker"))


async def _until_running(database: Database, count: int, progress: Progress) -> None:
    """Wait until all have said, with a heartbeat, that they have started."""
    deadline = time.monotonic() + PATIENCE.total_seconds()
    running = 0
    while running < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{running} of {count} executions were running after {PATIENCE}")
        await asyncio.sleep(0.5)
        running = await database.fetchval(_RUNNING)
        progress(running, 2 * count)


@contextlib.asynccontextmanager
async def _ages(database: Database) -> AsyncIterator[list[tuple[float, float]]]:
    """Sample how long ago the worker that was silent for longest said that it lives: seconds, against seconds."""
    ages: list[tuple[float, float]] = []
    began = time.monotonic()

    async def sample() -> None:
        while True:
            age = await database.fetchval(_AGES)
            if age is not None:
                ages.append((round(time.monotonic() - began, 3), age))
            await asyncio.sleep(SAMPLE_SECONDS)

    task = asyncio.create_task(sample(), name="ages of heartbeats")
    try:
        yield ages
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _cancel(database: Database, url: str, count: int) -> float:
    """Cancel some, one after the other, as the API does: the request is committed, then its worker is told.

    Returns how many seconds after the last request all of them were recorded as cancelled.
    """
    store = PostgresStore(database)
    bus = PostgresBus(database, url, can_listen=False, on_error=lambda *_: None)
    rows = await database.fetch(
        "select tenant_id, job_id, kind, slot from executions where state = 'running' order by job_id limit $1",
        count,
    )
    for row in rows:
        key = ExecutionKey(row["job_id"], Kind(row["kind"]), row["slot"])
        asked_at: datetime = await database.fetchval("select clock_timestamp()")
        touched = await store.cancel_execution(row["tenant_id"], key, asked_at)
        if touched is not None and touched.worker is not None:
            await bus.publish([orders_for(touched.worker)])
    began = time.monotonic()
    while (passed := time.monotonic() - began) < PATIENCE.total_seconds():
        if await database.fetchval(_ALL_CANCELLED):
            break
        await asyncio.sleep(SAMPLE_SECONDS / 5)
    return passed
