"""Leases as rows in PostgreSQL, judged by the database's clock."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from cronwell.runtime.clock import Clock
from cronwell.runtime.postgres import Database, load_statements

_SQL = load_statements(Path(__file__).with_suffix(".sql"))


class PostgresLeases:
    """Implements `coordination.port.Leases`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def acquire(self, names: Iterable[str], owner: UUID, ttl: timedelta) -> dict[str, int]:
        now = self._clock.now()
        # Sorted, so that two processes that want the same leases do not wait for each other in a circle.
        rows = await self._database.fetch(_SQL["acquire"], sorted(set(names)), owner, now, now + ttl)
        return {row["name"]: row["epoch"] for row in rows}

    async def release(self, names: Iterable[str], owner: UUID) -> None:
        await self._database.execute(_SQL["release"], sorted(set(names)), owner, self._clock.now())
