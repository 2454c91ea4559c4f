"""Backfills: what was asked for, how far it has come, and the executions that it stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from cronwell.model.execution import ExecutionKey, Kind, State
from cronwell.model.job import Group
from cronwell.runtime.postgres import Database
from cronwell.runtime.statements import load_statements
from cronwell.store.port import Backfill, NewExecution
from cronwell.store.postgres.days import DayChanges
from cronwell.store.postgres.rows import STATES, Row, columns, key_of, waiting_of

_SQL = load_statements(Path(__file__).with_suffix(".sql"))


class BackfillReads:
    """The part of the store that reads backfills."""

    _database: Database

    async def get_backfill(self, tenant_id: int, backfill_id: UUID) -> Backfill | None:
        row = await self._database.fetchrow(_SQL["get_backfill"], tenant_id, backfill_id)
        return None if row is None else _backfill_of(row)

    async def list_backfills(
        self, tenant_id: int, job_id: UUID | None, state: str | None, after: UUID | None, limit: int
    ) -> list[Backfill]:
        rows = await self._database.fetch(_SQL["list_backfills"], tenant_id, job_id, state, after, limit)
        return [_backfill_of(row) for row in rows]

    async def open_backfills(self, limit: int) -> list[tuple[int, UUID]]:
        rows = await self._database.fetch(_SQL["open_backfills"], limit)
        return [(row["tenant_id"], row["id"]) for row in rows]

    async def count_backfilled(
        self, tenant_id: int, job_id: UUID, begin: datetime, end: datetime, most: int
    ) -> int:
        count: int = await self._database.fetchval(
            _SQL["count_backfilled"], tenant_id, job_id, begin, end, most
        )
        return count


class BackfillWrites(DayChanges):
    """The part of a transaction that moves backfills."""

    async def insert_backfill(self, backfill: Backfill) -> None:
        await self._connection.execute(
            _SQL["insert_backfill"],
            backfill.tenant_id,
            backfill.id,
            backfill.job_id,
            backfill.state,
            backfill.from_slot,
            backfill.to_slot,
            backfill.definition,
            backfill.is_newest_first,
            backfill.rate,
            backfill.concurrency,
            backfill.spans,
            backfill.slots,
            backfill.next_ready_at,
            backfill.payload,
            backfill.note,
            backfill.created_at,
        )

    async def lock_backfill(self, tenant_id: int, backfill_id: UUID) -> Backfill | None:
        row = await self._connection.fetchrow(_SQL["lock_backfill"], tenant_id, backfill_id)
        if row is None:
            return None
        job = await self._connection.fetchrow(_SQL["share_job"], tenant_id, row["job_id"])
        assert job is not None, "a job that has been backfilled stays, if only as a deleted one"
        return _backfill_of({**row, **job})

    async def put_backfill(self, backfill: Backfill) -> None:
        await self._connection.execute(
            _SQL["put_backfill"],
            backfill.tenant_id,
            backfill.id,
            backfill.state,
            backfill.reached,
            backfill.next_ready_at,
            backfill.staged,
            backfill.passed_over,
            backfill.succeeded,
            backfill.failed,
            list(backfill.unfinished),
            backfill.updated_at,
            backfill.finished_at,
            backfill.note,
        )

    async def backfilled(
        self, tenant_id: int, job_id: UUID, slots: Sequence[datetime]
    ) -> dict[datetime, State]:
        rows = await self._connection.fetch(_SQL["backfilled"], *_keys(tenant_id, job_id, slots))
        return {row["slot"]: STATES[row["state"]] for row in rows}

    async def insert_executions(self, new: Sequence[NewExecution]) -> set[ExecutionKey]:
        await self._ensure_days(each.key.slot for each in new)
        rows = await self._connection.fetch(
            _SQL["insert_asked"],
            *columns(
                (
                    (
                        each.tenant_id,
                        each.key.job_id,
                        each.key.kind,
                        each.key.slot,
                        each.ready_at,
                        each.revision,
                        each.priority,
                        each.running_limit,
                        each.pool,
                        each.payload,
                        each.reason,
                        *waiting_of(each),
                    )
                    for each in new
                ),
                15,
            ),
        )
        return {key_of(row) for row in rows}

    async def withdraw(
        self, tenant_id: int, job_id: UUID, slots: Sequence[datetime], now: datetime
    ) -> set[datetime]:
        keys = _keys(tenant_id, job_id, slots)
        rows = await self._connection.fetch(_SQL["unstage"], *keys)
        await self._connection.execute(_SQL["end_retries"], *keys, now)
        return {row["slot"] for row in rows}


def _keys(tenant_id: int, job_id: UUID, slots: Sequence[datetime]) -> list[list[Any]]:
    """Columns of keys: the planner goes by the whole key only where all of it comes from the same place."""
    return columns(((tenant_id, job_id, Kind.BACKFILL, slot) for slot in slots), 4)


def _backfill_of(row: Row | Mapping[str, Any]) -> Backfill:
    group = row["job_group"]
    named = None if group is None else Group.model_validate_json(group)
    return Backfill(
        **{
            **row,
            "unfinished": tuple(row["unfinished"]),
            "job_group": None if named is None else (named.key, named.limit),
        }
    )
