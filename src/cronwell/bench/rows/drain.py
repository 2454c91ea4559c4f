"""Executions that do nothing and are all due at once, as fast as they go: the rate that a backlog is worked off at."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from cronwell.bench.ground import Ground
from cronwell.bench.measure import PATIENCE, Outcome, measure_drain
from cronwell.bench.row import Check, Row

SHARE_OF_LIMIT = 0.65


@dataclass(frozen=True, slots=True)
class Plan:
    executions: int = 200_000


QUICK = Plan(executions=400)


async def measure(ground: Ground, plan: Plan) -> Row:
    title = f"drain: {plan.executions:,} executions due at once"
    result = await drain(ground, plan.executions, title)
    return Row(
        "drain",
        title,
        [Check("share of the limit", SHARE_OF_LIMIT, result.per_second / ground.limit, is_floor=True)],
        limit=ground.limit,
        per_second=result.per_second,
        cost=result.cost,
        series={"throughput over time": result.throughput},
    )


async def drain(ground: Ground, count: int, title: str) -> Outcome:
    """Work off so many on a database of their own. The last of them is not a miss."""
    patient = dataclasses.replace(ground.settings.scheduler, late_grace=PATIENCE)
    ground = dataclasses.replace(ground, settings=dataclasses.replace(ground.settings, scheduler=patient))
    async with ground.scratch() as (database, url):
        return await measure_drain(ground, database, url, count=count, progress=ground.stage(title))
