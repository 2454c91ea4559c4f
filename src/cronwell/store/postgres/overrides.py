"""Overrides: kept and read, and written over the slots that they are for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from cronwell.model.execution import State
from cronwell.runtime.postgres import Database
from cronwell.runtime.statements import load_statements
from cronwell.store.port import Cursor, Move, Override, WaitingOverride
from cronwell.store.postgres.days import DayChanges
from cronwell.store.postgres.rows import STATES, columns, waiting_of

_SQL = load_statements(Path(__file__).with_suffix(".sql"))


class OverrideReads:
    """The part of the store that reads overrides."""

    _database: Database

    async def get_override(self, tenant_id: int, job_id: UUID, slot: datetime) -> Override | None:
        row = await self._database.fetchrow(_SQL["get_override"], tenant_id, job_id, slot)
        return None if row is None else Override(*row)

    async def list_overrides(
        self, tenant_id: int, job_id: UUID, before: datetime | None, limit: int
    ) -> list[Override]:
        rows = await self._database.fetch(_SQL["list_overrides"], tenant_id, job_id, before, limit)
        return [Override(*row) for row in rows]

    async def overrides_of(
        self, tenant_id: int, job_id: UUID, after: datetime, now: datetime
    ) -> list[Override]:
        rows = await self._database.fetch(_SQL["overrides_after"], tenant_id, job_id, after, now)
        return [Override(*row) for row in rows]

    async def overrides_waiting(
        self, now: datetime, until: datetime, longest: timedelta, after: WaitingOverride | None, limit: int
    ) -> list[WaitingOverride]:
        place = (None, None, None) if after is None else (after.due_at, after.job_id, after.slot)
        rows = await self._database.fetch(_SQL["overrides_waiting"], now, until, longest, *place, limit)
        return [WaitingOverride(*row) for row in rows]

    async def forget_overrides(self, before: datetime) -> None:
        await self._database.execute(_SQL["forget_overrides"], before)


class OverrideChanges(DayChanges):
    """The part of the store's transaction that changes overrides and the slots that they are for."""

    async def put_override(self, override: Override) -> None:
        await self._connection.execute(
            _SQL["put_override"],
            override.tenant_id,
            override.job_id,
            override.slot,
            override.action,
            override.ready_at,
            override.payload,
            override.note,
            override.author,
            override.expires_at,
            override.created_at,
        )

    async def drop_override(self, tenant_id: int, job_id: UUID, slot: datetime) -> bool:
        dropped = await self._connection.fetchval(_SQL["drop_override"], tenant_id, job_id, slot)
        return dropped is not None

    async def overrides_after(
        self, tenant_id: int, job_id: UUID, after: datetime, now: datetime
    ) -> list[Override]:
        rows = await self._connection.fetch(_SQL["overrides_after"], tenant_id, job_id, after, now)
        return [Override(*row) for row in rows]

    async def write_decided(self, move: Move, now: datetime) -> set[datetime]:
        if not move.planned:
            return set()
        await self._ensure_days([each.slot for each in move.planned])
        rows = await self._connection.fetch(
            _SQL["insert_decided"],
            move.cursor.tenant_id,
            move.cursor.job_id,
            move.cursor.revision,
            move.priority,
            move.running_limit,
            move.pool,
            *columns(
                (
                    (
                        each.slot,
                        each.ready_at,
                        each.state,
                        each.payload,
                        each.reason,
                        now if each.state is State.SKIPPED else None,
                    )
                    for each in move.planned
                ),
                6,
            ),
            *waiting_of(move),
        )
        written = {row["slot"] for row in rows}
        await self._connection.execute(
            _SQL["overrides_applied"], move.cursor.tenant_id, move.cursor.job_id, list(written), now
        )
        return written

    async def clear_slot(self, tenant_id: int, job_id: UUID, slot: datetime) -> State | None:
        # Two statements: the second sees what a claim committed while the first one waited for it.
        await self._connection.execute(_SQL["clear_slot"], tenant_id, job_id, slot)
        return await self.slot_state(tenant_id, job_id, slot)

    async def slot_state(self, tenant_id: int, job_id: UUID, slot: datetime) -> State | None:
        state = await self._connection.fetchval(_SQL["slot_state"], tenant_id, job_id, slot)
        return None if state is None else STATES[state]

    async def count_ahead(
        self, tenant_id: int, job_id: UUID, after: datetime, before: datetime | None
    ) -> int:
        count: int = await self._connection.fetchval(_SQL["count_ahead"], tenant_id, job_id, after, before)
        return count

    async def slots_left_out(
        self, cursors: Sequence[Cursor], until: datetime
    ) -> dict[tuple[int, UUID], frozenset[datetime]]:
        rows = await self._connection.fetch(
            _SQL["slots_left_out"],
            *columns(((c.tenant_id, c.job_id, c.next_slot) for c in cursors), 3),
            until,
        )
        found: dict[tuple[int, UUID], set[datetime]] = {}
        for row in rows:
            found.setdefault((row["tenant_id"], row["job_id"]), set()).add(row["slot"])
        return {job: frozenset(slots) for job, slots in found.items()}
