"""A steady rate of executions that do nothing, from staged to recorded: the rate must be kept up, and close to the limit."""

from __future__ import annotations

from dataclasses import dataclass

from cronwell.bench.ground import Ground
from cronwell.bench.measure import measure_steady
from cronwell.bench.row import Check, Row

SHARE_OF_LIMIT = 0.65


@dataclass(frozen=True, slots=True)
class Plan:
    rate: int = 16_700
    seconds: int = 600
    warm_up: int = 60
    """So long the jobs are registered before their first slot: by then a look-ahead of slots is staged, as with jobs that were
    there before. What is staged beyond the last slot makes up for it in the cost."""


QUICK = Plan(rate=200, seconds=3, warm_up=0)


async def measure(ground: Ground, plan: Plan) -> Row:
    title = f"steady: {plan.rate:,}/s for {plan.seconds:,} s"
    async with ground.scratch() as (database, url):
        result = await measure_steady(
            ground,
            database,
            url,
            rate=plan.rate,
            seconds=plan.seconds,
            progress=ground.stage(title),
            warm_up=plan.warm_up,
        )
    return Row(
        "steady",
        title,
        [
            Check("executions a second", 0.99 * plan.rate, result.per_second, "/s", is_floor=True),
            Check("share of the limit", SHARE_OF_LIMIT, result.per_second / ground.limit, is_floor=True),
            Check("recorded of those due", 1.0, result.succeeded / result.due, is_floor=True),
        ],
        limit=ground.limit,
        per_second=result.per_second,
        cost=result.cost,
        detail={"lateness_ms": result.lateness_ms},
        series={"throughput over time": result.throughput},
    )
