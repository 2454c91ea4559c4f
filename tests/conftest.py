"""Fixtures that every test may ask for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import ExitStack

import hypothesis
import pytest

from cronwell.config import DatabaseSettings, Settings
from cronwell.runtime.postgres import Database
from cronwell.store.postgres.migrate import migrate
from tests.support import etcd, postgres, types
from tests.support.house import House
from tests.support.incarnations import Replaceable

# How long an example takes says more of what else the machine is doing than of the code.
hypothesis.settings.register_profile(
    "cronwell", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("cronwell")


@pytest.hookimpl(wrapper=True)
def pytest_sessionstart(session: pytest.Session) -> Generator[None, object, object]:
    """What all servers of a run begin with is made by the first and kept until the last test process has ended."""
    types.remember()
    held = ExitStack()
    held.enter_context(postgres.template())
    session.config.add_cleanup(held.close)
    return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Properties try thousands of examples; what they run is counted as covered by the tests beside them, in half the time."""
    for item in items:
        if hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.no_cover)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL that all tests share: make databases on it, and leave it running."""
    with postgres.shared_server() as url:
        yield url


@pytest.fixture(scope="session")
def etcd_url() -> Iterator[str]:
    """The URL of an etcd that all tests share: use a prefix of your own, and leave it running."""
    with etcd.temporary_etcd() as server:
        yield server.url


@pytest.fixture
async def database_url(server: str) -> AsyncIterator[str]:
    """The URL of an empty database that belongs to this test."""
    url = await postgres.create_database(server)
    yield url
    await postgres.drop_database(server, url)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """An open pool on an empty database that belongs to this test."""
    opened = await Database.connect(DatabaseSettings(), database_url, application_name="test")
    yield opened
    await opened.close()


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
async def migrated_url(server: str, migrated: str) -> AsyncIterator[str]:
    """The URL of a migrated database that belongs to this test."""
    url = await postgres.create_database(server, template=migrated)
    yield url
    await postgres.drop_database(server, url)


@pytest.fixture
async def house(migrated_url: str) -> AsyncIterator[House]:
    """Store, control, scheduler and worker parts on a database of their own, by the database's clock."""
    opened = await House.open(migrated_url, Settings())
    yield opened
    await opened.close()


@pytest.fixture
def replaceable(migrated_url: str) -> Replaceable:
    """The test's database, to be made another one."""
    return Replaceable(migrated_url)
