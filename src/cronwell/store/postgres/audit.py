"""Who changed what, as the database has written it down."""

from __future__ import annotations

from pathlib import Path

from cronwell.runtime.postgres import Connection, Database
from cronwell.runtime.statements import load_statements
from cronwell.store.audit_port import AuditEntry, AuditFilter, Link

_SQL = load_statements(Path(__file__).with_suffix(".sql"))


async def note_change(
    connection: Connection, tenant_id: int, action: str, object_: str, after: str | None = None
) -> None:
    """Write down a change of which no trigger knows, in the transaction that makes it."""
    await connection.execute(_SQL["note_change"], tenant_id, action, object_, after)


class AuditReads:
    """The part of the store that knows who changed what."""

    _database: Database

    async def list_audit(
        self, tenant_id: int, where: AuditFilter, after: int | None, limit: int
    ) -> list[AuditEntry]:
        rows = await self._database.fetch(
            _SQL["list_audit"],
            tenant_id,
            after,
            where.object,
            where.actor,
            where.action,
            where.request_id,
            where.since,
            where.before,
            limit,
        )
        return [AuditEntry(*row) for row in rows]

    async def check_audit(self, tenant_id: int, after: int, limit: int) -> list[Link]:
        rows = await self._database.fetch(_SQL["check_audit"], tenant_id, after, limit)
        return [Link(row["number"], row["digest"], row["is_whole"]) for row in rows]

    async def count_unsealed(self, tenant_id: int) -> int:
        count: int = await self._database.fetchval(_SQL["count_unsealed"], tenant_id)
        return count

    async def seal_audit(self, limit: int) -> int:
        sealed: int = await self._database.fetchval(_SQL["seal_audit"], limit)
        return sealed
