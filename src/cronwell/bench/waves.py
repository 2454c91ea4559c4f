"""What staging costs: a wave of slots comes within the look-ahead of a scheduler that is alone on the database.

Counted is what the scheduler and PostgreSQL (where it is our own) spend, less what they spend in the seconds before, when
no slot comes: a scheduler walks through its jobs all the time to see that none is lost. Waking leaves behind what a job that was
last staged long ago does not have: versions that nobody sees any more, rows that nobody has read since. So jobs are vacuumed
before. Every wave begins just behind a checkpoint and ends with one, so that it pays for both sides of it: each page that it changes is written whole into the log
the first time, and out to its table at the end. `cursors` is not vacuumed meanwhile, which would count against the smallest
number of jobs alone.

How many slots share a page between two checkpoints decides what they pay, and a wave is shorter than that time. So jobs are
woken in two ways:

- from a stretch of the table that is to the wave what the whole table is to the time between two checkpoints: by the end of
  it as many slots have fallen on each page, and the cost of one is what it is on average;
- from all over the table: what it is in the first minute, which of many jobs is the dearest.

The same wave can take half as much processor time again when the machine, or the one that it is a part of, has other work.
That never takes any away. So a wave is repeated, and the least counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from cronwell.bench.cost import TICK, Reading, machine_seconds, memory_of
from cronwell.bench.fleet import Fleet, fleet, free_ports
from cronwell.bench.ground import Ground
from cronwell.bench.measure import PATIENCE
from cronwell.bench.sleepers import Woken, checkpoint, tidy
from cronwell.bench.web import calling, until_ready
from cronwell.config import Settings
from cronwell.model.shards import SHARDS
from cronwell.runtime.postgres import Database

_STAGED = "select count(*) from executions where slot >= $1 and slot < $2"
# What was staged to be counted is not to be run when workers come.
_TAKE_BACK = "update executions set state = 'cancelled', finished_at = now() where state = 'pending'"
_WALKED = 'cronwell_chores_done_total{chore="rezoning"}'
_BETWEEN_CHECKPOINTS = "select extract(epoch from current_setting('checkpoint_timeout')::interval)::float8"


@dataclass(frozen=True, slots=True)
class Wave:
    rate: int
    """Slots a second."""
    seconds: int
    idle_seconds: int

    @property
    def count(self) -> int:
        return self.rate * self.seconds


@dataclass(frozen=True, slots=True)
class Staged:
    """What staging a wave cost."""

    cpu_us: float
    """CPU microseconds per slot, of the scheduler and PostgreSQL, less what they spend when no slot comes."""
    gross_cpu_us: dict[str, float]
    wall_us: float
    """From the beginning of a batch to its commit, per slot of it."""
    wal_bytes: float
    idle_cpu: float
    """CPU seconds in a second without slots."""
    idle_us: float
    """The same for as long as the wave took, per slot."""
    memory_mb: float
    others_cpu: float
    """Cores that everything else on the machine was at work on meanwhile: with many, the figures are not worth much."""


@dataclass(frozen=True, slots=True)
class Meters:
    """Where everything stands that staging is judged by."""

    at: float
    machine: float
    """Processor seconds of all that runs."""
    reading: Reading
    stage_seconds: float
    slots: float


def stretch_of(jobs: int, wave: Wave, between_checkpoints: float) -> range:
    """The jobs in the middle that are to a wave what all are to the seconds between two checkpoints.

    No fewer than the wave has slots, since each of its jobs has one.
    """
    share = min(1.0, wave.seconds / between_checkpoints)
    size = min(jobs, max(round(jobs * share), wave.count))
    start = (jobs - size) // 2
    return range(start, start + size)


async def between_checkpoints(database: Database) -> float:
    """Seconds; where the log does not fill up earlier."""
    seconds: float = await database.fetchval(_BETWEEN_CHECKPOINTS)
    return seconds


@dataclass(frozen=True, slots=True)
class Place:
    """Where waves are staged: a database, and the one scheduler on it."""

    ground: Ground
    database: Database
    url: str
    jobs: int
    settings: Settings
    processes: Fleet


@contextlib.asynccontextmanager
async def scheduling(ground: Ground, database: Database, url: str, jobs: int) -> AsyncIterator[Place]:
    """A scheduler that has come to rest: what it does but once in an hour, at its start too, is done."""
    progress = ground.stage("scale: a scheduler starts")
    settings = dataclasses.replace(ground.settings, ops_port=free_ports(ground.settings.host))
    async with fleet(settings, url, workers=0) as processes:
        await until_ready(settings.host, settings.ops_port)
        for name, wanted in (("cronwell_shards_held", SHARDS), (_WALKED, 1)):
            await until_counted(partial(_metric_now, settings, name), wanted, name, progress)
        yield Place(ground, database, url, jobs, settings, processes)


async def stage_wave(place: Place, wave: Wave, chosen: list[UUID], what: str) -> Staged:
    """Let jobs come due, see what staging them costs, and take back what was staged."""
    database, url = place.database, place.url
    progress = place.ground.stage(f"scale: stage {len(chosen):,} slots {what}")
    look_ahead = place.settings.scheduler.look_ahead
    second = timedelta(seconds=1)
    await database.execute("alter table cursors set (autovacuum_enabled = off)")
    # For waking them and for vacuuming, which goes through the indexes of all.
    lead = timedelta(seconds=2 + len(chosen) / 4000 + place.jobs / 200_000)
    idle = timedelta(seconds=wave.idle_seconds)
    while True:
        now: datetime = await database.fetchval("select now()")
        start = (now + lead + idle + look_ahead).replace(microsecond=0) + second
        woken = Woken(start, wave.rate, wave.seconds)
        await woken.wake(database, chosen)
        await tidy(url)
        begin = woken.start - look_ahead - second
        if await database.fetchval("select now()") + idle <= begin:
            break
        # It took longer than was thought: once more, with more time.
        lead *= 2
    await _sleep_until(database, begin - idle)
    # From here to `begin` nothing comes within the look-ahead.
    idle_from = await _read(place)
    await _sleep_until(database, begin)
    before = await _read(place)
    await _sleep_until(database, begin + wave.seconds * second)
    end = woken.start + wave.seconds * second
    await until_counted(lambda: database.fetchval(_STAGED, woken.start, end), woken.count, "staged", progress)
    await checkpoint(url)
    after = await _read(place)
    memory = max(memory_of(pid) for pid in place.processes.pids("scheduler"))
    await database.execute("alter table cursors reset (autovacuum_enabled)")
    await database.execute(_TAKE_BACK)
    return staged_of(idle_from, before, after, memory)


def staged_of(idle_from: Meters, before: Meters, after: Meters, memory: int) -> Staged:
    """What the slots staged between two readings cost, less what the time before cost."""
    slots = max(after.slots - before.slots, 1)
    cost = before.reading.until(after.reading, round(slots))
    idle = idle_from.reading.until(before.reading, 1000)
    idle_cpu = sum(idle.cpu_seconds.values()) / max(before.at - idle_from.at, 1e-9)
    gross = {who: 1000 * seconds for who, seconds in cost.cpu_seconds.items()}
    span = max(after.at - before.at, 1e-9)
    idle_us = 1e6 * idle_cpu * span / slots
    ours = sum(cost.cpu_seconds.values()) * slots / 1000
    return Staged(
        # The meters cannot tell less than a tick.
        cpu_us=max(sum(gross.values()) - idle_us, 1e6 * TICK / slots),
        gross_cpu_us=gross,
        wall_us=1e6 * (after.stage_seconds - before.stage_seconds) / slots,
        wal_bytes=cost.wal_bytes / 1000,
        idle_cpu=idle_cpu,
        idle_us=idle_us,
        memory_mb=memory / 1e6,
        others_cpu=max(after.machine - before.machine - ours, 0.0) / span,
    )


def least_of(waves: Sequence[Staged]) -> Staged:
    """The wave that cost least, less the least that idling cost in any of them: what disturbs either only adds to it."""
    least = min(waves, key=lambda wave: sum(wave.gross_cpu_us.values()))
    idle_us = min(wave.idle_us for wave in waves)
    return dataclasses.replace(
        least,
        cpu_us=max(sum(least.gross_cpu_us.values()) - idle_us, least.cpu_us),
        wall_us=min(wave.wall_us for wave in waves),
        memory_mb=max(wave.memory_mb for wave in waves),
    )


async def _read(place: Place) -> Meters:
    text = await _metrics(place.settings)
    return Meters(
        time.perf_counter(),
        machine_seconds(),
        await place.ground.read_meters(place.database, place.processes),
        metric(text, "cronwell_stage_seconds_sum"),
        metric(text, 'cronwell_slots_staged_total{verdict="staged"}'),
    )


async def _metric_now(settings: Settings, name: str) -> int:
    return round(metric(await _metrics(settings), name))


async def _metrics(settings: Settings) -> str:
    async with calling(settings.host, settings.ops_port, connections=1) as scheduler:
        return (await scheduler.call("GET", "/metrics")).decode()


def metric(text: str, name: str) -> float:
    """One value of an exposition of metrics; 0 where nothing was counted yet."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


async def _sleep_until(database: Database, at: datetime) -> None:
    wait: timedelta = at - await database.fetchval("select now()")
    await asyncio.sleep(max(wait.total_seconds(), 0))


async def until_counted(
    count: Callable[[], Awaitable[int]], wanted: int, what: str, progress: Callable[[int, int], None]
) -> None:
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while (found := await count()) < wanted:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{found} of {wanted} were {what} after {PATIENCE}")
        progress(found, wanted)
        await asyncio.sleep(0.2)
    progress(wanted, wanted)
