"""PostgreSQL 15 to 18: on each version that this machine has, the schema is made and the house works."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import asyncpg
import pytest

from cronwell.config import DatabaseSettings, Settings
from cronwell.model.execution import State
from cronwell.runtime.postgres import Database
from cronwell.runtime.programs import MAJOR_VERSION
from cronwell.store.postgres.migrate import migrate
from tests.schema import catalog, plans
from tests.schema.guards import HOT
from tests.schema.million import make_days
from tests.schema.servers import SUPPORTED, installed, server_of
from tests.schema.test_statements import STATEMENTS
from tests.support import postgres
from tests.support.house import House

# The embedded version runs all the other tests.
OTHERS = [version for version in SUPPORTED if version != MAJOR_VERSION]


@pytest.fixture(scope="module", params=OTHERS, ids=lambda version: f"PostgreSQL {version}")
def other_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server of another version."""
    version: int = request.param
    if version not in installed():
        pytest.skip(f"no PostgreSQL {version} on this machine")
    with server_of(version) as url:
        yield url


@pytest.fixture
async def url(other_server: str) -> AsyncIterator[str]:
    """The URL of a migrated database on that server."""
    made = await postgres.create_database(other_server)
    database = await Database.connect(DatabaseSettings(), made, application_name="test")
    await migrate(database)
    await database.close()
    yield made
    await postgres.drop_database(other_server, made)


def test_a_second_version_is_always_there() -> None:
    # The wheel brings an older one beside the embedded one.
    assert len(set(installed()) & set(SUPPORTED)) >= 2


async def test_migrations_make_the_declared_schema_there_too(other_server: str, url: str) -> None:
    declared_url = await postgres.create_database(other_server)
    schemas = []
    for each in (url, declared_url):
        connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(each)
        if each == declared_url:
            await connection.execute(catalog.declared())
        schemas.append(await catalog.lines(connection))
        await connection.close()
    assert schemas[0] == schemas[1]


async def test_every_statement_prepares_there(url: str) -> None:
    connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(url)
    for sql in STATEMENTS.values():
        await connection.prepare(sql)
    await connection.close()


async def test_hot_statements_go_by_the_same_indexes_there(url: str) -> None:
    database = await Database.connect(DatabaseSettings(), url, application_name="test", is_hot=True)
    async with database.transaction() as connection:
        await make_days(connection)
        for guard in HOT:
            if guard.statement != "is_day_busy":
                guard.check(await plans.generic_plan(connection, guard.sql, guard.args))
    await database.close()


async def test_slots_are_staged_claimed_retried_and_completed_there(url: str) -> None:
    house = await House.open(url, Settings())
    try:
        tries = 0

        async def work() -> None:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise ValueError("not yet")

        house.registry.add(work, "work")
        job = await house.create(
            schedule=f"at {(house.clock.now() + timedelta(milliseconds=300)).isoformat()}",
            retry={"initial_delay": "10ms", "jitter": 0},
        )
        async with house.working():
            [staged] = await house.history(job)
            done = await house.until_state(staged.key, State.SUCCEEDED, State.FAILED)
            triggered = await house.until_state(await house.trigger(), State.SUCCEEDED)
        assert (done.state, done.attempt, done.fence) == (State.SUCCEEDED, 2, 2)
        assert triggered.attempt == 1
        assert [each.result.value for each in await house.store.list_attempts(1, done.key)] == ["failed"]
        assert await house.finishing().run_once() == 1
        assert await house.staging().run_once() == 0
    finally:
        await house.close()
