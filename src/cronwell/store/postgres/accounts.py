"""What became of the slots of the past: the definitions that held then, and the ranges that were not run."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from uuid import UUID

from cronwell.runtime.postgres import Database
from cronwell.runtime.statements import load_statements
from cronwell.store.port import Revision, Skip

_SQL = load_statements(Path(__file__).with_suffix(".sql"))


class AccountReads:
    """The part of the store that answers for the past."""

    _database: Database

    async def revision_at(self, tenant_id: int, job_id: UUID, at: datetime) -> Revision | None:
        row = await self._database.fetchrow(_SQL["revision_at"], tenant_id, job_id, at)
        return None if row is None else Revision(*row)

    async def last_plan(self, tenant_id: int, job_id: UUID) -> str | None:
        plan: str | None = await self._database.fetchval(_SQL["last_plan"], tenant_id, job_id)
        return plan

    async def revisions_over(
        self, tenant_id: int, job_id: UUID, begin: datetime, end: datetime, limit: int
    ) -> list[Revision]:
        rows = await self._database.fetch(_SQL["revisions_over"], tenant_id, job_id, begin, end, limit)
        return [Revision(*row) for row in rows]

    async def skips_over(self, tenant_id: int, job_id: UUID, at: datetime) -> list[Skip]:
        rows = await self._database.fetch(_SQL["skips_over"], tenant_id, job_id, at)
        return [Skip(*row) for row in rows]
