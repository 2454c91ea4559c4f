"""What the rules of alerts look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from uuid import UUID

import asyncpg
import orjson

from cronwell.model.alert_judging import Run, Success
from cronwell.runtime.postgres import Database
from cronwell.runtime.statements import load_statements
from cronwell.store.alerts_port import WatchedJob
from cronwell.store.postgres.rows import STATES

_SQL = load_statements(Path(__file__).with_suffix(".sql"))


class AlertEvidence:
    """The part of the store that reads what rules of alerts judge."""

    _database: Database

    async def watched_by_name(self, tenant_id: int, names: Sequence[str]) -> list[WatchedJob]:
        rows = await self._database.fetch(_SQL["watched_by_name"], tenant_id, list(names))
        return [WatchedJob(*row) for row in rows]

    async def watched_by_id(self, tenant_id: int, ids: Sequence[UUID]) -> list[WatchedJob]:
        rows = await self._database.fetch(_SQL["watched_by_id"], tenant_id, list(ids))
        return [WatchedJob(*row) for row in rows]

    async def watched_slice(
        self, tenant_id: int, after: UUID, tags: Mapping[str, str], size: int
    ) -> tuple[list[WatchedJob], UUID | None]:
        wanted = orjson.dumps(dict(tags)).decode()
        rows = await self._database.fetch(_SQL["watched_slice"], tenant_id, after, wanted, size)
        return [WatchedJob(*row[1:]) for row in rows if row["id"] is not None], rows[0]["ended_at"]

    async def newest_runs(
        self, tenant_id: int, jobs: Sequence[UUID], now: datetime, limit: int
    ) -> dict[UUID, list[Run]]:
        return _runs(await self._database.fetch(_SQL["newest_runs"], tenant_id, list(jobs), now, limit))

    async def last_successes(
        self, tenant_id: int, jobs: Sequence[UUID], since: datetime, now: datetime, limit: int
    ) -> dict[UUID, Success]:
        rows = await self._database.fetch(_SQL["last_successes"], tenant_id, list(jobs), since, now, limit)
        return {row["job_id"]: Success(row["finished_at"], row["is_known"]) for row in rows}

    async def dead_by_job(self, tenant_id: int, limit: int) -> dict[UUID, int]:
        rows = await self._database.fetch(_SQL["dead_by_job"], tenant_id, limit)
        return {row["job_id"]: row["dead"] for row in rows}

    async def waiting_long(self, tenant_id: int, since: datetime, limit: int) -> dict[UUID, list[Run]]:
        return _runs(await self._database.fetch(_SQL["waiting_long"], tenant_id, since, limit))

    async def running_long(self, tenant_id: int, since: datetime, limit: int) -> dict[UUID, list[Run]]:
        return _runs(await self._database.fetch(_SQL["running_long"], tenant_id, since, limit))

    async def waiting_depth(self, tenant_id: int, now: datetime, limit: int) -> dict[str, int]:
        rows = await self._database.fetch(_SQL["waiting_depth"], tenant_id, now, limit)
        return {row["pool"]: row["depth"] for row in rows}


def _runs(rows: Iterable[asyncpg.Record]) -> dict[UUID, list[Run]]:
    """Executions by job, in the order in which they come."""
    found: dict[UUID, list[Run]] = {}
    for row in rows:
        run = Run(STATES[row["state"]], row["slot"], row["ready_at"], row["started_at"])
        found.setdefault(row["job_id"], []).append(run)
    return found
