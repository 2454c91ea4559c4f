"""Calendars, and which jobs follow them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from uuid import UUID

from cronwell.runtime.postgres import Connection, Database
from cronwell.runtime.statements import load_statements
from cronwell.store.port import CalendarUse, KeptCalendar

_SQL = load_statements(Path(__file__).with_suffix(".sql"))


class CalendarRows:
    """The part of the store that keeps calendars."""

    _database: Database

    async def put_calendar(
        self, tenant_id: int, name: str, content: str, now: datetime, *, revision: int | None
    ) -> int | None:
        kept: int | None = await self._database.fetchval(
            _SQL["put_calendar"], tenant_id, name, content, now, revision
        )
        return kept

    async def get_calendars(self, tenant_id: int, names: Sequence[str]) -> list[KeptCalendar]:
        rows = await self._database.fetch(_SQL["get_calendars"], tenant_id, list(names))
        return [KeptCalendar(*row) for row in rows]

    async def list_calendars(self, tenant_id: int, after: str | None, limit: int) -> list[KeptCalendar]:
        rows = await self._database.fetch(_SQL["list_calendars"], tenant_id, after, limit)
        return [KeptCalendar(*row) for row in rows]

    async def calendar_users(self, tenant_id: int, name: str, most: int) -> int:
        count: int = await self._database.fetchval(_SQL["calendar_users"], tenant_id, name, most)
        return count

    async def shifting_users(self, tenant_id: int, name: str, most: int) -> list[str]:
        rows = await self._database.fetch(_SQL["shifting_users"], tenant_id, name, most)
        return [row["name"] for row in rows]

    async def drop_calendar(self, tenant_id: int, name: str) -> bool:
        return await self._database.fetchval(_SQL["drop_calendar"], tenant_id, name) is not None

    async def waits_over(self, now: datetime, limit: int) -> list[tuple[int, UUID]]:
        rows = await self._database.fetch(_SQL["waits_over"], now, limit)
        return [(row["tenant_id"], row["job_id"]) for row in rows]

    async def outdated_uses(self, limit: int) -> list[tuple[int, UUID]]:
        rows = await self._database.fetch(_SQL["outdated_uses"], limit)
        return [(row["tenant_id"], row["job_id"]) for row in rows]


class CalendarNotes:
    """The part of a transaction that notes which calendars a job follows."""

    _connection: Connection

    async def note_uses(self, tenant_id: int, jobs: Sequence[UUID], uses: Sequence[CalendarUse]) -> set[str]:
        await self._connection.execute(_SQL["forget_uses"], tenant_id, list(jobs))
        if not uses:
            return set()
        rows = await self._connection.fetch(
            _SQL["note_uses"],
            tenant_id,
            [each.calendar for each in uses],
            [each.job_id for each in uses],
            [each.revision for each in uses],
        )
        return {row["calendar"] for row in rows}
