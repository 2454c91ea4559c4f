"""The measurements: closed-loop throughput, open-loop throughput, and start lateness, read from what the store recorded."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from cronwell.bench.fleet import fleet
from cronwell.bench.load import Load, register
from cronwell.config import Settings
from cronwell.runtime.postgres import Database

LEAD = timedelta(seconds=4)
"""From registering to the first slot: time to write the jobs and to stage them."""
PATIENCE = timedelta(minutes=10)

Progress = Callable[[int, int], None]

_DONE = "select count(*) from executions where state in ('succeeded', 'failed', 'skipped', 'cancelled')"
_LATENESS = """
select
    count(*) filter (where state = 'succeeded') as succeeded,
    count(*) filter (where state in ('succeeded', 'failed', 'cancelled', 'skipped')) as ended,
    count(*) filter (where started_at is not null) as started,
    extract(epoch from max(finished_at) - min(ready_at))::float8 as span,
    percentile_disc(array[0.5, 0.99, 0.999, 1]) within group (
        order by extract(epoch from started_at - ready_at)
    )::float8[] as lateness
from executions
where ready_at >= $1
    and ready_at < $2
"""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Executions per second from the first start to the last record."""

    executions: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.executions / self.seconds


@dataclass(frozen=True, slots=True)
class Steady:
    """What came of a steady rate of slots. Lateness in seconds, over every slot that was due."""

    due: int
    succeeded: int
    seconds: float
    p50: float
    p99: float
    p999: float
    highest: float

    @property
    def per_second(self) -> float:
        return self.succeeded / self.seconds


async def measure_closed(
    database: Database, url: str, settings: Settings, *, count: int, workers: int, progress: Progress
) -> Throughput:
    """Push `count` one-off jobs, all due at once, from registered to recorded, as fast as they go."""
    patient = dataclasses.replace(
        settings.scheduler, late_grace=PATIENCE
    )  # the last of the herd is not a miss
    async with fleet(dataclasses.replace(settings, scheduler=patient), url, schedulers=1, workers=workers):
        await _until_up(database, workers)
        due: datetime = await database.fetchval("select now() + interval '1 hour'")
        await register(database, Load(count, due, spread=timedelta(milliseconds=1)))
        # From here on everything is due: the clock of the measurement starts with this commit.
        began: datetime = await database.fetchval(
            "with due as (update cursors set next_slot = now()) select now()"
        )
        await _until_done(database, count, progress)
        span: float = await database.fetchval(
            "select extract(epoch from max(finished_at) - $1)::float8 from executions", began
        )
    return Throughput(count, span)


async def measure_steady(
    database: Database,
    url: str,
    settings: Settings,
    *,
    rate: int,
    seconds: int,
    workers: int,
    progress: Progress,
) -> Steady:
    """Run `rate` slots a second, spread evenly, open loop: what is late does not hold up what comes after."""
    async with fleet(settings, url, schedulers=1, workers=workers):
        await _until_up(database, workers)
        now: datetime = await database.fetchval("select now()")
        start = (now + LEAD + timedelta(seconds=rate / 4000)).replace(microsecond=0)
        second = timedelta(seconds=1)
        await register(database, Load(rate, start, spread=second, every=second))
        due = rate * seconds
        end = start + timedelta(seconds=seconds)
        await _until_time(database, end, due, progress)
        await _until_started(database, start, end, due)
        row = await database.fetchrow(_LATENESS, start, end)
    assert row is not None
    p50, p99, p999, highest = row["lateness"]
    return Steady(due, row["succeeded"], row["span"], p50, p99, p999, highest)


async def _until_up(database: Database, workers: int) -> None:
    """Wait until the workers have entered and the scheduler has its shards."""
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while time.monotonic() < deadline:
        entered = await database.fetchval("select count(*) from workers where state = 'active'")
        owned = await database.fetchval("select count(*) from shards where owner is not null")
        if entered >= workers and owned:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError("the processes under measurement did not start")


async def _until_done(database: Database, count: int, progress: Progress) -> None:
    deadline = time.monotonic() + PATIENCE.total_seconds()
    done = 0
    while done < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{done} of {count} executions were done after {PATIENCE}")
        await asyncio.sleep(0.5)
        done = await database.fetchval(_DONE)
        progress(done, count)


async def _until_time(database: Database, end: datetime, due: int, progress: Progress) -> None:
    total = (end - await database.fetchval("select now()")).total_seconds()
    began = time.monotonic()
    while (passed := time.monotonic() - began) < total:
        progress(round(due * passed / total), due)
        await asyncio.sleep(0.5)
    progress(due, due)


async def _until_started(database: Database, start: datetime, end: datetime, due: int) -> None:
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while time.monotonic() < deadline:
        row = await database.fetchrow(_LATENESS, start, end)
        if row is not None and row["ended"] >= due:
            return
        await asyncio.sleep(0.5)
