"""Filling a database with jobs to measure: by COPY, past the API, in the form that the API would have written."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import orjson

from cronwell.bench.noop import NAME
from cronwell.config import Settings
from cronwell.control.definitions import judge
from cronwell.model.identity import RANDOM_BITS, new_job_id
from cronwell.model.shards import shard_of
from cronwell.runtime.postgres import Database

CHUNK = 50_000
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
)
CURSOR_COLUMNS = ("tenant_id", "job_id", "shard", "is_held", "revision", "next_slot", "plan")


@dataclass(frozen=True, slots=True)
class Load:
    """Jobs to register: all with one schedule, their first slots spread evenly from `first` over `spread`."""

    count: int
    first: datetime
    spread: timedelta = timedelta()
    every: timedelta | None = None
    overlap: str = "allow"


async def register(database: Database, load: Load) -> None:
    """Write the jobs and their cursors."""
    numbers = range(load.count)
    for start in range(0, load.count, CHUNK):
        chunk = [_job(load, number) for number in numbers[start : start + CHUNK]]
        async with database.transaction() as connection:
            await connection.execute("set local statement_timeout = 0")
            await connection.copy_records_to_table(
                "jobs", records=[job for job, _ in chunk], columns=JOB_COLUMNS, timeout=600
            )
            await connection.copy_records_to_table(
                "cursors", records=[cursor for _, cursor in chunk], columns=CURSOR_COLUMNS, timeout=600
            )
    await database.execute("analyze jobs")
    await database.execute("analyze cursors")


def _job(load: Load, number: int) -> tuple[tuple[object, ...], tuple[object, ...]]:
    first = load.first + load.spread * number / max(load.count, 1)
    if load.every is None:
        schedule: object = {"at": first.isoformat()}
    else:
        schedule = {"every": f"{load.every // timedelta(milliseconds=1)}ms", "anchor": first.isoformat()}
    raw = {
        "name": f"bench-{number}",
        "schedule": schedule,
        "target": {"handler": {"name": NAME}},
        "overlap": load.overlap,
    }
    definition = judge(raw, now=load.first - timedelta(days=1), settings=_DEFAULTS)
    assert definition.plan is not None
    now = datetime.now(UTC)
    job_id: UUID = new_job_id(now, secrets.randbits(RANDOM_BITS))
    plan = definition.plan.canonical()
    job = (
        1,
        job_id,
        raw["name"],
        "active",
        1,
        "default",
        "handler",
        "{}",
        orjson.dumps(raw).decode(),
        now,
        now,
    )
    return job, (1, job_id, shard_of(job_id), False, 1, first, plan)


_DEFAULTS = Settings()
