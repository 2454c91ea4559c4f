"""Cursors and the release of the zones' rules that they go by."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from cronwell.runtime.postgres import Connection, Database
from cronwell.runtime.statements import load_statements
from cronwell.store.port import Cursor, Standing
from cronwell.store.postgres.rows import columns, cursor_of

_SQL = load_statements(Path(__file__).with_suffix(".sql"))

Key = tuple[int, UUID]


class TzdataReads:
    """The part of the store that finds cursors by the release they go by."""

    _database: Database

    async def window_end(self, after: Key, upto: Key, count: int) -> Key | None:
        row = await self._database.fetchrow(_SQL["window_end"], *after, *upto, count - 1)
        return None if row is None else (row["tenant_id"], row["job_id"])

    async def stale_cursors(self, after: Key, upto: Key, releases: Sequence[str]) -> list[Cursor]:
        rows = await self._database.fetch(_SQL["stale_cursors"], *after, *upto, list(releases))
        return [cursor_of(row) for row in rows]

    async def standings(self, keys: Sequence[Key], now: datetime, back: timedelta) -> list[Standing]:
        return await _standings(self._database, keys, now, back)


class TzdataChanges:
    """The part of the transaction that moves cursors to another release."""

    _connection: Connection

    async def lock_cursors(self, keys: Sequence[Key]) -> None:
        await self._connection.fetch(_SQL["lock_cursors"], *columns(keys, 2))

    async def standings(self, keys: Sequence[Key], now: datetime, back: timedelta) -> list[Standing]:
        return await _standings(self._connection, keys, now, back)

    async def mark_tzdata(self, cursors: Sequence[Cursor], tzdata: str) -> int:
        marked = await self._connection.execute(
            _SQL["mark_tzdata"],
            *columns(((c.tenant_id, c.job_id, c.revision, c.next_slot) for c in cursors), 4),
            tzdata,
        )
        return int(marked.rpartition(" ")[2])


async def _standings(
    source: Database | Connection, keys: Sequence[Key], now: datetime, back: timedelta
) -> list[Standing]:
    rows = await source.fetch(_SQL["standings"], *columns(keys, 2), now, back)
    return [
        Standing(
            cursor=Cursor(*row[:7]),
            name=row["name"],
            since=row["since"],
            reached=row["reached"],
            ahead=tuple(row["ahead"]),
        )
        for row in rows
    ]
