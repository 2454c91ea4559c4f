"""Creating jobs over HTTP: many at once as NDJSON, and one by one at a steady rate.

Nothing is stored past the API. The jobs are daily ones at each minute of the day, so they share 1,440 schedules, with an
http target, a payload and a tag. One worker serves their pool, as somewhere one does. The client is this process: on a
machine that is full its own work counts against the figure.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from cronwell import errors
from cronwell.bench.cost import Cost, Reading
from cronwell.bench.fleet import Fleet, fleet, free_ports
from cronwell.bench.ground import Ground, Progress
from cronwell.bench.row import Check, Row
from cronwell.bench.web import Api, calling, in_ms, open_loop
from cronwell.runtime.postgres import Database

BULK_PER_SECOND = 25_000
SINGLE_P99_MS = 20.0
WARM_UP = 50

_CREATED = b'"status":"created"'


@dataclass(frozen=True, slots=True)
class Plan:
    jobs: int = 200_000
    lines: int = 5_000
    """Jobs in one batch: the API inserts a thousand at a time, so more saves nothing but requests."""
    connections: int = 4
    """Batches under way at once: while one waits for its commit another is judged."""
    rate: int = 500
    seconds: int = 30


QUICK = Plan(jobs=400, lines=100, connections=2, rate=20, seconds=1)


@dataclass(frozen=True, slots=True)
class Found:
    """What so many API processes did."""

    bulk_per_second: float
    cost: Cost
    single_ms: dict[str, float]
    single_cost: Cost

    def as_dict(self) -> dict[str, Any]:
        return {
            "bulk_per_second": round(self.bulk_per_second, 1),
            "bulk_cost_per_1000_jobs": self.cost.as_dict(),
            "single_ms": self.single_ms,
            "single_cost_per_1000_jobs": self.single_cost.as_dict(),
        }


async def measure(ground: Ground, plan: Plan) -> Row:
    title = f"create: {plan.jobs:,} jobs in batches, then {plan.rate:,}/s one by one for {plan.seconds:,} s"
    one = await _measure(ground, plan, apis=1, progress=ground.stage(title))
    two = await _measure(ground, plan, apis=2, progress=ground.stage("create: with two API processes"))
    return Row(
        "create",
        title,
        [
            Check("bulk, jobs a second", BULK_PER_SECOND, one.bulk_per_second, "/s", is_floor=True),
            Check("one by one, p99", SINGLE_P99_MS, one.single_ms["p99"], "ms"),
        ],
        limit=ground.limit,
        per_second=one.bulk_per_second,
        cost=one.cost,
        detail={"one_api": one.as_dict(), "two_apis": two.as_dict()},
    )


async def _measure(ground: Ground, plan: Plan, *, apis: int, progress: Progress) -> Found:
    settings = dataclasses.replace(ground.settings, port=free_ports(ground.settings.host, apis))
    async with (
        ground.scratch() as (database, url),
        fleet(settings, url, schedulers=0, workers=1, apis=apis) as processes,
        calling(settings.host, settings.port, apis=apis, connections=plan.connections) as bulk,
        calling(settings.host, settings.port, apis=apis, connections=0) as single,
    ):
        await bulk.send_lines("/v1/jobs:batch", b"".join(lines_of("warm", range(plan.lines))))
        bodies = [
            b"".join(lines_of("bulk", range(start, min(start + plan.lines, plan.jobs))))
            for start in range(0, plan.jobs, plan.lines)
        ]
        meters = _Meters(ground, database, processes)
        await meters.begin()
        took = await _send_all(bulk, bodies, plan, progress)
        cost = await meters.end(plan.jobs)

        async def create(number: int) -> None:
            await single.call("POST", "/v1/jobs", status=201, body=job_of("single", number))

        for number in range(WARM_UP):
            await single.call("POST", "/v1/jobs", status=201, body=job_of("alone", number))
        await meters.begin()
        single_took = await open_loop(create, rate=plan.rate, count=plan.rate * plan.seconds)
        single_cost = await meters.end(len(single_took))
    return Found(plan.jobs / took, cost, in_ms(single_took), single_cost)


class _Meters:
    """What a part of the run has cost, the client's own work included."""

    def __init__(self, ground: Ground, database: Database, processes: Fleet) -> None:
        self._ground = ground
        self._database = database
        self._processes = processes

    async def begin(self) -> None:
        self._before, self._own = await self._read(), time.process_time()

    async def end(self, jobs: int) -> Cost:
        own = time.process_time() - self._own
        cost = self._before.until(await self._read(), jobs)
        cost.cpu_seconds["client"] = round(own / jobs * 1000, 4)
        return cost

    async def _read(self) -> Reading:
        return await self._ground.read_meters(self._database, self._processes)


async def _send_all(api: Api, bodies: list[bytes], plan: Plan, progress: Progress) -> float:
    """Send the batches, a few at a time, as fast as they are answered; the seconds that it took."""
    left = iter(bodies)
    created = 0

    async def send() -> None:
        nonlocal created
        for body in left:
            answer = await api.send_lines("/v1/jobs:batch", body)
            created += answer.count(_CREATED)
            progress(created, plan.jobs)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(plan.connections):
            tasks.create_task(send(), name=f"connection {number}")
    took = time.perf_counter() - began
    if created != plan.jobs:
        raise errors.CronwellError(f"{created} of {plan.jobs} jobs were created; the others were refused")
    return took


def lines_of(prefix: str, numbers: range) -> Iterator[bytes]:
    """Jobs as lines of NDJSON."""
    for number in numbers:
        yield orjson.dumps(job_of(prefix, number), option=orjson.OPT_APPEND_NEWLINE)


def job_of(prefix: str, number: int) -> dict[str, Any]:
    """A job like those that people have many of."""
    hour, minute = divmod(number % 1440, 60)
    return {
        "name": f"{prefix}-{number:08}",
        "schedule": f"{minute} {hour} * * *",
        "target": {"http": {"url": "https://billing.example.com/run", "headers": {"X-Team": "billing"}}},
        "payload": {"account": number, "range": "yesterday"},
        "tags": {"team": f"team-{number % 100}"},
    }
