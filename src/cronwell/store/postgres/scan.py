"""Looking for what should not be: jobs that nobody would fire again, executions that nobody holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from uuid import UUID

from cronwell.runtime.postgres import Connection, Database
from cronwell.runtime.statements import load_statements
from cronwell.store.cluster_port import Abandoned, Suspect

_SQL = load_statements(Path(__file__).with_suffix(".sql"))

Key = tuple[int, UUID]


class ScanReads:
    """The part of the store that the scanner reads."""

    _database: Database

    async def slice_end(self, after: Key, count: int) -> Key | None:
        row = await self._database.fetchrow(_SQL["slice_end"], *after, count - 1)
        return None if row is None else (row["tenant_id"], row["id"])

    async def suspects(
        self, after: Key, upto: Key, *, due_before: datetime, ended_before: datetime
    ) -> list[Suspect]:
        rows = await self._database.fetch(_SQL["suspects"], *after, *upto, due_before, ended_before)
        return [Suspect(*row) for row in rows]

    async def abandoned(self, before: datetime, examples: int) -> list[Abandoned]:
        rows = await self._database.fetch(_SQL["abandoned"], before, examples)
        return [Abandoned(row["worker"], row["held"], tuple(row["jobs"]), row["is_unknown"]) for row in rows]

    async def unserved(self, served: Collection[str], ready_by: datetime) -> dict[str, int]:
        rows = await self._database.fetch(_SQL["unserved"], ready_by, list(served))
        return {row["pool"]: row["depth"] for row in rows}

    async def enter_lost(self, workers: Sequence[UUID], now: datetime) -> None:
        await self._database.execute(_SQL["enter_lost"], list(workers), now)


class ScanChanges:
    """The part of a transaction that looks again before it mends."""

    _connection: Connection

    async def suspect(self, key: Key, *, due_before: datetime, ended_before: datetime) -> Suspect | None:
        tenant_id, job_id = key
        just_before = UUID(int=max(0, job_id.int - 1))
        row = await self._connection.fetchrow(
            _SQL["suspects"], tenant_id, just_before, tenant_id, job_id, due_before, ended_before
        )
        return None if row is None else Suspect(*row)
