"""The store's transaction: changes of jobs, their cursors and their staged slots that happen together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from pathlib import Path
from uuid import UUID

import asyncpg

from cronwell import errors
from cronwell.model import zones
from cronwell.model.execution import ExecutionKey
from cronwell.model.shards import shard_of
from cronwell.runtime.statements import load_statements
from cronwell.store.port import WAY_HOLDS, Answer, Cursor, Job, NewExecution, NewJob, Touched
from cronwell.store.postgres.alerts import AlertWrites
from cronwell.store.postgres.audit import note_change
from cronwell.store.postgres.backfills import BackfillWrites
from cronwell.store.postgres.calendars import CalendarNotes
from cronwell.store.postgres.callbacks import CallbackLocks
from cronwell.store.postgres.overrides import OverrideChanges
from cronwell.store.postgres.rows import (
    changed_by,
    columns,
    job_of,
    key_of,
    touched_of,
)
from cronwell.store.postgres.scan import ScanChanges
from cronwell.store.postgres.secrets import SecretNotes
from cronwell.store.postgres.shards import ShardChanges
from cronwell.store.postgres.staging import StagingWrites
from cronwell.store.postgres.tzdata import TzdataChanges

_HERE = Path(__file__).parent
_ACCESS = load_statements(_HERE / "access.sql")
_JOBS = load_statements(_HERE / "jobs.sql")
_IDEMPOTENCY = load_statements(_HERE / "idempotency.sql")


# Further ahead than any worker claims before a transaction that makes way has ended: it does where its process stands still, or
# where it waits for a lock, and whoever makes way begins to commit within `WAY_HOLDS` or not at all.
IMMINENT = timedelta(seconds=5)


class PostgresTransaction(
    AlertWrites,
    BackfillWrites,
    CalendarNotes,
    CallbackLocks,
    OverrideChanges,
    ScanChanges,
    SecretNotes,
    ShardChanges,
    StagingWrites,
    TzdataChanges,
):
    """Implements `store.port.Transaction` on one connection."""

    _is_uncounted = False
    """Jobs were added, to a tenant that may have any number of them and keeps that until the transaction has ended."""

    async def insert_jobs(self, jobs: Sequence[NewJob], now: datetime) -> set[UUID]:
        made = (
            (
                job.tenant_id,
                job.id,
                job.name,
                job.pool,
                job.target_kind,
                job.tags,
                job.spec,
                shard_of(job.id),
                job.next_slot,
                job.plan,
                job.runs_left,
                job.awaits,
                job.held_until,
            )
            # Two that add the same names must not meet each other halfway.
            for job in sorted(jobs, key=attrgetter("name"))
        )
        added = await self._connection.fetch(_JOBS["insert_jobs"], *columns(made, 13), now, zones.version())
        self._is_uncounted = bool(added) and not added[0]["is_counted"]
        return {row["id"] for row in added}

    async def count_jobs(self, tenant_id: int, added: int) -> None:
        if added >= 0 and self._is_uncounted:
            return
        if added < 0:
            await self._connection.execute(_ACCESS["hold_tenant"], tenant_id)
        row = await self._connection.fetchrow(_ACCESS["count_jobs"], tenant_id, added)
        if row is not None and added > 0 and row["jobs"] > row["max_jobs"]:
            raise errors.QuotaExceeded(has=row["jobs"] - added, most=row["max_jobs"])

    async def lock_job(self, tenant_id: int, job_id: UUID) -> Job | None:
        await self._connection.execute(_JOBS["await_changes"], tenant_id, job_id)
        row = await self._connection.fetchrow(_JOBS["lock_job"], tenant_id, job_id)
        return None if row is None else job_of(row)

    async def keep_revision(self, tenant_id: int, job_id: UUID, now: datetime) -> None:
        await self._connection.execute(_JOBS["keep_revision"], tenant_id, job_id, now)

    async def keep_plan(self, tenant_id: int, job_id: UUID, now: datetime) -> None:
        await self._connection.execute(_JOBS["keep_revision"], tenant_id, job_id, now)
        await self._connection.execute(_JOBS["begin_plan"], tenant_id, job_id, now)

    async def update_job(self, job: NewJob, state: str, now: datetime) -> int:
        try:
            revision: int = await self._connection.fetchval(
                _JOBS["update_job"],
                job.tenant_id,
                job.id,
                job.name,
                state,
                job.pool,
                job.target_kind,
                job.tags,
                job.spec,
                now,
            )
        except asyncpg.UniqueViolationError:
            raise errors.NameTaken(f"another job is named {job.name!r}") from None
        return revision

    async def set_job_state(
        self,
        tenant_id: int,
        job_id: UUID,
        state: str,
        now: datetime,
        *,
        note: str | None = None,
        paused_at: datetime | None = None,
        until: datetime | None = None,
    ) -> None:
        await self._connection.execute(
            _JOBS["set_job_state"], tenant_id, job_id, state, note, paused_at, until, now
        )

    async def put_cursor(
        self,
        cursor: Cursor,
        next_slot: datetime | None,
        *,
        is_held: bool = False,
        awaits: bool = False,
        held_until: datetime | None = None,
    ) -> None:
        await self._connection.execute(
            _JOBS["put_cursor"],
            cursor.tenant_id,
            cursor.job_id,
            shard_of(cursor.job_id),
            is_held or held_until is not None,
            cursor.revision,
            next_slot,
            cursor.plan,
            cursor.runs_left,
            awaits,
            zones.version(),
            held_until,
        )

    async def drop_cursor(self, tenant_id: int, job_id: UUID) -> None:
        await self._connection.execute(_JOBS["drop_cursor"], tenant_id, job_id)

    async def drop_staged(self, tenant_id: int, job_id: UUID, after: datetime) -> int:
        dropped = await self._connection.execute(_JOBS["drop_staged"], tenant_id, job_id, after)
        return changed_by(dropped)

    async def withhold_due(self, tenant_id: int, job_id: UUID, now: datetime, reason: str) -> list[Touched]:
        rows = await self._connection.fetch(_JOBS["withhold_due"], tenant_id, job_id, now, reason)
        return [touched_of(row) for row in rows]

    async def rebase_open(
        self, job: NewJob, revision: int, priority: int, group: tuple[str, int] | None = None
    ) -> list[Touched]:
        rows = await self._connection.fetch(
            _JOBS["rebase_open"],
            job.tenant_id,
            job.id,
            revision,
            job.pool,
            priority,
            *(group or (None, None)),
        )
        return [touched_of(row) for row in rows]

    async def make_way(self, tenant_id: int, job_id: UUID, now: datetime) -> datetime | None:
        # Way is made for so far ahead of now. What is added must be there long before workers claim what lies further.
        await self._connection.execute(_JOBS["hurry"], f"{WAY_HOLDS // timedelta(milliseconds=1)}ms")
        # Two statements: the second sees what was claimed while the first waited.
        given = (tenant_id, job_id, now, now + IMMINENT)
        await self._connection.execute(_JOBS["make_way"], *given)
        begun: datetime | None = await self._connection.fetchval(_JOBS["begun_ahead"], *given)
        return begun

    async def unfinished(self, tenant_id: int, job_id: UUID, now: datetime, limit: int) -> list[ExecutionKey]:
        rows = await self._connection.fetch(_JOBS["unfinished"], tenant_id, job_id, now, limit)
        return [key_of(row) for row in rows]

    async def insert_execution(self, new: NewExecution) -> bool:
        return bool(await self.insert_executions([new]))

    async def note_change(self, tenant_id: int, action: str, object_: str, after: str | None) -> None:
        await note_change(self._connection, tenant_id, action, object_, after)

    async def recall(self, tenant_id: int, key: str) -> Answer | None:
        # Two statements: the second sees what the holder of the lock committed while this one waited.
        await self._connection.execute(_IDEMPOTENCY["lock_key"], tenant_id, key)
        row = await self._connection.fetchrow(_IDEMPOTENCY["recall"], tenant_id, key)
        return None if row is None else Answer(row["fingerprint"], row["status"], row["body"])

    async def remember(self, tenant_id: int, key: str, answer: Answer, now: datetime) -> None:
        await self._connection.execute(
            _IDEMPOTENCY["remember"], tenant_id, key, answer.fingerprint, answer.status, answer.body, now
        )
