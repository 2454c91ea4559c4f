"""Running a load and reading what the store recorded of it: by then nothing can be left out of the figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cronwell.bench.cost import Cost
from cronwell.bench.fleet import fleet
from cronwell.bench.ground import Ground, Progress
from cronwell.bench.load import Load, register
from cronwell.runtime.postgres import Database

LEAD = timedelta(seconds=4)
"""From registering to the first slot: time to write the jobs and to stage them."""
PATIENCE = timedelta(minutes=10)
SHARES = (0.5, 0.99, 0.999, 1.0)
NAMES = ("p50", "p99", "p99.9", "max")
CURVE = (*(step / 100 for step in range(1, 100)), 0.995, 0.999, 0.9995, 0.9999, 1.0)

_ENDED = "('succeeded', 'failed', 'skipped', 'cancelled')"
_DONE = f"select count(*) from executions where state in {_ENDED}"  # noqa: S608  # a constant
_IS_BUSY = (
    "select exists (select from executions where state in ('pending', 'retrying'))"
    " or exists (select from executions where state = 'running')"
)
COUNTED_EVERY = 8
"""Looks between two counts of what has ended. A count reads all executions, which is work that nobody asked the machine for."""
_OUTCOME = """
select
    count(*) filter (where state = 'succeeded') as succeeded,
    extract(epoch from max(finished_at) - coalesce($4, min(ready_at)))::float8 as span,
    percentile_disc($3::float8[]) within group (
        order by extract(epoch from started_at - ready_at)
    )::float8[] as lateness
from executions
where ready_at >= $1
    and ready_at < $2
"""
_PER_SECOND = """
select extract(epoch from date_trunc('second', finished_at) - $1)::float8 as second, count(*)::float8 as ended
from executions
where finished_at >= $1
group by 1
order by 1
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a load. Lateness is that of every slot that was due."""

    start: datetime
    """The instant from which it was due."""
    due: int
    succeeded: int
    seconds: float
    """From the first slot, or from when it could be known, to the last record."""
    lateness: Sequence[float]
    """In seconds, at each share of CURVE."""
    throughput: Sequence[tuple[float, float]]
    """Executions that ended in each second."""
    cost: Cost

    @property
    def per_second(self) -> float:
        return self.succeeded / self.seconds

    @property
    def lateness_ms(self) -> dict[str, float]:
        at = dict(zip(CURVE, self.lateness, strict=True))
        return {name: round(1000 * at[share], 3) for name, share in zip(NAMES, SHARES, strict=True)}

    @property
    def distribution(self) -> list[tuple[float, float]]:
        """The share of attempts that started within so many milliseconds."""
        return [(round(1000 * late, 3), share) for share, late in zip(CURVE, self.lateness, strict=True)]


async def measure_drain(
    ground: Ground, database: Database, url: str, *, count: int, progress: Progress
) -> Outcome:
    """Push `count` one-off jobs, all due at once, from registered to recorded, as fast as they go."""
    async with fleet(ground.settings, url, workers=ground.workers) as processes:
        await until_up(database, ground.workers)
        due: datetime = await database.fetchval("select now() + interval '1 hour'")
        await register(database, Load(count, due, spread=timedelta(milliseconds=1)))
        before = await ground.read_meters(database, processes)
        due = await database.fetchval("with due as (update cursors set next_slot = now()) select now()")
        # From that commit on everything is due. It takes a second or two to get there, in which nobody could begin.
        began: datetime = await database.fetchval("select clock_timestamp()")
        await until_done(database, count, progress)
        after = await ground.read_meters(database, processes)
    cost = before.until(after, count)
    return await outcome(database, due, due + timedelta(days=1), count, cost, began=began)


async def measure_steady(
    ground: Ground,
    database: Database,
    url: str,
    *,
    rate: int,
    seconds: int,
    progress: Progress,
    warm_up: int = 0,
) -> Outcome:
    """Run `rate` slots a second, spread evenly, open loop: what is late does not hold up what comes after.

    The first is due `warm_up` seconds after the jobs were registered. Without it the scheduler stages its whole look-ahead
    while the first seconds run.
    """
    due = rate * seconds
    async with fleet(ground.settings, url, workers=ground.workers) as processes:
        await until_up(database, ground.workers)
        now: datetime = await database.fetchval("select now()")
        start = (now + LEAD + timedelta(seconds=warm_up + rate / 4000)).replace(microsecond=0)
        second = timedelta(seconds=1)
        end = start + timedelta(seconds=seconds)
        await register(database, Load(rate, start, spread=second, every=second))
        before = await ground.read_meters(database, processes)
        await until_time(database, end, due, progress)
        await until_ended(database, start, end)
        after = await ground.read_meters(database, processes)
    return await outcome(database, start, end, due, before.until(after, due))


async def outcome(
    database: Database, start: datetime, end: datetime, due: int, cost: Cost, *, began: datetime | None = None
) -> Outcome:
    """What is recorded of the slots from `start` to before `end`; `began` where the clock runs from another moment than the
    first slot's."""
    async with database.transaction() as connection:
        await connection.execute("set local statement_timeout = 0")
        row = await connection.fetchrow(_OUTCOME, start, end, list(CURVE), began, timeout=600)
        per_second = await connection.fetch(_PER_SECOND, start, timeout=600)
    assert row is not None
    throughput = [(each["second"], each["ended"]) for each in per_second]
    return Outcome(start, due, row["succeeded"], row["span"], row["lateness"], throughput, cost)


async def until_up(database: Database, workers: int) -> None:
    """Wait until the workers have entered and the scheduler has its shards."""
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while time.monotonic() < deadline:
        entered = await database.fetchval("select count(*) from workers where state = 'active'")
        owned = await database.fetchval("select count(*) from shards where owner is not null")
        if entered >= workers and owned:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError("the processes under measurement did not start")


async def until_done(database: Database, count: int, progress: Progress) -> None:
    """Wait until so many executions have ended."""
    deadline = time.monotonic() + PATIENCE.total_seconds()
    done = looks = 0
    while done < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{done} of {count} executions were done after {PATIENCE}")
        await asyncio.sleep(0.5)
        looks += 1
        if looks % COUNTED_EVERY == 0 or not await database.fetchval(_IS_BUSY):
            done = await database.fetchval(_DONE)
            progress(done, count)


async def until_time(database: Database, end: datetime, due: int, progress: Progress) -> None:
    """Wait for a moment on the database's clock."""
    total = (end - await database.fetchval("select now()")).total_seconds()
    began = time.monotonic()
    while (passed := time.monotonic() - began) < total:
        progress(round(due * passed / total), due)
        await asyncio.sleep(0.5)
    progress(due, due)


async def until_ended(database: Database, start: datetime, end: datetime) -> None:
    """Wait until every slot from `start` to before `end` has ended; without reading more than those that have not."""
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while time.monotonic() < deadline:
        left = await database.fetchval(
            "select exists (select from executions where state in ('pending', 'retrying')"
            " and ready_at >= $1 and ready_at < $2)"
            " or exists (select from executions where state = 'running' and ready_at >= $1 and ready_at < $2)",
            start,
            end,
        )
        if not left:
            return
        await asyncio.sleep(0.5)
