"""How late attempts start at a moderate rate: what users of a machine that is not full see."""

from __future__ import annotations

from dataclasses import dataclass

from cronwell.bench.ground import Ground
from cronwell.bench.measure import measure_steady
from cronwell.bench.row import Check, Row

TARGETS_MS = {"p50": 5.0, "p99": 50.0, "max": 250.0}


@dataclass(frozen=True, slots=True)
class Plan:
    rate: int = 1000
    seconds: int = 120


QUICK = Plan(rate=50, seconds=3)


async def measure(ground: Ground, plan: Plan) -> Row:
    title = f"lateness: {plan.rate:,}/s for {plan.seconds:,} s"
    async with ground.scratch() as (database, url):
        result = await measure_steady(
            ground, database, url, rate=plan.rate, seconds=plan.seconds, progress=ground.stage(title)
        )
    return Row(
        "lateness",
        title,
        [Check(name, target, result.lateness_ms[name], "ms") for name, target in TARGETS_MS.items()],
        limit=ground.limit,
        per_second=result.per_second,
        cost=result.cost,
        detail={"lateness_ms": result.lateness_ms},
        series={"lateness": result.distribution},
    )
