"""What more registered jobs cost: one database grows up a ladder, and on each rung the same few of its jobs come due.

On each rung, in this order:

- staging: so many jobs a second come within the look-ahead of a scheduler: see `waves`. The target is of what a slot costs
  on average between two checkpoints; what it costs in the first minute after one is told beside it.
- reads and pages over HTTP, open loop, by an API process that has had a few calls before, beside a scheduler and workers;
  reads first of jobs that nobody has asked for since they were made, whose rows the disk may have to give, and then of
  others when all jobs have been read into memory.
- new jobs that are due a second later: how long until they are created, and how late they start.
- the forecast of the next day's fires, once: its answer is kept for a minute.

The targets compare the largest rung with the smallest. Differences of less than 2 ms count as none: at that size
they say more about the machine than about the number of jobs.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from cronwell.bench.fleet import fleet, free_ports
from cronwell.bench.ground import Ground
from cronwell.bench.measure import until_up
from cronwell.bench.noop import NAME
from cronwell.bench.row import Check, Row
from cronwell.bench.sleepers import (
    Sleepers,
    bytes_of_jobs,
    into_memory,
    name_of,
    sample,
    sample_of,
    team_of,
    tidy,
)
from cronwell.bench.waves import (
    Staged,
    Wave,
    between_checkpoints,
    least_of,
    scheduling,
    stage_wave,
    stretch_of,
    until_counted,
)
from cronwell.bench.web import Api, calling, growth, in_ms, open_loop
from cronwell.control.paging import write_cursor
from cronwell.runtime.postgres import Database

STAGING_GROWTH = 1.25
ANSWER_GROWTH = 1.5
MEMORY_MB = 300.0
SLACK_MS = 2.0
LARGE = 10_000_000
PAGE = 100
CONNECTIONS = 100

_FROM_MEMORY = "reads of a job"
_FIRST_FIRES = """
select extract(epoch from started_at - slot)::float8 as lateness
from executions
where job_id = any($1::uuid[])
    and state = 'succeeded'
"""


@dataclass(frozen=True, slots=True)
class Plan:
    smallest: int = 100_000
    largest: int = 10_000_000
    step: int = 10
    """Each rung has so many times the jobs of the one before."""
    rate: int = 1000
    """Slots a second that come due while staging is measured."""
    seconds: int = 60
    idle_seconds: int = 20
    waves: int = 2
    """How often each wave is staged: the one that cost least counts."""
    reads: int = 1000
    read_rate: int = 100
    turns: int = 3
    """How often reads from memory are measured: the turn with the lowest p99 counts, on every rung. The p99 of ten seconds is
    ten calls, and whatever else the machine did."""
    pages: int = 400
    page_rate: int = 20
    """Of each kind of page."""
    creates: int = 1000
    create_rate: int = 50
    warm_up: int = 20
    """Calls of each kind that are not counted."""


QUICK = Plan(
    smallest=1000,
    largest=5000,
    step=5,
    rate=50,
    seconds=2,
    idle_seconds=1,
    waves=1,
    reads=10,
    pages=4,
    creates=10,
    warm_up=2,
)


@dataclass(frozen=True, slots=True)
class Rung:
    jobs: int
    register_seconds: float
    bytes_per_job: float
    staged: Staged
    """On average between two checkpoints."""
    first_staged: Staged
    """In the first minute after one."""
    answers_ms: dict[str, dict[str, float]]
    """By what was asked for."""
    forecast_ms: float
    """Of the fires of the next day, with nothing kept from before."""

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


async def measure(ground: Ground, plan: Plan) -> Row:
    title = f"scale: {plan.smallest:,} to {plan.largest:,} jobs, {plan.rate:,} slots/s"
    async with ground.scratch() as (database, url):
        sleepers = Sleepers(await database.fetchval("select now()"))
        rungs = [await _rung(ground, plan, database, url, sleepers, count) for count in ladder(plan)]
    return Row(
        "scale",
        title,
        checks_of(rungs),
        limit=ground.limit,
        detail={
            "rungs": [rung.as_dict() for rung in rungs],
            "gigabytes_for_10_million_jobs": round(rungs[0].bytes_per_job * LARGE / 1e9, 2),
            "gigabytes_by_the_largest": round(rungs[-1].bytes_per_job * LARGE / 1e9, 2),
            "counts_as_equal_below_ms": SLACK_MS,
            "has_postgresql_cpu": ground.server.pid is not None,
        },
        series={
            "staging of a slot: processor time (µs) over jobs": [(r.jobs, r.staged.cpu_us) for r in rungs],
            "staging of a slot: time (µs) over jobs": [(r.jobs, r.staged.wall_us) for r in rungs],
            "staging of a slot: processor time after a checkpoint (µs) over jobs": [
                (r.jobs, r.first_staged.cpu_us) for r in rungs
            ],
            "scheduler memory (MB) over jobs": [(r.jobs, r.staged.memory_mb) for r in rungs],
            **{
                f"p99: {what} (ms) over jobs": [(r.jobs, r.answers_ms[what]["p99"]) for r in rungs]
                for what in rungs[0].answers_ms
            },
        },
    )


def ladder(plan: Plan) -> list[int]:
    """The numbers of jobs, from the smallest to the largest."""
    counts = [plan.smallest]
    while counts[-1] < plan.largest:
        counts.append(min(counts[-1] * max(plan.step, 2), plan.largest))
    return counts


def checks_of(rungs: Sequence[Rung]) -> list[Check]:
    small, large = rungs[0], rungs[-1]
    cpu = large.staged.cpu_us / small.staged.cpu_us
    wall = large.staged.wall_us / small.staged.wall_us
    checks = [
        Check("staging CPU per slot, largest to smallest", STAGING_GROWTH, cpu, "x"),
        Check("staging time per slot, largest to smallest", STAGING_GROWTH, wall, "x"),
        Check("scheduler memory", MEMORY_MB, max(rung.staged.memory_mb for rung in rungs), "MB"),
    ]
    for what, smallest in small.answers_ms.items():
        grown = growth(smallest, large.answers_ms[what], slack=SLACK_MS, names=("p50", "p99"))
        checks.append(Check(f"{what}, largest to smallest", ANSWER_GROWTH, grown, "x"))
    return checks


async def _rung(
    ground: Ground, plan: Plan, database: Database, url: str, sleepers: Sleepers, count: int
) -> Rung:
    began = time.perf_counter()
    await sleepers.grow(database, count, ground.stage(f"scale: register {count:,} jobs"))
    took = time.perf_counter() - began
    await tidy(url)
    size = await bytes_of_jobs(database)
    wave = Wave(plan.rate, plan.seconds, plan.idle_seconds)
    anywhere = await sample(database, count, wave.count)
    stretch = stretch_of(count, wave, await between_checkpoints(database))
    together = await sample_of(database, stretch, wave.count)
    async with scheduling(ground, database, url, count) as place:
        firsts, others = [], []
        for _ in range(plan.waves):
            firsts.append(await stage_wave(place, wave, anywhere, "after a checkpoint"))
            others.append(await stage_wave(place, wave, together, "between two"))
        first, staged = least_of(firsts), least_of(others)
    answers, forecast = await _answers(ground, plan, database, url, count)
    return Rung(count, round(took, 1), round(size / count, 1), staged, first, answers, forecast)


async def _answers(
    ground: Ground, plan: Plan, database: Database, url: str, count: int
) -> tuple[dict[str, dict[str, float]], float]:
    progress = ground.stage(f"scale: ask with {count:,} jobs")
    settings = dataclasses.replace(ground.settings, port=free_ports(ground.settings.host))
    jobs = await sample(database, count, 2 * plan.reads)
    cold, warm = jobs[::2], jobs[1::2]
    async with (
        fleet(settings, url, workers=ground.workers, apis=1) as _,
        calling(settings.host, settings.port, connections=CONNECTIONS) as api,
    ):
        await until_up(database, ground.workers)
        asked: dict[str, Callable[[int], Awaitable[object]]] = {
            "first reads of a job": _read(api, cold),
            _FROM_MEMORY: _read(api, warm),
            **{what: _page(api, query) for what, query in pages_of(count).items()},
        }
        found: dict[str, dict[str, float]] = {}
        for what, act in asked.items():
            is_page = "page" in what
            if what == _FROM_MEMORY:
                await into_memory(url)
            for number in range(plan.warm_up):
                await act(number)
            rate, calls = (plan.page_rate, plan.pages) if is_page else (plan.read_rate, plan.reads)
            turns = plan.turns if what == _FROM_MEMORY else 1
            measured = [in_ms(await open_loop(act, rate=rate, count=calls)) for _ in range(turns)]
            found[what] = min(measured, key=lambda turn: turn["p99"])
            progress(len(found), len(asked) + 1)
        found |= await _new_jobs(plan, database, api, count)
        began = time.perf_counter()
        await api.call("GET", "/v1/forecast")
        forecast = 1000 * (time.perf_counter() - began)
    progress(1, 1)
    return found, round(forecast, 1)


def pages_of(count: int) -> dict[str, dict[str, str]]:
    """The query of each kind of page that is asked for: the first ones, and those in the middle of all names."""
    middle = count // 2
    deep = write_cursor(name_of(middle), str(UUID(int=0)))
    team, test = f"team:{team_of(middle)}", "environment:test"
    return {
        "first page": {},
        "deep page": {"cursor": deep},
        "first page of a team": {"tag": team},
        "deep page of a team": {"tag": team, "cursor": deep},
        "first page of a common tag": {"tag": test},
        "deep page of a common tag": {"tag": test, "cursor": deep},
    }


def _read(api: Api, jobs: Sequence[UUID]) -> Callable[[int], Awaitable[object]]:
    return lambda number: api.call("GET", f"/v1/jobs/{jobs[number % len(jobs)]}")


def _page(api: Api, query: dict[str, str]) -> Callable[[int], Awaitable[object]]:
    return lambda _number: api.call("GET", "/v1/jobs", query={"limit": str(PAGE), **query})


async def _new_jobs(plan: Plan, database: Database, api: Api, count: int) -> dict[str, dict[str, float]]:
    """Create jobs that are due a second later, and see when they start."""
    made: list[UUID] = []

    async def create(number: int) -> None:
        body = {
            "name": f"new-{count}-{number}",
            "schedule": "in 1s",
            "target": {"handler": {"name": NAME}},
        }
        answer = await api.call("POST", "/v1/jobs", status=201, body=body)
        if number >= 0:
            made.append(UUID(orjson.loads(answer)["id"]))

    for number in range(1, plan.warm_up + 1):
        await create(-number)
    took = await open_loop(create, rate=plan.create_rate, count=plan.creates)

    async def started() -> int:
        return len(await database.fetch(_FIRST_FIRES, made))

    await until_counted(started, plan.creates, "started", lambda done, total: None)
    late = [row["lateness"] for row in await database.fetch(_FIRST_FIRES, made)]
    return {"create": in_ms(took), "first fire": in_ms(late)}
