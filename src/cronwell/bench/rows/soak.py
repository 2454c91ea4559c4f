"""A steady rate for long, beside a transaction that stays open: what it is like after months, in half an hour.

An open snapshot keeps every row version that has died since it was taken, so the tables that change most grow, and what
walks over them slows down, until it goes. Reports and backups do that to every database. Here a snapshot is held and
replaced over and over, and the last minutes must be like the first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg

from cronwell.bench.ground import Ground
from cronwell.bench.measure import Outcome, measure_steady
from cronwell.bench.row import Check, Row
from cronwell.runtime.postgres import Database

WITHIN = 0.1
"""The share by which the last minutes may fall behind the first."""
EQUAL_MS = 2.0
"""Lateness that differs by less counts as equal: a tenth of a few milliseconds is less than the clock of a busy machine."""
INDEXES = "indexes of executions"
GROWTH = {"executions": 5 / 3, INDEXES: 2.0, "cursors": 1.5, "workers": 1.5}
"""How much larger a table may become after the first snapshot went than it was by then.

By then everything that can pile up behind a snapshot has. What piles up behind the second one finds the space of what
vacuum took behind the first: a table of as many rows as before stays as large, and doubles where vacuum gets nowhere. The
executions, of which each leaves a row and two dead versions, come to 4/3 and also to 2. The bounds are half-way between.
Not so their indexes: PostgreSQL gives a page of an index that vacuum has emptied to others only when every transaction is newer
than that, and here the next one never is. They cannot do better than to grow as the rows do, and must not do worse.
A snapshot that is not much older than the pause between two rounds of autovacuum shows nothing of this.
"""
DEAD_GROWTH = 1.5
FEW_DEAD = 1000
SMALL_MIB = 1.0
"""Fewer dead rows and smaller tables than these count as this many: they say nothing."""
_MIB = 1024**2

_SIZES = """
with days as (
    select inhrelid as oid
    from pg_inherits
    where inhparent = 'executions'::regclass
),
hot as (
    select 'executions' as name, oid, pg_table_size(oid) as bytes
    from days
    union all
    select 'indexes of executions', null, pg_indexes_size(oid)
    from days
    union all
    select relname, oid, pg_total_relation_size(oid)
    from pg_class
    where oid in ('cursors'::regclass, 'workers'::regclass)
)
select
    hot.name,
    sum(hot.bytes)::float8 as bytes,
    sum(coalesce(stat.n_dead_tup, 0))::float8 as dead
from hot
left join pg_stat_all_tables as stat on stat.relid = hot.oid
group by hot.name
"""
_BESIDE_THEM = """
select
    now() as at,
    (
        select coalesce(sum(pg_relation_size(inhrelid)), 0)::float8
        from pg_inherits
        where inhparent = 'executions_claimable'::regclass
    ) as claim_index,
    (
        select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::float8
        from pg_stat_activity
        where datname = current_database()
            and backend_xmin is not null
    ) as snapshot
"""
_LATENESS = """
select
    (floor(extract(epoch from ready_at - $1) / $3) * $3)::float8 as second,
    percentile_disc(array[0.5, 0.99]) within group (
        order by extract(epoch from coalesce(started_at, now()) - ready_at)
    )::float8[] as late
from executions
where ready_at >= $1
    and ready_at < $2
group by 1
order by 1
"""
_ENDED = (
    "select count(*) from executions where state = 'succeeded' and finished_at >= $1 and finished_at < $2"
)


@dataclass(frozen=True, slots=True)
class Plan:
    rate: int = 5000
    seconds: int = 1800
    window_seconds: int = 300
    """The length of the first and of the last stretch, which are compared."""
    snapshot_seconds: int = 900
    """The age at which the open transaction is replaced by a new one."""
    sample_seconds: float = 10.0


QUICK = Plan(rate=100, seconds=6, window_seconds=2, snapshot_seconds=3, sample_seconds=0.5)


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of the run."""

    per_second: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Sample:
    """The hot tables at one moment."""

    at: datetime
    mib: dict[str, float]
    """With their indexes, but for executions; the index of what can be claimed also by itself."""
    dead: dict[str, float]
    snapshot: float
    """The age in seconds of the oldest snapshot."""


async def measure(ground: Ground, plan: Plan) -> Row:
    title = (
        f"soak: {plan.rate:,}/s for {plan.seconds:,} s, a transaction open for {plan.snapshot_seconds:,} s"
    )
    async with ground.scratch() as (database, url):
        async with _beside(database, url, plan) as samples:
            result = await measure_steady(
                ground, database, url, rate=plan.rate, seconds=plan.seconds, progress=ground.stage(title)
            )
        length = timedelta(seconds=plan.window_seconds)
        end = result.start + timedelta(seconds=plan.seconds)
        first = await _window(database, result.start, length)
        last = await _window(database, end - length, length)
        late = await _lateness_over_time(database, result.start, end, plan.sample_seconds)
    return Row(
        "soak",
        title,
        checks(plan, result, first, last, samples),
        limit=ground.limit,
        per_second=result.per_second,
        cost=result.cost,
        detail={
            "lateness_ms": result.lateness_ms,
            "first": {"per_second": first.per_second, "p50_ms": first.p50_ms, "p99_ms": first.p99_ms},
            "last": {"per_second": last.per_second, "p50_ms": last.p50_ms, "p99_ms": last.p99_ms},
        },
        series={
            "throughput over time": result.throughput,
            "lateness": result.distribution,
            "lateness: p50 (ms) over time (s)": [(second, p50) for second, p50, _ in late],
            "lateness: p99 (ms) over time (s)": [(second, p99) for second, _, p99 in late],
            **_series(samples, result.start),
        },
    )


def checks(
    plan: Plan, result: Outcome, first: Window, last: Window, samples: Sequence[Sample]
) -> list[Check]:
    """The targets of a soak: the last stretch like the first, and tables that do not grow without end."""
    until = result.start + timedelta(seconds=plan.snapshot_seconds)
    before = [sample for sample in samples if sample.at <= until]
    after = [sample for sample in samples if sample.at > until]

    def growth(figure: Callable[[Sample], float], least: float) -> float:
        early, late = (max(map(figure, each), default=0.0) for each in (before, after))
        return max(late, least) / max(early, least)

    def size(name: str) -> float:
        return growth(lambda sample: sample.mib.get(name, 0.0), SMALL_MIB)

    def dead(name: str) -> float:
        return growth(lambda sample: sample.dead.get(name, 0.0), FEW_DEAD)

    by = f"by {plan.snapshot_seconds:,} s"
    return [
        Check("executions a second", 0.99 * plan.rate, result.per_second, "/s", is_floor=True),
        Check("recorded of those due", 1.0, result.succeeded / result.due, is_floor=True),
        Check("throughput, last to first", 1 - WITHIN, last.per_second / first.per_second, is_floor=True),
        Check("lateness p50, last to first", 1 + WITHIN, _ratio_ms(first.p50_ms, last.p50_ms)),
        Check("lateness p99, last to first", 1 + WITHIN, _ratio_ms(first.p99_ms, last.p99_ms)),
        *(Check(f"{name}, size to that {by}", bound, size(name)) for name, bound in GROWTH.items()),
        *(
            Check(f"{name}, dead rows to those {by}", DEAD_GROWTH, dead(name))
            for name in GROWTH
            if name != INDEXES
        ),
    ]


def _ratio_ms(first: float, last: float) -> float:
    return 1.0 if abs(last - first) < EQUAL_MS else last / max(first, 0.001)


def _series(samples: Sequence[Sample], start: datetime) -> dict[str, list[tuple[float, float]]]:
    """Sizes, dead rows and the age of the snapshot, each over the seconds of the run."""
    series: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for sample in samples:
        second = (sample.at - start).total_seconds()
        if second < 0:
            continue
        for name, mib in sample.mib.items():
            series[f"size: {name} (MiB) over time (s)"].append((second, mib))
        for name, dead in sample.dead.items():
            series[f"dead rows: {name} over time (s)"].append((second, dead))
        series["age of the oldest snapshot (s) over time (s)"].append((second, sample.snapshot))
    return dict(series)


@contextlib.asynccontextmanager
async def _beside(database: Database, url: str, plan: Plan) -> AsyncIterator[list[Sample]]:
    """Hold snapshots and sample the tables for as long as the block lasts. An error of either ends the block."""
    samples: list[Sample] = []
    async with asyncio.TaskGroup() as tasks:
        beside = [
            tasks.create_task(_hold(url, plan.snapshot_seconds), name="open transaction"),
            tasks.create_task(_sample(database, plan.sample_seconds, samples), name="sizes"),
        ]
        yield samples
        for task in beside:
            task.cancel()


async def _hold(url: str, seconds: float) -> None:
    """Keep a snapshot open, and take a new one when it is `seconds` old."""
    connection = await asyncpg.connect(url, server_settings={"idle_in_transaction_session_timeout": "0"})
    try:
        while True:
            async with connection.transaction(isolation="repeatable_read"):
                # The first statement takes the snapshot, and the transaction keeps it.
                await connection.execute("select 1")
                await asyncio.sleep(seconds)
    finally:
        connection.terminate()


async def _sample(database: Database, seconds: float, samples: list[Sample]) -> None:
    while True:
        rows = await database.fetch(_SIZES)
        row = await database.fetchrow(_BESIDE_THEM)
        assert row is not None
        mib = {each["name"]: each["bytes"] / _MIB for each in rows}
        dead = {each["name"]: each["dead"] for each in rows}
        samples.append(
            Sample(row["at"], mib | {"claim index": row["claim_index"] / _MIB}, dead, row["snapshot"])
        )
        await asyncio.sleep(seconds)


async def _window(database: Database, start: datetime, length: timedelta) -> Window:
    """What ended in a stretch of time, and how late what was due in it started."""
    async with database.transaction() as connection:
        await connection.execute("set local statement_timeout = 0")
        ended = await connection.fetchval(_ENDED, start, start + length, timeout=600)
        row = await connection.fetchrow(_LATENESS, start, start + length, length.total_seconds(), timeout=600)
    assert row is not None
    return Window(ended / length.total_seconds(), *(1000 * late for late in row["late"]))


async def _lateness_over_time(
    database: Database, start: datetime, end: datetime, step: float
) -> list[tuple[float, float, float]]:
    """For each stretch of `step` seconds: its second, and the p50 and p99 of lateness in milliseconds."""
    async with database.transaction() as connection:
        await connection.execute("set local statement_timeout = 0")
        rows = await connection.fetch(_LATENESS, start, end, step, timeout=600)
    return [(row["second"], 1000 * row["late"][0], 1000 * row["late"][1]) for row in rows]
