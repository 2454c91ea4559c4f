"""The store: the durable truth, as the rest of Cronwell sees it.

Reads and single-statement writes are methods of `Store`. What must happen together happens inside
`async with store.transaction() as tx`: it commits when the block ends and rolls back on any exception. Every time
is an argument; rows of one tenant are never given to another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import date, datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from cronwell.model.execution import ExecutionKey
from cronwell.store.access_port import AccessStore, ApiKey, Tenant
from cronwell.store.alerts_port import AlertChanges, AlertStore, Incident, KeptChannel, KeptRule, WatchedJob
from cronwell.store.audit_port import AuditEntry, AuditFilter, AuditStore, Link
from cronwell.store.backfill import Backfill, BackfillState, ByDefinition
from cronwell.store.callback_port import CallbackChanges, CallbackStore, Called, Told
from cronwell.store.cluster_port import (
    Abandoned,
    ClusterChanges,
    ClusterStore,
    Finding,
    Node,
    Pulse,
    Shard,
    Suspect,
)
from cronwell.store.dependency_port import (
    AtSlot,
    DependencyChanges,
    DependencyReads,
    Dependent,
    Edge,
    JobPlace,
    NamedJob,
    Prospect,
    Revised,
    SlotPlace,
    UpstreamResult,
    WaitingSlot,
)
from cronwell.store.hosts_port import HeldBack, HostState, HostStore, TargetLimit, Throttling
from cronwell.store.records import (
    Answer,
    Attempt,
    Awaited,
    Backlog,
    Claimed,
    Confirmed,
    Cursor,
    Definition,
    Ended,
    Execution,
    ExecutionFilter,
    Job,
    JobFilter,
    Move,
    NewExecution,
    NewJob,
    Orphan,
    Report,
    Touched,
    Worker,
)
from cronwell.store.schedule_port import ScheduleChanges, ScheduleReads
from cronwell.store.schedule_records import (
    Accountable,
    CalendarUse,
    Herd,
    KeptCalendar,
    Override,
    Revision,
    Skip,
    Standing,
    WaitingOverride,
)
from cronwell.store.secrets_port import KeptSecret, Rewrapped, SealedSecret, SecretChanges, SecretStore
from cronwell.store.work_port import EVER, FIRST_GATE, LINES, Found, Gate, Halt, Line, Tier, WorkStore

__all__ = [
    "EVER",
    "FIRST_GATE",
    "LINES",
    "WAY_HOLDS",
    "Abandoned",
    "Accountable",
    "Answer",
    "ApiKey",
    "AtSlot",
    "Attempt",
    "AuditEntry",
    "AuditFilter",
    "Awaited",
    "Backfill",
    "BackfillState",
    "Backlog",
    "ByDefinition",
    "CalendarUse",
    "Called",
    "Claimed",
    "Confirmed",
    "Cursor",
    "Definition",
    "Dependent",
    "Edge",
    "Ended",
    "Execution",
    "ExecutionFilter",
    "Finding",
    "Found",
    "Gate",
    "Halt",
    "HeldBack",
    "Herd",
    "HostState",
    "Incident",
    "Job",
    "JobFilter",
    "JobPlace",
    "KeptCalendar",
    "KeptChannel",
    "KeptRule",
    "KeptSecret",
    "Line",
    "Link",
    "Move",
    "NamedJob",
    "NewExecution",
    "NewJob",
    "Node",
    "Orphan",
    "Override",
    "Prospect",
    "Pulse",
    "Report",
    "Revised",
    "Revision",
    "Rewrapped",
    "SealedSecret",
    "Shard",
    "Skip",
    "SlotPlace",
    "Standing",
    "Store",
    "Suspect",
    "TargetLimit",
    "Tenant",
    "Throttling",
    "Tier",
    "Told",
    "Touched",
    "Transaction",
    "UpstreamResult",
    "WaitingOverride",
    "WaitingSlot",
    "WatchedJob",
    "Worker",
]

WAY_HOLDS = timedelta(seconds=2)
"""So long after it is made is way kept for a transaction, at the least: see `Transaction.make_way`."""


class Transaction(
    AlertChanges,
    CallbackChanges,
    ClusterChanges,
    DependencyChanges,
    ScheduleChanges,
    SecretChanges,
    Protocol,
):
    """Changes that happen together or not at all."""

    # jobs
    async def insert_jobs(self, jobs: Sequence[NewJob], now: datetime) -> set[UUID]:
        """Add jobs and their cursors; the ids that come back were added, the others' names are taken. Of several with the
        same name the first is added."""
        ...

    async def count_jobs(self, tenant_id: int, added: int) -> None:
        """Count jobs that a tenant gets or, below 0, gives up, where they are limited; raises QuotaExceeded."""
        ...

    async def lock_job(self, tenant_id: int, job_id: UUID) -> Job | None: ...
    async def keep_revision(self, tenant_id: int, job_id: UUID, now: datetime) -> None: ...
    async def keep_plan(self, tenant_id: int, job_id: UUID, now: datetime) -> None:
        """Keep by which plan a job went up to now; it goes by another one from now on, its definition stays."""
        ...

    async def update_job(self, job: NewJob, state: str, now: datetime) -> int:
        """Give a job a new definition and return its new revision; raises NameTaken."""
        ...

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
    ) -> None: ...
    async def put_cursor(
        self,
        cursor: Cursor,
        next_slot: datetime | None,
        *,
        is_held: bool = False,
        awaits: bool = False,
        held_until: datetime | None = None,
    ) -> None:
        """Set where a job stands. A held one is not finished; one held until a time is looked at again then."""
        ...

    async def drop_cursor(self, tenant_id: int, job_id: UUID) -> None: ...

    # staged and unfinished executions of a job
    async def drop_staged(self, tenant_id: int, job_id: UUID, after: datetime) -> int:
        """Unstage the slots of a job after a time, with what overrides wrote there; how many they were."""
        ...

    async def withhold_due(
        self, tenant_id: int, job_id: UUID, now: datetime, reason: str
    ) -> list[Touched]: ...
    async def rebase_open(
        self, job: NewJob, revision: int, priority: int, group: tuple[str, int] | None = None
    ) -> list[Touched]: ...
    async def make_way(self, tenant_id: int, job_id: UUID, now: datetime) -> datetime | None:
        """Have no worker claim what comes next of a limited job unless it sees what this transaction adds.

        What was claimed already, ahead of its instant, goes on; the last slot of those is told. The transaction has to
        be committed within `WAY_HOLDS`, and is ended by the store where it stands still for as long.
        """
        ...

    async def unfinished(self, tenant_id: int, job_id: UUID, now: datetime, limit: int) -> list[ExecutionKey]:
        """The executions of a job that have not ended and whose slot has come or that a worker has claimed, newest first."""
        ...

    async def insert_execution(self, new: NewExecution) -> bool:
        """Add an execution; False where its key is taken."""
        ...

    async def note_change(self, tenant_id: int, action: str, object_: str, after: str | None) -> None:
        """Write a change down in the name of whoever asked for it; `after` is JSON. Of most changes the store knows itself."""
        ...

    # staging
    async def lock_due(self, since: Mapping[int, datetime], until: datetime, each: int) -> list[Cursor]:
        """Cursors with a slot to stage up to `until`: of each shard so many, and none that stands before the moment given with it."""
        ...

    async def lock_awaiting(self, now: datetime, limit: int) -> list[tuple[Cursor, datetime | None]]:
        """Cursors that await the end of an execution which has ended, and when; None where that is not known."""
        ...

    async def stage(self, moves: Sequence[Move], now: datetime) -> None:
        """Write the verdicts and move the cursors, by compare-and-set; raises LeaseLost where one has moved."""
        ...

    async def record(self, moves: Sequence[Move], now: datetime) -> None:
        """Write the verdicts only; the caller sets the cursor itself."""
        ...

    async def note_uses(self, tenant_id: int, jobs: Sequence[UUID], uses: Sequence[CalendarUse]) -> set[str]:
        """Note what jobs follow, in place of what was noted; the calendars that are there come back."""
        ...

    # idempotency
    async def recall(self, tenant_id: int, key: str) -> Answer | None:
        """What was answered to this key; another request with it waits until this transaction ends."""
        ...

    async def remember(self, tenant_id: int, key: str, answer: Answer, now: datetime) -> None: ...


class Store(
    AccessStore,
    AlertStore,
    AuditStore,
    CallbackStore,
    ClusterStore,
    DependencyReads,
    HostStore,
    ScheduleReads,
    SecretStore,
    WorkStore,
    Protocol,
):
    """The durable truth."""

    def transaction(
        self, *, is_frequent: bool = False, lock_timeout: timedelta | None = None
    ) -> AbstractAsyncContextManager[Transaction]:
        """Changes that happen together. `is_frequent`: so small, and so many of them, that preparing each would show.
        Whoever waits for a lock for longer than `lock_timeout` is LockedOut."""
        ...

    # jobs
    async def get_job(self, tenant_id: int, job_id: UUID, now: datetime) -> Job | None: ...
    async def find_job(self, tenant_id: int, name: str) -> UUID | None: ...
    async def list_jobs(
        self, tenant_id: int, where: JobFilter, after: tuple[str, UUID] | None, limit: int, now: datetime
    ) -> list[Job]: ...
    async def definitions(self, keys: Sequence[tuple[int, UUID]]) -> list[Definition]: ...
    async def definitions_at(self, keys: Sequence[tuple[int, UUID, int]]) -> list[Definition]:
        """Definitions of jobs at revisions that have been replaced."""
        ...

    async def pauses_over(self, now: datetime, limit: int) -> list[tuple[int, UUID]]: ...
    async def signing_secret(self, tenant_id: int) -> str: ...

    # executions: what users do
    async def get_execution(self, tenant_id: int, key: ExecutionKey) -> Execution | None: ...
    async def list_executions(
        self, tenant_id: int, where: ExecutionFilter, after: ExecutionKey | None, limit: int
    ) -> list[Execution]: ...
    async def list_attempts(self, tenant_id: int, key: ExecutionKey) -> list[Attempt]: ...
    async def cancel_execution(self, tenant_id: int, key: ExecutionKey, now: datetime) -> Touched | None: ...
    async def revive_execution(self, tenant_id: int, key: ExecutionKey, now: datetime) -> str | None:
        """Give a dead letter new attempts and return its pool; None where it is not one."""
        ...

    async def redrive(
        self,
        tenant_id: int,
        where: ExecutionFilter,
        *,
        limit: int,
        rate: float,
        start: datetime,
        dead_by: datetime,
    ) -> list[str]: ...
    async def dismiss(self, tenant_id: int, key: ExecutionKey) -> bool: ...
    async def backlog(self, now: datetime) -> list[Backlog]: ...

    # workers
    async def register(self, worker: Worker) -> str:
        """Enter a worker; which incarnation of the database it entered in, the only one that lets it claim."""
        ...

    async def heartbeat(
        self, worker: UUID, now: datetime, lease_until: datetime, *, running: int, is_draining: bool
    ) -> str | None:
        """Lengthen a lease; which incarnation of the database did, or None where the worker was given up."""
        ...

    async def leave(self, worker: UUID, now: datetime) -> None: ...
    async def lose_workers(self, now: datetime) -> list[UUID]: ...
    async def orphans(self, limit: int) -> list[Orphan]: ...
    async def list_workers(self, seen_since: datetime) -> list[Worker]: ...

    # housekeeping
    async def ensure_day(self, day: date) -> bool: ...
    async def days(self) -> list[date]: ...
    async def drop_day(self, day: date) -> bool:
        """Drop a day of history; False where it still has unfinished executions."""
        ...

    async def finish_ended(self, now: datetime, limit: int) -> int: ...
    async def forget(self, *, keys_before: datetime, workers_before: datetime) -> None: ...
    async def ping(self) -> Any: ...
