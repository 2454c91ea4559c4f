"""Workers and their leases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from uuid import UUID, uuid4

from cronwell.model.execution import ExecutionKey
from cronwell.runtime.acting import acting_for_nobody
from cronwell.runtime.postgres import Database
from cronwell.runtime.statements import load_statements
from cronwell.store.port import Orphan, Worker
from cronwell.store.postgres.rows import columns, key_of, orphan_of, worker_of

_SQL = load_statements(Path(__file__).with_suffix(".sql"))


class WorkerRows:
    """The part of the store that keeps workers."""

    _database: Database

    async def register(self, worker: Worker) -> str:
        incarnation: str = await self._database.fetchval(
            _SQL["register"],
            worker.id,
            worker.name,
            worker.version,
            list(worker.pools),
            list(worker.handlers),
            worker.concurrency,
            worker.started_at,
            worker.lease_until,
            worker.node,
        )
        return incarnation

    async def heartbeat(
        self, worker: UUID, now: datetime, lease_until: datetime, *, running: int, is_draining: bool
    ) -> str | None:
        incarnation: str | None = await self._database.fetchval(
            _SQL["heartbeat"], worker, now, lease_until, running, is_draining
        )
        return incarnation

    async def leave(self, worker: UUID, now: datetime) -> None:
        await self._database.execute(_SQL["leave"], worker, now)

    async def held_by(self, worker: UUID) -> list[tuple[int, ExecutionKey, int]]:
        rows = await self._database.fetch(_SQL["held_by"], worker)
        return [(row["tenant_id"], key_of(row), row["fence"]) for row in rows]

    async def disown(
        self, worker: UUID, claims: Sequence[tuple[int, ExecutionKey, int]], now: datetime
    ) -> None:
        await self._database.execute(
            _SQL["disown"],
            worker,
            uuid4(),
            now,
            *columns(((t, k.job_id, k.kind, k.slot, fence) for t, k, fence in claims), 5),
        )

    async def lose_workers(self, now: datetime) -> list[UUID]:
        return [row["id"] for row in await self._database.fetch(_SQL["lose_workers"], now)]

    async def orphans(self, limit: int) -> list[Orphan]:
        return [orphan_of(row) for row in await self._database.fetch(_SQL["orphans"], limit)]

    async def list_workers(self, seen_since: datetime) -> list[Worker]:
        with acting_for_nobody():
            return [worker_of(row) for row in await self._database.fetch(_SQL["list_workers"], seen_since)]
