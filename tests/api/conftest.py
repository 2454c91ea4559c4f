"""One served interface and one database for all tests here; each test finds the database empty."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from cronwell.config import DatabaseSettings, Settings
from cronwell.runtime.clock import DatabaseClock
from cronwell.runtime.postgres import Database
from cronwell.store.postgres.migrate import migrate
from tests.api.rig import Caller, Rig, calling, serving
from tests.support import postgres

# A few rows are gone sooner by delete than by truncate, let alone by a new database.
EMPTY = "; ".join(
    f"delete from {table}"
    for table in (
        "alert_incidents",
        "alert_rules",
        "alert_channels",
        "waiting_slots",
        "dependencies",
        "calendar_uses",
        "calendars",
        "overrides",
        "backfills",
        "cursors",
        "job_revisions",
        "overrides",
        "jobs",
        "executions",
        "attempts",
        "skips",
        "backfills",
        "workers",
        "nodes",
        "findings",
        "idempotency_keys",
        "api_keys",
        "secrets",
        "secret_uses",
    )
)


@dataclass(frozen=True, slots=True)
class Served:
    rig: Rig
    database: Database
    url: str


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The server lives on one event loop, so all async tests here run on that one."""
    for item in items:
        if Path(__file__).parent in item.path.parents and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def migrated(server: str) -> str:
    """The URL of a migrated database to copy; nobody may connect to it."""

    async def make() -> str:
        url = await postgres.create_database(server)
        database = await Database.connect(DatabaseSettings(), url, application_name="test")
        await migrate(database)
        await database.close()
        return url

    return asyncio.run(make())


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def served(server: str, migrated: str) -> AsyncIterator[Served]:
    """The interface on the database's own clock and with the default settings."""
    url = await postgres.create_database(server, template=migrated)
    database = await Database.connect(DatabaseSettings(), url, application_name="test")
    clock = await DatabaseClock.measured(database)
    async with serving(database, url, clock, Settings()) as rig:
        yield Served(rig, database, url)
    await database.close()
    await postgres.drop_database(server, url)


@pytest_asyncio.fixture(loop_scope="session")
async def rig(served: Served) -> AsyncIterator[Rig]:
    """The served interface, with nothing stored yet and on connections of its own."""
    async with calling(served.rig.caller.url) as caller:
        yield dataclasses.replace(served.rig, caller=caller)
    served.rig.reasons.clear()
    async with served.database.transaction() as connection:
        await connection.execute(EMPTY)


@pytest.fixture
def api(rig: Rig) -> Caller:
    return rig.caller


@pytest.fixture
def api_database(served: Served, rig: Rig) -> Database:
    """The database behind `rig`, to serve it in another way."""
    return served.database


@pytest.fixture
def api_url(served: Served) -> str:
    return served.url
