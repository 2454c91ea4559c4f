"""Fixtures that every test may ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from cronwell.config import DatabaseSettings
from cronwell.runtime.postgres import Database
from tests.support import postgres


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL that all tests share: make databases on it, and leave it running."""
    with postgres.shared_server() as url:
        yield url


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
