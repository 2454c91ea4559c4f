"""A served interface for each test, on a copy of a database that is migrated once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cronwell.config import DatabaseSettings, Settings
from cronwell.runtime.clock import DatabaseClock
from cronwell.runtime.postgres import Database
from cronwell.store.postgres.migrate import migrate
from tests.api.rig import Caller, Rig, serving
from tests.support import postgres


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


@pytest.fixture
async def api_url(server: str, migrated: str) -> AsyncIterator[str]:
    """The URL of a migrated database that belongs to this test."""
    url = await postgres.create_database(server, template=migrated)
    yield url
    await postgres.drop_database(server, url)


@pytest.fixture
async def api_database(api_url: str) -> AsyncIterator[Database]:
    opened = await Database.connect(DatabaseSettings(), api_url, application_name="test")
    yield opened
    await opened.close()


@pytest.fixture
def settings() -> Settings:
    """The settings that the server has; a test module may override them."""
    return Settings()


@pytest.fixture
async def rig(api_database: Database, api_url: str, settings: Settings) -> AsyncIterator[Rig]:
    """A served interface on the database's own clock."""
    clock = await DatabaseClock.measured(api_database)
    async with serving(api_database, api_url, clock, settings) as opened:
        yield opened


@pytest.fixture
def api(rig: Rig) -> Caller:
    return rig.caller


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(server: str, migrated: str) -> AsyncIterator[Rig]:
    """A served interface for all tests of a module; they mark themselves with its loop and leave no job behind."""
    url = await postgres.create_database(server, template=migrated)
    database = await Database.connect(DatabaseSettings(), url, application_name="test")
    clock = await DatabaseClock.measured(database)
    async with serving(database, url, clock, Settings()) as opened:
        yield opened
    await database.close()
    await postgres.drop_database(server, url)
