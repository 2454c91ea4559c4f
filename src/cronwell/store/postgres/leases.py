"""The store as the thread that keeps a worker's lease has it: on connections of its own, which it gives up early."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from cronwell.config import DatabaseSettings, WorkerSettings
from cronwell.runtime.postgres import Database
from cronwell.store.postgres.store import PostgresStore

SHORTEST_PATIENCE = timedelta(seconds=1)


@asynccontextmanager
async def lease_store(
    settings: DatabaseSettings, worker: WorkerSettings, url: str
) -> AsyncIterator[PostgresStore]:
    """Connect on the loop that is running. A statement that is not answered in a quarter of the lease is given up, and there is
    a second connection to try again on."""
    patience = max(worker.lease / 4, SHORTEST_PATIENCE)
    own = dataclasses.replace(settings, statement_timeout=patience, pool_size=2)
    database = await Database.connect(own, url, application_name="cronwell worker lease", is_hot=True)
    try:
        yield PostgresStore(database)
    finally:
        await database.close()
