"""What more registered jobs cost: one database grows up a ladder, and on each rung the same few of its jobs come due.

On each rung, in this order:

- staging: so many jobs a second, from all over the table, come within the look-ahead, with a scheduler alone on the
  database. Counted is what the scheduler and PostgreSQL (where it is our own) spend, less what they spend in the seconds
  before, when no slot comes: a scheduler walks through its jobs all the time to see that none is lost. `cursors` is not
  vacuumed meanwhile, which would count against the smallest rung alone. It is done twice: just after a checkpoint, when each
  page is written whole at its first change, which of many jobs each pays for; and once more with the same jobs, of which
  the target is. At ten thousand a second of ten million jobs, 3 slots in 100 are the first of their page.
- reads and pages over HTTP, open loop, by an API process that has had a few calls before, beside a scheduler and workers.
- new jobs that are due a second later: how long until they are created, and how late they start.
- the forecast of the next day's fires, once: its answer is kept for a minute.

The targets compare the largest rung with the smallest. Differences of less than 2 ms count as none: at that size
they say more about the machine than about the number of jobs.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from cronwell.bench.cost import TICK, Reading, memory_of
from cronwell.bench.fleet import Fleet, fleet, free_ports
from cronwell.bench.ground import Ground
from cronwell.bench.measure import PATIENCE, until_up
from cronwell.bench.noop import NAME
from cronwell.bench.row import Check, Row
from cronwell.bench.sleepers import Sleepers, Woken, bytes_of_jobs, checkpoint, name_of, sample, team_of, tidy
from cronwell.bench.web import Api, calling, growth, in_ms, open_loop, until_ready
from cronwell.config import Settings
from cronwell.control.paging import write_cursor
from cronwell.model.shards import SHARDS
from cronwell.runtime.postgres import Database

STAGING_GROWTH = 1.25
ANSWER_GROWTH = 1.5
MEMORY_MB = 300.0
SLACK_MS = 2.0
LARGE = 10_000_000
PAGE = 100
CONNECTIONS = 100

_STAGED = "select count(*) from executions where slot >= $1 and slot < $2"
# What was staged to be counted is not to be run when workers come.
_TAKE_BACK = "update executions set state = 'cancelled', finished_at = now() where state = 'pending'"
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
    reads: int = 1000
    read_rate: int = 100
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
    reads=10,
    pages=4,
    creates=10,
    warm_up=2,
)


@dataclass(frozen=True, slots=True)
class Staged:
    """What staging cost on one rung."""

    cpu_us: float
    """CPU microseconds per slot, of the scheduler and PostgreSQL, less what they spend when no slot comes."""
    gross_cpu_us: dict[str, float]
    wall_us: float
    """From the beginning of a batch to its commit, per slot of it."""
    wal_bytes: float
    idle_cpu: float
    """CPU seconds in a second without slots."""
    memory_mb: float


@dataclass(frozen=True, slots=True)
class Rung:
    jobs: int
    register_seconds: float
    bytes_per_job: float
    staged: Staged
    first_staged: Staged
    """The same just after a checkpoint."""
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
        detail={
            "rungs": [rung.as_dict() for rung in rungs],
            "gigabytes_for_10_million_jobs": round(rungs[0].bytes_per_job * LARGE / 1e9, 2),
            "gigabytes_by_the_largest": round(rungs[-1].bytes_per_job * LARGE / 1e9, 2),
            "counts_as_equal_below_ms": SLACK_MS,
            "has_postgresql_cpu": ground.server.pid is not None,
        },
        series={
            "staging CPU microseconds per slot against jobs": [(r.jobs, r.staged.cpu_us) for r in rungs],
            "staging microseconds per slot against jobs": [(r.jobs, r.staged.wall_us) for r in rungs],
            "staging CPU microseconds per slot after a checkpoint against jobs": [
                (r.jobs, r.first_staged.cpu_us) for r in rungs
            ],
            "scheduler memory in MB against jobs": [(r.jobs, r.staged.memory_mb) for r in rungs],
            **{
                f"{what} p99 in milliseconds against jobs": [
                    (r.jobs, r.answers_ms[what]["p99"]) for r in rungs
                ]
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
    chosen = await sample(database, count, plan.rate * plan.seconds)
    waves = []
    for is_first in (True, False):
        waves.append(await _staging(ground, plan, database, url, chosen, is_first=is_first))
        await database.execute(_TAKE_BACK)
    answers, forecast = await _answers(ground, plan, database, url, count)
    first, staged = waves
    return Rung(count, round(took, 1), round(size / count, 1), staged, first, answers, forecast)


async def _staging(
    ground: Ground, plan: Plan, database: Database, url: str, chosen: list[UUID], *, is_first: bool
) -> Staged:
    """Let jobs come due and see what staging them costs; `is_first`: just after a checkpoint."""
    progress = ground.stage(
        f"scale: stage {len(chosen):,} slots {'after a checkpoint' if is_first else 'more'}"
    )
    settings = dataclasses.replace(ground.settings, ops_port=free_ports(ground.settings.host))
    look_ahead = settings.scheduler.look_ahead
    second = timedelta(seconds=1)
    async with fleet(settings, url, workers=0) as processes:
        await _until_holding(settings)
        await database.execute("alter table cursors set (autovacuum_enabled = off)")
        lead = timedelta(seconds=2 + len(chosen) / 2000)
        idle = timedelta(seconds=plan.idle_seconds)
        while True:
            now: datetime = await database.fetchval("select now()")
            start = (now + lead + idle + look_ahead).replace(microsecond=0) + second
            woken = Woken(start, plan.rate, plan.seconds)
            await woken.wake(database, chosen)
            if is_first:
                await checkpoint(url)
            begin = woken.start - look_ahead - second
            if await database.fetchval("select now()") + idle <= begin:
                break
            # It took longer than was thought: once more, with more time.
            lead *= 2
        # From here to `begin` nothing comes within the look-ahead.
        idle_from = await _read(ground, database, processes, settings)
        await _sleep_until(database, begin)
        before = await _read(ground, database, processes, settings)
        await _sleep_until(database, begin + plan.seconds * second)
        end = woken.start + plan.seconds * second
        await _until_counted(
            lambda: database.fetchval(_STAGED, woken.start, end), woken.count, "staged", progress
        )
        after = await _read(ground, database, processes, settings)
        memory = max(memory_of(pid) for pid in processes.pids("scheduler"))
        await database.execute("alter table cursors reset (autovacuum_enabled)")
    return staged_of(idle_from, before, after, memory)


@dataclass(frozen=True, slots=True)
class Meters:
    """Where everything stands that staging is judged by."""

    at: float
    reading: Reading
    stage_seconds: float
    slots: float


def staged_of(idle_from: Meters, before: Meters, after: Meters, memory: int) -> Staged:
    """What the slots staged between two readings cost, less what the time before cost."""
    slots = max(after.slots - before.slots, 1)
    cost = before.reading.until(after.reading, round(slots))
    idle = idle_from.reading.until(before.reading, 1000)
    idle_cpu = sum(idle.cpu_seconds.values()) / max(before.at - idle_from.at, 1e-9)
    gross = {who: 1000 * seconds for who, seconds in cost.cpu_seconds.items()}
    net = sum(gross.values()) - 1e6 * idle_cpu * (after.at - before.at) / slots
    return Staged(
        # The meters cannot tell less than a tick.
        cpu_us=max(net, 1e6 * TICK / slots),
        gross_cpu_us=gross,
        wall_us=1e6 * (after.stage_seconds - before.stage_seconds) / slots,
        wal_bytes=cost.wal_bytes / 1000,
        idle_cpu=idle_cpu,
        memory_mb=memory / 1e6,
    )


async def _until_holding(settings: Settings) -> None:
    """Wait until the scheduler has the shards."""
    await until_ready(settings.host, settings.ops_port)

    async def held() -> int:
        return round(metric(await _metrics(settings), "cronwell_shards_held"))

    await _until_counted(held, SHARDS, "held", lambda done, total: None)


async def _read(ground: Ground, database: Database, processes: Fleet, settings: Settings) -> Meters:
    text = await _metrics(settings)
    return Meters(
        time.perf_counter(),
        await ground.read_meters(database, processes),
        metric(text, "cronwell_stage_seconds_sum"),
        metric(text, 'cronwell_slots_staged_total{verdict="staged"}'),
    )


async def _metrics(settings: Settings) -> str:
    async with calling(settings.host, settings.ops_port, connections=1) as scheduler:
        return (await scheduler.call("GET", "/metrics")).decode()


def metric(text: str, name: str) -> float:
    """One value of an exposition of metrics; 0 where nothing was counted yet."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


async def _answers(
    ground: Ground, plan: Plan, database: Database, url: str, count: int
) -> tuple[dict[str, dict[str, float]], float]:
    progress = ground.stage(f"scale: ask with {count:,} jobs")
    settings = dataclasses.replace(ground.settings, port=free_ports(ground.settings.host))
    jobs = await sample(database, count, plan.reads)
    async with (
        fleet(settings, url, workers=ground.workers, apis=1) as _,
        calling(settings.host, settings.port, connections=CONNECTIONS) as api,
    ):
        await until_up(database, ground.workers)
        asked: dict[str, Callable[[int], Awaitable[object]]] = {
            "reads of a job": lambda number: api.call("GET", f"/v1/jobs/{jobs[number % len(jobs)]}"),
            **{what: _page(api, query) for what, query in pages_of(count).items()},
        }
        found: dict[str, dict[str, float]] = {}
        for what, act in asked.items():
            is_page = "page" in what
            for number in range(plan.warm_up):
                await act(number)
            rate, calls = (plan.page_rate, plan.pages) if is_page else (plan.read_rate, plan.reads)
            found[what] = in_ms(await open_loop(act, rate=rate, count=calls))
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

    await _until_counted(started, plan.creates, "started", lambda done, total: None)
    late = [row["lateness"] for row in await database.fetch(_FIRST_FIRES, made)]
    return {"create": in_ms(took), "first fire": in_ms(late)}


async def _sleep_until(database: Database, at: datetime) -> None:
    wait: timedelta = at - await database.fetchval("select now()")
    await asyncio.sleep(max(wait.total_seconds(), 0))


async def _until_counted(
    count: Callable[[], Awaitable[int]], wanted: int, what: str, progress: Callable[[int, int], None]
) -> None:
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while (found := await count()) < wanted:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{found} of {wanted} were {what} after {PATIENCE}")
        progress(found, wanted)
        await asyncio.sleep(0.2)
    progress(wanted, wanted)
