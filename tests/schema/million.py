"""A database of a fleet at noon: a million jobs, their cursors, and a million executions over days.

Behind noon lie days of history and a few dead letters, workers hold some executions, a herd of 200,000 is due at
once, and the days ahead are still empty. Rows are written without their indexes, which are built afterwards as the
schema defines them: a fifth of the time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from cronwell.runtime.postgres import Connection, Database

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
ROWS = 1_000_000
HERD = 200_000
HELD = 1_000
FIRST_DAY = NOON.date() - timedelta(days=4)
EMPTY_DAYS = 3
WORKERS = 50

_JOB_ID = "('0189abcd-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid"
_WORKER_ID = "('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid"
# History is spread evenly from the first day to just before noon; the herd stands at noon.
_PACE = (NOON - datetime.combine(FIRST_DAY, datetime.min.time(), UTC)) / (ROWS - HERD + 1)

_LOAD = f"""
    insert into jobs (tenant_id, id, name, state, revision, pool, target_kind, tags, spec, created_at, updated_at)
    select
        1, {_JOB_ID}, 'job-' || lpad(n::text, 7, '0'), 'active', 1, 'default', 'http',
        case when n % 1000 = 0 then jsonb_build_object('team', 'billing') else '{{}}' end, '{{}}', $at, $at
    from generate_series(1, {ROWS}) as n;

    insert into cursors (tenant_id, job_id, shard, revision, next_slot, plan)
    select
        1, {_JOB_ID}, n % 64, 1, case when n % 1000 = 0 then null else $at + n * interval '10 ms' end,
        '{{"schedule":{{}}}}'
    from generate_series(1, {ROWS}) as n;

    insert into executions (
        tenant_id, job_id, kind, slot, ready_at, state, fence, attempt, worker, revision, priority, running_limit,
        pool, finished_at, claimed_at
    )
    select
        1, {_JOB_ID}, 'scheduled', slot, slot, state, 1, 1,
        case when state = 'running' then {_WORKER_ID.replace("(n)", f"(n % {WORKERS})")} end, 1, 1,
        case when n % 2 = 0 then 1 end, 'default', case when n <= {ROWS - HERD - HELD} then slot end, slot
    from (
        select
            n,
            case when n > {ROWS - HERD} then $at else $from + n * $pace end as slot,
            case
                when n > {ROWS - HERD} then 'pending'
                when n > {ROWS - HERD - HELD} then 'running'
                when n % 1000 = 7 then 'failed'
                else 'succeeded'
            end::execution_state as state
        from generate_series(1, {ROWS}) as n
    ) as made;

    insert into attempts (
        tenant_id, job_id, kind, slot, fence, attempt, result, worker, ready_at, finished_at
    )
    select 1, {_JOB_ID}, 'scheduled', $from + n * $pace, 1, 1, 'failed', {_WORKER_ID}, $at, $at
    from generate_series(1, {ROWS - HERD - HELD}, 40) as n;

    insert into workers (
        id, name, state, version, pools, handlers, concurrency, started_at, heartbeat_at, lease_until,
        incarnation
    )
    select
        {_WORKER_ID}, 'worker', case when n = 0 then 'lost' else 'active' end::worker_state, '0', '{{default}}', '{{}}',
        1000, $at, $at, $at + interval '30 s', incarnation()
    from generate_series(0, {WORKERS - 1}) as n;
"""

_INDEXES = """
    select
        held.relname as table_name,
        index.relname as index_name,
        pg_get_indexdef(index.oid) as index_definition,
        owner.conname as constraint_name,
        pg_get_constraintdef(owner.oid) as constraint_definition
    from pg_index
    join pg_class as index on index.oid = pg_index.indexrelid
    join pg_class as held on held.oid = pg_index.indrelid
    left join pg_constraint as owner on owner.conindid = index.oid and owner.contype in ('p', 'u')
    where held.relname = any($1)
    order by 1, 2
"""


def job_id(number: int) -> UUID:
    return UUID(f"0189abcd-0000-7000-8000-{number:012x}")


def worker_id(number: int) -> UUID:
    return UUID(f"00000000-0000-4000-8000-{number:012x}")


def slot_of(number: int) -> datetime:
    """The slot of the job's one execution."""
    return (
        NOON
        if number > ROWS - HERD
        else datetime.combine(FIRST_DAY, datetime.min.time(), UTC) + number * _PACE
    )


def empty_partitions() -> set[str]:
    """The partitions of the days ahead, which have no rows."""
    days = [NOON.date() + timedelta(days=ahead) for ahead in range(1, EMPTY_DAYS + 1)]
    return {f"executions_{day:%Y%m%d}" for day in days}


async def make_days(connection: Connection) -> None:
    """Make the partitions of the days of history, of today and of some days ahead."""
    for ahead in range((NOON.date() - FIRST_DAY).days + 1 + EMPTY_DAYS):
        await connection.fetchval("select ensure_day($1)", FIRST_DAY + timedelta(days=ahead))


async def load(database: Database) -> None:
    """Fill a migrated database, and let the planner know what is in it."""
    async with database.transaction() as connection:
        # The foreign keys hold by construction; checking each row would take most of the time.
        await connection.execute(
            "set local statement_timeout = 0; set local session_replication_role = replica;"
            "set local maintenance_work_mem = '256MB'"
        )
        await make_days(connection)
        indexes = await _take_indexes(connection)
        script = (
            _LOAD.replace("$at", f"'{NOON.isoformat()}'::timestamptz")
            .replace("$from", f"'{FIRST_DAY} 00:00+00'::timestamptz")
            .replace("$pace", f"interval '{_PACE / timedelta(milliseconds=1)} ms'")
        )
        await connection.execute(script, timeout=300)
        for definition in indexes:
            await connection.execute(definition, timeout=300)
        await connection.execute("analyze", timeout=300)


async def _take_indexes(connection: Connection) -> list[str]:
    """Drop every index of the large tables and return the statements that make them again."""
    made = []
    for row in await connection.fetch(_INDEXES, ["jobs", "cursors", "executions"]):
        table = row["table_name"]
        if row["constraint_name"] is None:
            await connection.execute(f"drop index {row['index_name']}")
            made.append(row["index_definition"].replace(" ON ONLY ", " ON "))
        else:
            await connection.execute(f"alter table {table} drop constraint {row['constraint_name']}")
            made.append(
                f"alter table {table} add constraint {row['constraint_name']} {row['constraint_definition']}"
            )
    return made
