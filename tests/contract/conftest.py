"""Implementations of the ports, for the suites that all of them pass."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from uuid import UUID

import pytest

from cronwell.config import DatabaseSettings
from cronwell.runtime.postgres import Database
from cronwell.store.port import Store
from cronwell.store.postgres.store import PostgresStore
from tests.contract.desk import OTHER_TENANT, Desk

STORES = ("postgres",)


@pytest.fixture(params=STORES)
async def desk(request: pytest.FixtureRequest, migrated_url: str) -> AsyncIterator[Desk]:
    """A new store with two tenants, at a desk from which tests work with it."""
    database = await Database.connect(
        DatabaseSettings(pool_size=24), migrated_url, application_name="test", is_hot=True
    )
    await database.execute(
        "insert into tenants (id, name, signing_secret) values ($1, 'other', 'whsec_other')", OTHER_TENANT
    )

    def remove_worker(worker: UUID) -> Awaitable[object]:
        return database.execute("delete from workers where id = $1", worker)

    yield Desk(PostgresStore(database), lambda: PostgresStore(database), remove_worker)
    await database.close()


@pytest.fixture
def store(desk: Desk) -> Store:
    return desk.store
