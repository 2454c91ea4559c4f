"""The ground that rows are measured on: one PostgreSQL, and the limit that its bare statements reach right before each row."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cronwell.bench.cost import Reading, read_meters
from cronwell.bench.facts import facts_of
from cronwell.bench.fleet import Fleet, Server, require_rights, scratch, server
from cronwell.bench.limit import measure_limit
from cronwell.config import Settings
from cronwell.runtime.postgres import Database

Progress = Callable[[int, int], None]
Stage = Callable[[str], Progress]
"""Begin a part of the run: told its title, answers what to tell its progress to."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What every row needs to know."""

    settings: Settings
    server: Server
    stage: Stage
    workers: int
    limit_executions: int
    """How many the limit is measured by."""
    facts: dict[str, Any]
    limit: float = 0.0
    """Executions a second that the bare statements reach."""

    def scratch(self) -> contextlib.AbstractAsyncContextManager[tuple[Database, str]]:
        """A fresh database with the schema, and its address."""
        return scratch(self.server.url)

    async def surveyed(self) -> Ground:
        """The same ground with its limit measured anew: within an hour a shared machine becomes half or twice as fast."""
        progress = self.stage("the limit: three statements alone")
        async with self.scratch() as (database, url):
            limit = await measure_limit(database, url, self.limit_executions)
        progress(1, 1)
        return dataclasses.replace(self, limit=limit)

    async def read_meters(
        self, database: Database, fleet: Fleet, others: Iterable[tuple[str, int]] = ()
    ) -> Reading:
        """What PostgreSQL, the fleet, and other processes that share the cores with them have spent so far."""
        own = [] if self.server.pid is None else [("postgresql", self.server.pid)]
        return await read_meters(database, [*own, *fleet.processes, *others])


@contextlib.asynccontextmanager
async def break_ground(
    settings: Settings, stage: Stage, *, workers: int, limit_executions: int
) -> AsyncIterator[Ground]:
    """Start a server if none is configured."""
    if settings.database.url:
        await require_rights(settings.database.url)
    with server(settings) as postgres:
        async with scratch(postgres.url) as (database, _):
            facts = await facts_of(database)
        yield Ground(settings, postgres, stage, workers, limit_executions, facts)
