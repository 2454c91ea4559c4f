"""A great many jobs that sleep, some of them woken: what a large installation looks like at any minute.

They are daily jobs spread over the minutes of a day, none of them due within the next hours. Teams have a thousand jobs
each, spread over the names; one job in ten is of the environment `test`.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg

from cronwell.bench.ground import Progress
from cronwell.bench.load import TENANT, Entry, Mould, copy_jobs
from cronwell.runtime.postgres import Database

ASLEEP_FOR = timedelta(hours=3)
"""No sleeper is due earlier than this after the first was registered."""
TEAM_BLOCK, TEAMS_IN_BLOCK = 100_000, 100
ENVIRONMENTS = 10

_SIZES = "select pg_total_relation_size('jobs') + pg_total_relation_size('cursors')"
_SAMPLE = """
select id
from jobs tablesample bernoulli ($1::float8)
where state = 'active'
    and name like 'bench-%'  -- one that was created to be timed may be about to finish
order by random()
limit $2
"""
# Numbers, and so names, are in the order of registration, which is that of the table and of its key.
_SAMPLE_OF = """
select id
from jobs
where tenant_id = $1
    and state = 'active'
    and name >= $2
    and name < $3
order by random()
limit $4
"""
# As an edit through the API would leave them.
_WAKE = """
with woken as (
    select *
    from unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[]) as chosen (job_id, schedule, plan, next_slot)
),
edited as (
    update jobs
    set spec = (spec::jsonb || jsonb_build_object('schedule', woken.schedule))::json,
        revision = revision + 1,
        updated_at = now(),
        defined_at = now()
    from woken
    where tenant_id = $5
        and id = woken.job_id
)
update cursors
set next_slot = woken.next_slot,
    plan = woken.plan,
    revision = revision + 1
from woken
where tenant_id = $5
    and cursors.job_id = woken.job_id
"""


class Sleepers:
    """The sleepers of one database, which can be made more."""

    def __init__(self, now: datetime) -> None:
        self.count = 0
        first = now + ASLEEP_FOR
        minutes = (timedelta(days=1) - ASLEEP_FOR) // timedelta(minutes=1)
        moments = (first + timedelta(minutes=each) for each in range(minutes))
        self._moulds = [Mould.of(f"{at.minute} {at.hour} * * *", now=now) for at in moments]

    async def grow(self, database: Database, count: int, progress: Progress) -> None:
        """Register as many more as it takes to be `count`."""
        await copy_jobs(database, range(self.count, count), self.entry, progress)
        self.count = count

    def entry(self, number: int) -> Entry:
        mould = self._moulds[number % len(self._moulds)]
        return Entry(mould, name_of(number), mould.first, tags_of(number))


@dataclass(frozen=True, slots=True)
class Woken:
    """Sleepers whose next slots are spread evenly over the whole seconds from `start` on."""

    start: datetime
    rate: int
    seconds: int

    @property
    def count(self) -> int:
        return self.rate * self.seconds

    async def wake(self, database: Database, jobs: list[UUID]) -> None:
        """Give jobs a daily schedule by which they are due in their second."""
        chosen: list[tuple[UUID, str, str, datetime]] = []
        for second in range(self.seconds):
            at = self.start + timedelta(seconds=second)
            schedule = f"{at.second} {at.minute} {at.hour} * * *"
            mould = Mould.of(schedule, now=at - timedelta(hours=1))
            here = jobs[second * self.rate : (second + 1) * self.rate]
            chosen += [(job, schedule, mould.plan, at) for job in here]
        async with database.transaction() as connection:
            await connection.execute("set local statement_timeout = 0")
            columns = [list(column) for column in zip(*chosen, strict=True)]
            await connection.execute(_WAKE, *columns, TENANT, timeout=600)


async def sample(database: Database, of: int, count: int) -> list[UUID]:
    """Some jobs from all over the table."""
    share = min(100.0, 150.0 * count / of + 1.0)
    async with database.transaction() as connection:
        await connection.execute("set local statement_timeout = 0")
        rows = await connection.fetch(_SAMPLE, share, count, timeout=600)
    return [row["id"] for row in rows]


async def sample_of(database: Database, numbers: range, count: int) -> list[UUID]:
    """Some of the jobs with these numbers, which lie together."""
    first, end = name_of(numbers.start), name_of(numbers.stop)
    async with database.transaction() as connection:
        await connection.execute("set local statement_timeout = 0")
        rows = await connection.fetch(_SAMPLE_OF, TENANT, first, end, count, timeout=600)
    return [row["id"] for row in rows]


async def tidy(url: str) -> None:
    """Do now what PostgreSQL would do at a time of its own choosing: in the middle of what is measured."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("vacuum analyze jobs")
        await connection.execute("vacuum analyze cursors")
        await connection.execute("vacuum analyze executions")
    finally:
        await connection.close()
    await checkpoint(url)


async def into_memory(url: str) -> None:
    """Read every job and cursor, and the index that each is found by, so that what is asked for next is not on the disk alone."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("set statement_timeout = 0")
        for table, key in (("jobs", "id"), ("cursors", "job_id")):
            await connection.execute(f"select count(revision) from {table}")  # noqa: S608  # constants
            await connection.execute("set enable_seqscan = off; set enable_sort = off")
            await connection.execute(
                f"select count(*) from (select {key} from {table} order by tenant_id, {key} offset 0) as entry"  # noqa: S608
            )
            await connection.execute("reset enable_seqscan; reset enable_sort")
    finally:
        await connection.close()


async def checkpoint(url: str) -> None:
    """Write everything to disk, where we may ask for it."""
    connection = await asyncpg.connect(url)
    try:
        with contextlib.suppress(asyncpg.InsufficientPrivilegeError):
            await connection.execute("checkpoint")
    finally:
        await connection.close()


async def bytes_of_jobs(database: Database) -> int:
    """What jobs and cursors take on the disk, with their indexes."""
    size: int = await database.fetchval(_SIZES)
    return size


def name_of(number: int) -> str:
    return f"bench-{number:08}"


def tags_of(number: int) -> str:
    """As JSON text."""
    environment = "test" if number % ENVIRONMENTS == 0 else "production"
    return f'{{"team":"{team_of(number)}","environment":"{environment}"}}'


def team_of(number: int) -> str:
    """Teams are as many as there are jobs for, so that each stays as large when jobs become more."""
    block, place = divmod(number, TEAM_BLOCK)
    return f"team-{block * TEAMS_IN_BLOCK + place % TEAMS_IN_BLOCK}"
