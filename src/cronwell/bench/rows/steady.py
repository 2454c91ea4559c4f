"""A steady rate of executions that do nothing, from staged to recorded: the rate must be kept up, and close to the limit.

On a machine with a high limit a rate that others would be glad of is no great share of it, so there the rate is that share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cronwell.bench.ground import Ground
from cronwell.bench.measure import measure_steady
from cronwell.bench.row import Check, Row

SHARE_OF_LIMIT = 0.65
ROUND = 100


@dataclass(frozen=True, slots=True)
class Plan:
    rate: int = 16_700
    """At the least: more where that is less than `share` of the limit."""
    share: float = SHARE_OF_LIMIT
    seconds: int = 600
    warm_up: int = 60
    """So long the jobs are registered before their first slot: by then a look-ahead of slots is staged, as with jobs that were
    there before. What is staged beyond the last slot makes up for it in the cost."""


QUICK = Plan(rate=200, share=0.0, seconds=3, warm_up=0)


def rate_of(plan: Plan, limit: float) -> int:
    """The rate to run at beside such a limit, in full hundreds where the limit decides."""
    return max(plan.rate, math.ceil(plan.share * limit / (0.99 * ROUND)) * ROUND)


async def measure(ground: Ground, plan: Plan) -> Row:
    rate = rate_of(plan, ground.limit)
    title = f"steady: {rate:,}/s for {plan.seconds:,} s"
    async with ground.scratch() as (database, url):
        result = await measure_steady(
            ground,
            database,
            url,
            rate=rate,
            seconds=plan.seconds,
            progress=ground.stage(title),
            warm_up=plan.warm_up,
        )
    return Row(
        "steady",
        title,
        [
            Check("executions a second", 0.99 * rate, result.per_second, "/s", is_floor=True),
            # Of a rate that leaves the machine half asleep no share is asked.
            *(
                [Check("share of the limit", plan.share, result.per_second / ground.limit, is_floor=True)]
                if plan.share
                else []
            ),
            Check("recorded of those due", 1.0, result.succeeded / result.due, is_floor=True),
        ],
        limit=ground.limit,
        per_second=result.per_second,
        cost=result.cost,
        detail={"lateness_ms": result.lateness_ms},
        series={"throughput over time": result.throughput},
    )
