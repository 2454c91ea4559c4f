"""Filling a database with jobs to measure: by COPY, past the API, in the form that the API would have written.

Ten million of them must be quick to write and cost no memory. So a schedule is judged once, in a `Mould`, and each job
is that mould with its own name, tags and moment filled in as text. At any time only one chunk of jobs is in memory.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from cronwell.bench.noop import NAME
from cronwell.config import Settings
from cronwell.control.definitions import judge
from cronwell.model import instants, zones
from cronwell.model.identity import RANDOM_BITS, new_job_id
from cronwell.model.shards import shard_of
from cronwell.runtime.postgres import Database

CHUNK = 50_000
TENANT = 1
JOB_COLUMNS = (
    "tenant_id",
    "id",
    "name",
    "state",
    "revision",
    "pool",
    "target_kind",
    "tags",
    "spec",
    "created_at",
    "updated_at",
    "defined_at",
)
CURSOR_COLUMNS = ("tenant_id", "job_id", "shard", "is_held", "revision", "next_slot", "plan", "tzdata")

# What a mould has where each job has its own: texts that nothing else in a definition is like.
_NAME = "bench-mould"
_TAGS = {"bench-mould": "tags"}
_TAGS_TEXT = orjson.dumps(_TAGS).decode()
MOMENT = datetime(2100, 12, 31, 23, 59, 59, 999_999, UTC)
"""Stands in a mould's schedule for a moment that each job has of its own."""
_MOMENT_TEXT = instants.write(MOMENT)

_DEFAULTS = Settings()


@dataclass(frozen=True, slots=True)
class Load:
    """Jobs to register: all with one schedule, their first slots spread evenly from `first` over `spread`."""

    count: int
    first: datetime
    spread: timedelta = timedelta()
    every: timedelta | None = None
    overlap: str = "allow"
    name: str = "bench"
    """Each job is called by this and its number; two loads of one tenant need two names."""
    tenant_id: int = TENANT
    target: Mapping[str, Any] = field(default_factory=lambda: {"handler": {"name": NAME}})


@dataclass(frozen=True, slots=True)
class Mould:
    """Jobs that are alike in all but name, tags and moment."""

    spec: str
    plan: str
    pool: str
    target_kind: str
    first: datetime
    """The first slot after the time that it was judged at."""

    @classmethod
    def of(cls, schedule: object, *, now: datetime, **fields: object) -> Mould:
        """Judge a definition with this schedule; `fields` are further ones of it."""
        raw: Mapping[str, Any] = {
            "name": _NAME,
            "schedule": schedule,
            "target": {"handler": {"name": NAME}},
            "tags": _TAGS,
            **fields,
        }
        definition = judge(raw, now=now, settings=_DEFAULTS)
        assert definition.plan is not None
        first = definition.plan.schedule.next_after(now)
        assert first is not None
        spec = definition.spec
        return cls(definition.text, definition.plan.canonical(), spec.pool, spec.target.kind, first)

    def spec_of(self, entry: Entry) -> str:
        """A job's definition, as the API keeps it."""
        return _at(self.spec, entry.first).replace(_NAME, entry.name, 1).replace(_TAGS_TEXT, entry.tags, 1)

    def plan_of(self, entry: Entry) -> str:
        return _at(self.plan, entry.first)


class Entry(NamedTuple):
    """One job to register. A tuple, because there are millions."""

    mould: Mould
    name: str
    first: datetime
    """Its first slot, which is also its moment where the mould has one."""
    tags: str = "{}"
    """As JSON text."""
    tenant_id: int = TENANT


async def register(database: Database, load: Load) -> None:
    """Write the jobs of a load and their cursors."""
    moment = instants.write(MOMENT)
    schedule: object = {"at": moment}
    if load.every is not None:
        schedule = {"every": f"{load.every // timedelta(milliseconds=1)}ms", "anchor": moment}
    mould = Mould.of(schedule, now=load.first - timedelta(days=1), overlap=load.overlap, target=load.target)

    def entry(number: int) -> Entry:
        first = load.first + load.spread * number / max(load.count, 1)
        return Entry(mould, f"{load.name}-{number}", first, tenant_id=load.tenant_id)

    await copy_jobs(database, range(load.count), entry)
    await database.execute("analyze jobs")
    await database.execute("analyze cursors")


async def copy_jobs(
    database: Database,
    numbers: range,
    entry: Callable[[int], Entry],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Write one job, with its cursor, for each number."""
    for start in range(0, len(numbers), CHUNK):
        now = datetime.now(UTC)
        chunk = [
            (new_job_id(now, secrets.randbits(RANDOM_BITS)), entry(number))
            for number in numbers[start : start + CHUNK]
        ]
        async with database.transaction() as connection:
            await connection.execute("set local statement_timeout = 0")
            await connection.copy_records_to_table(
                "jobs", records=_job_records(chunk, now), columns=JOB_COLUMNS, timeout=600
            )
            await connection.copy_records_to_table(
                "cursors", records=_cursor_records(chunk), columns=CURSOR_COLUMNS, timeout=600
            )
        progress(start + len(chunk), len(numbers))


def _job_records(chunk: Iterable[tuple[UUID, Entry]], now: datetime) -> Iterable[tuple[object, ...]]:
    for job_id, entry in chunk:
        mould = entry.mould
        yield (
            entry.tenant_id,
            job_id,
            entry.name,
            "active",
            1,
            mould.pool,
            mould.target_kind,
            entry.tags,
            mould.spec_of(entry),
            now,
            now,
            now,
        )


def _cursor_records(chunk: Iterable[tuple[UUID, Entry]]) -> Iterable[tuple[object, ...]]:
    tzdata = zones.version()
    for job_id, entry in chunk:
        plan = entry.mould.plan_of(entry)
        yield entry.tenant_id, job_id, shard_of(job_id), False, 1, entry.first, plan, tzdata


def _at(text: str, moment: datetime) -> str:
    return text.replace(_MOMENT_TEXT, instants.write(moment)) if _MOMENT_TEXT in text else text
