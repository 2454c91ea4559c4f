"""A herd: many jobs on one instant, among many more that are not due, and a tenant beside it that has one job a second.

The herd is staged in the minute before its instant, as any herd is, so what counts from the instant on is how soon the first
attempt starts, how soon the last does, and what the other tenant notices.

How soon the last may start goes by the rate that this machine has. There are two honest ones, and the faster of them is
taken: that of a drain of as many executions in an empty database, which knows nothing of the herd and so shows up a herd that
is slow because of the jobs around it; and that of the herd's own middle, from the first quarter of its starts to the last,
which shows up a slow beginning and a long end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cronwell.bench.cost import Cost
from cronwell.bench.fleet import fleet
from cronwell.bench.ground import Ground
from cronwell.bench.load import TENANT, Load, register
from cronwell.bench.measure import CURVE, NAMES, PATIENCE, SHARES, until_ended, until_time, until_up
from cronwell.bench.row import Check, Row
from cronwell.bench.rows.drain import drain
from cronwell.runtime.postgres import Database

FIRST_MS = 20.0
GRACE = 1.0
"""Seconds that the last start may take beyond what the rate allows for."""
OTHER_P99_MS = 250.0
OTHER_TENANT = 2

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
_INSTANT = timedelta(microseconds=1)

# By slot, not by when it was made ready: what is staged too late to be on time is still of the herd.
_STARTS = """
select
    count(*) filter (where state = 'succeeded') as succeeded,
    percentile_disc($3::float8[]) within group (order by extract(epoch from started_at - slot))::float8[] as lateness
from executions
where tenant_id = $1
    and slot = $2
"""
_COUNT = "select count(*), max(started_at) from executions where tenant_id = $1 and slot = $2"
_OTHERS = """
select
    extract(epoch from slot - $2)::float8 as second,
    1000 * extract(epoch from coalesce(started_at, now()) - slot)::float8 as late
from executions
where tenant_id = $1
    and slot >= $2
    and slot <= $3
order by 1
"""
_PER_TENTH = """
select (floor(extract(epoch from started_at - $2) * 10) / 10)::float8 as tenth, 10 * count(*)::float8 as per_second
from executions
where tenant_id = $1
    and slot = $2
    and started_at is not null
group by 1
order by 1
"""


@dataclass(frozen=True, slots=True)
class Plan:
    registered: int = 1_000_000
    """Jobs in all."""
    herd: int = 100_000
    lead_seconds: int = 75
    """From when the herd is registered to its instant: longer than the look-ahead, so that staging is in the cost and is
    as calm as it ever is."""


QUICK = Plan(registered=2000, herd=400, lead_seconds=4)


@dataclass(frozen=True, slots=True)
class Stampede:
    """What came of a herd, from its instant."""

    herd: int
    succeeded: int
    lateness: Sequence[float]
    """In seconds, of the herd's starts, at each share of CURVE."""
    first: float
    others: Sequence[tuple[float, float]]
    """The other tenant's slots from the instant to the last start: the second, and how many milliseconds late."""

    @property
    def last(self) -> float:
        return self.lateness[-1]

    @property
    def middle_per_second(self) -> float:
        """The rate at which the second and third quarter of the herd started."""
        at = dict(zip(CURVE, self.lateness, strict=True))
        return self.herd / 2 / max(at[0.75] - at[0.25], 0.001)

    @property
    def other_p99_ms(self) -> float:
        """With the few slots that a herd takes, the latest."""
        late = sorted(late for _, late in self.others)
        return late[-(-99 * len(late) // 100) - 1]


async def measure(ground: Ground, plan: Plan) -> Row:
    title = f"herd: {plan.herd:,} of {plan.registered:,} jobs on one instant"
    rate = (await drain(ground, plan.herd, f"herd: a drain of {plan.herd:,} to go by")).per_second
    async with ground.scratch() as (database, url):
        found, cost, per_tenth = await _stampede(ground, plan, database, url, title)
    late = dict(zip(CURVE, found.lateness, strict=True))
    return Row(
        "herd",
        title,
        checks(found, rate),
        limit=ground.limit,
        per_second=found.succeeded / found.last,
        cost=cost,
        detail={
            "lateness_ms": {
                name: round(1000 * late[share], 3) for name, share in zip(NAMES, SHARES, strict=True)
            },
            "drain_per_second": rate,
            "middle_per_second": found.middle_per_second,
            "other_slots": len(found.others),
        },
        series={
            "throughput over time": per_tenth,
            "lateness: the herd": [(1000 * at, share) for share, at in late.items()],
            "lateness: the other tenant (ms) over time (s)": found.others,
        },
    )


def checks(found: Stampede, drain_per_second: float) -> list[Check]:
    """The targets of a herd on a machine that drains so many a second."""
    rate = max(drain_per_second, found.middle_per_second)
    return [
        Check("first start after the instant", FIRST_MS, 1000 * found.first, "ms"),
        Check("last start after the instant", found.herd / rate + GRACE, found.last, "s"),
        Check("recorded of the herd", 1.0, found.succeeded / found.herd, is_floor=True),
        Check("p99 of another tenant's one a second", OTHER_P99_MS, found.other_p99_ms, "ms"),
    ]


async def _stampede(
    ground: Ground, plan: Plan, database: Database, url: str, title: str
) -> tuple[Stampede, Cost, list[tuple[float, float]]]:
    progress = ground.stage(title)
    await database.execute(
        "insert into tenants (id, name, signing_secret) values ($1, 'beside', 'whsec_beside')", OTHER_TENANT
    )
    now: datetime = await database.fetchval("select now()")
    crowd = plan.registered - plan.herd - 1
    await register(database, Load(crowd, now + _DAY, spread=_DAY, every=_DAY, name="crowd"))
    async with fleet(ground.settings, url, workers=ground.workers) as processes:
        await until_up(database, ground.workers)
        now = await database.fetchval("select now()")
        instant = (now + timedelta(seconds=plan.lead_seconds)).replace(microsecond=0)
        await register(database, Load(plan.herd, instant, every=_DAY, name="herd"))
        await register(
            database, Load(1, instant - 2 * _SECOND, every=_SECOND, tenant_id=OTHER_TENANT, name="beside")
        )
        before = await ground.read_meters(database, processes)
        await until_time(database, instant, plan.herd, progress)
        end = await _until_all_ended(database, instant, plan.herd)
        after = await ground.read_meters(database, processes)
    found, per_tenth = await _read(database, instant, end, plan.herd)
    return found, before.until(after, found.succeeded + len(found.others)), per_tenth


async def _until_all_ended(database: Database, instant: datetime, herd: int) -> datetime:
    """Wait for the whole herd, and for what else was due until its last start, which is returned.

    It is counted only when nothing of it seems left, so that the counting does not slow it down.
    """
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while time.monotonic() < deadline:
        await until_ended(database, instant, instant + _INSTANT)
        row = await database.fetchrow(_COUNT, TENANT, instant)
        assert row is not None
        if row["count"] >= herd and row["max"] is not None:
            last: datetime = row["max"]
            await until_ended(database, instant, last + _INSTANT)
            return last
        await asyncio.sleep(0.5)
    raise TimeoutError(f"not all of the {herd} executions were done after {PATIENCE}")


async def _read(
    database: Database, instant: datetime, end: datetime, herd: int
) -> tuple[Stampede, list[tuple[float, float]]]:
    async with database.transaction() as connection:
        await connection.execute("set local statement_timeout = 0")
        row = await connection.fetchrow(_STARTS, TENANT, instant, [0.0, *CURVE], timeout=600)
        others = await connection.fetch(_OTHERS, OTHER_TENANT, instant, end)
        per_tenth = await connection.fetch(_PER_TENTH, TENANT, instant, timeout=600)
    assert row is not None
    first, *lateness = row["lateness"]
    found = Stampede(
        herd, row["succeeded"], lateness, first, [(each["second"], each["late"]) for each in others]
    )
    return found, [(each["tenth"], each["per_second"]) for each in per_tenth]
