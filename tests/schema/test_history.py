"""However long the history of a job, what is still open of it is found without reading through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from cronwell.config import DatabaseSettings
from cronwell.runtime.postgres import Connection, Database
from tests.schema import plans
from tests.schema.guards import STATEMENTS
from tests.schema.million import NOON, job_id
from tests.support import postgres

DAYS = 30
LIMITED, UNLIMITED = job_id(1), job_id(2)
OPEN = 20
"""What each job has open: half of it pending at noon, the rest running."""

# One execution every minute of the days before; a herd of other jobs waits at noon.
_LOAD = f"""
    insert into executions (
        tenant_id, job_id, kind, slot, ready_at, state, revision, priority, running_limit, pool, finished_at
    )
    select 1, job_id, 'scheduled', slot, slot, 'succeeded', 1, 1, running_limit, 'default', slot
    from (values ('{LIMITED}'::uuid, 1::smallint), ('{UNLIMITED}'::uuid, null)) as job (job_id, running_limit)
    cross join generate_series($at - interval '{DAYS} days', $at - interval '1 hour', interval '1 minute') as slot;

    insert into executions (
        tenant_id, job_id, kind, slot, ready_at, state, revision, priority, running_limit, pool
    )
    select
        1, job_id, 'scheduled', $at - n * interval '1 second', $at,
        case when n % 2 = 0 then 'pending' else 'running' end::execution_state, 1, 1, running_limit, 'default'
    from (values ('{LIMITED}'::uuid, 1::smallint), ('{UNLIMITED}'::uuid, null)) as job (job_id, running_limit)
    cross join generate_series(1, {OPEN}) as n;

    insert into executions (tenant_id, job_id, kind, slot, ready_at, state, revision, priority, running_limit, pool)
    select 1, gen_random_uuid(), 'scheduled', $at, $at, 'pending', 1, 1, nullif(n % 2, 0), 'default'
    from generate_series(1, 20000) as n;

    insert into cursors (tenant_id, job_id, shard, revision, next_slot, plan)
    values (1, '{LIMITED}', 1, 1, null, ''), (1, '{UNLIMITED}', 1, 1, null, '');

    analyze;
"""


@pytest.fixture(scope="module")
def url(server: str, migrated: str) -> Iterator[str]:
    """A database with two jobs that have fired for a month; nothing that a test does to it is kept."""

    async def make() -> str:
        made = await postgres.create_database(server, template=migrated)
        database = await Database.connect(DatabaseSettings(), made, application_name="test")
        async with database.transaction() as connection:
            for ahead in range(-DAYS, 3):
                await connection.fetchval("select ensure_day($1)", (NOON + timedelta(days=ahead)).date())
            await connection.execute(_LOAD.replace("$at", f"'{NOON.isoformat()}'::timestamptz"), timeout=120)
        await database.close()
        return made

    made = asyncio.run(make())
    yield made
    asyncio.run(postgres.drop_database(server, made))


class _Undone(Exception):
    """Ends a transaction of which nothing is to be kept."""


@pytest.fixture
async def connection(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Connection]:
    """A connection as the API has it; with the parameter True, as schedulers have it."""
    is_hot = bool(getattr(request, "param", False))
    database = await Database.connect(DatabaseSettings(), url, application_name="test", is_hot=is_hot)
    try:
        async with database.transaction() as opened:
            yield opened
            raise _Undone
    except _Undone:
        pass
    finally:
        await database.close()


@pytest.mark.parametrize("job", [LIMITED, UNLIMITED], ids=["limited", "unlimited"])
@pytest.mark.parametrize(
    ("statement", "more"),
    [
        ("withhold_due", [NOON, "paused"]),
        ("rebase_open", [2, "default", 1, "warehouse", 3]),
        ("unfinished", [NOON, 1000]),
    ],
    ids=["withhold_due", "rebase_open", "unfinished"],
)
async def test_a_users_change_does_not_read_the_jobs_history(
    connection: Connection, statement: str, more: list[object], job: object
) -> None:
    found = await connection.fetch(STATEMENTS[statement], 1, job, *more)
    assert len(found) == OPEN
    plan = await plans.run_plan(connection, STATEMENTS[statement], [1, job, *more])
    # The rest of the day may be read through: it is up to the planner which way is shorter there.
    assert plan.rows_read < 12 * 60 + 2 * OPEN, plan


@pytest.mark.parametrize("connection", [True], indirect=True)
async def test_a_job_whose_last_execution_goes_on_is_passed_over_without_reading_its_history(
    connection: Connection,
) -> None:
    plan = await plans.run_plan(connection, STATEMENTS["finish_ended"], [1000, NOON])
    assert plan.rows_read < 10, plan
    await connection.execute("update executions set state = 'succeeded' where state <> 'succeeded'")
    await connection.execute(STATEMENTS["finish_ended"], 1000, NOON)
    assert await connection.fetchval("select count(*) from cursors") == 0
