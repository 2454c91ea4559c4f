"""The store: the durable truth, as the rest of Cronwell sees it.

Reads and single-statement writes are methods of `Store`. What must happen together happens inside
`async with store.transaction() as tx`: it commits when the block ends and rolls back on any exception. Every time
is an argument; rows of one tenant are never given to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Protocol
from uuid import UUID

from cronwell.model.execution import ExecutionKey, Kind, Result, State
from cronwell.model.planning import PlannedSlot, SkippedRange


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be added. `spec` is the definition as JSON text; without a schedule there is no plan."""

    tenant_id: int
    id: UUID
    name: str
    pool: str
    target_kind: str
    tags: str
    spec: str
    plan: str | None
    next_slot: datetime | None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is kept, with its cursor."""

    tenant_id: int
    id: UUID
    name: str
    state: str
    revision: int
    pool: str
    target_kind: str
    spec: str
    pause_note: str | None
    paused_at: datetime | None
    paused_until: datetime | None
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None
    next_slot: datetime | None
    """The first slot that is not staged yet."""
    plan: str | None
    staged_at: datetime | None
    """When the next staged slot becomes ready."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    state: str | None = None
    name_prefix: str | None = None
    tags: dict[str, str] | None = None
    pool: str | None = None
    target_kind: str | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a job stands, as staging locks it."""

    tenant_id: int
    job_id: UUID
    revision: int
    next_slot: datetime
    plan: str


@dataclass(frozen=True, slots=True)
class Move:
    """A step of a cursor, with the verdicts of the slots that it passes."""

    cursor: Cursor
    planned: Sequence[PlannedSlot]
    ranges: Sequence[SkippedRange]
    next_slot: datetime | None
    pool: str
    priority: int
    running_limit: int | None


@dataclass(frozen=True, slots=True)
class Claimed:
    """An execution that a worker now owns, until its fence is passed on."""

    tenant_id: int
    key: ExecutionKey
    ready_at: datetime
    attempt: int
    fence: int
    revision: int
    priority: int
    payload: str | None


@dataclass(frozen=True, slots=True)
class Definition:
    """What a worker knows of a job."""

    tenant_id: int
    job_id: UUID
    name: str
    revision: int
    state: str
    spec: str


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended and what the execution becomes."""

    tenant_id: int
    key: ExecutionKey
    fence: int
    state: State
    result: Result
    started_at: datetime | None
    finished_at: datetime
    ready_at: datetime | None = None
    """When the next attempt is due, where `state` is retrying."""
    error_kind: str | None = None
    error: str | None = None
    output: str | None = None
    output_truncated: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What a running attempt has to tell."""

    tenant_id: int
    key: ExecutionKey
    fence: int
    started_at: datetime
    progress: str | None


@dataclass(frozen=True, slots=True)
class Touched:
    """An unfinished execution that a change of its job reached."""

    state: State
    ready_at: datetime
    worker: UUID | None


@dataclass(frozen=True, slots=True)
class Orphan:
    """An execution whose worker is gone."""

    tenant_id: int
    key: ExecutionKey
    fence: int
    attempt: int
    started_at: datetime | None
    worker: UUID
    is_cancelled: bool
    spec: str


@dataclass(frozen=True, slots=True)
class Execution:
    """An execution as it is kept."""

    tenant_id: int
    key: ExecutionKey
    job_name: str
    state: State
    ready_at: datetime
    fence: int
    attempt: int
    revision: int
    priority: int
    pool: str
    worker: UUID | None
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    reason: str | None
    error_kind: str | None
    error: str | None
    output: str | None
    output_truncated: bool
    payload: str | None
    progress: str | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that did not succeed."""

    attempt: int
    fence: int
    result: Result
    worker: UUID | None
    ready_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime
    error_kind: str | None
    error: str | None
    output: str | None
    output_truncated: bool


@dataclass(frozen=True, slots=True)
class ExecutionFilter:
    job_id: UUID | None = None
    states: tuple[State, ...] | None = None
    from_slot: datetime | None = None
    to_slot: datetime | None = None
    worker: UUID | None = None
    text: str | None = None
    kind: Kind | None = None


@dataclass(frozen=True, slots=True)
class NewExecution:
    """An execution that somebody asks for."""

    tenant_id: int
    key: ExecutionKey
    ready_at: datetime
    revision: int
    priority: int
    running_limit: int | None
    pool: str
    payload: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Worker:
    id: UUID
    name: str
    state: str
    version: str
    pools: tuple[str, ...]
    handlers: tuple[str, ...]
    concurrency: int
    running: int
    started_at: datetime
    heartbeat_at: datetime
    lease_until: datetime


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is due and waits, in one pool."""

    pool: str
    depth: int
    oldest: datetime


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered to a request that carried an Idempotency-Key."""

    fingerprint: bytes
    status: int
    body: str


class Transaction(Protocol):
    """Changes that happen together or not at all."""

    # jobs
    async def insert_jobs(self, jobs: Sequence[NewJob], now: datetime) -> set[UUID]:
        """Add jobs and their cursors; the ids that come back were added, the others' names are taken."""
        ...

    async def lock_job(self, tenant_id: int, job_id: UUID) -> Job | None: ...
    async def keep_revision(self, tenant_id: int, job_id: UUID, now: datetime) -> None: ...
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
    async def put_cursor(self, cursor: Cursor, next_slot: datetime | None, *, is_held: bool) -> None: ...
    async def drop_cursor(self, tenant_id: int, job_id: UUID) -> None: ...

    # staged and unfinished executions of a job
    async def drop_staged(self, tenant_id: int, job_id: UUID, after: datetime) -> None: ...
    async def withhold_due(
        self, tenant_id: int, job_id: UUID, now: datetime, reason: str
    ) -> list[Touched]: ...
    async def rebase_open(self, job: NewJob, revision: int, priority: int) -> list[Touched]: ...
    async def insert_execution(self, new: NewExecution) -> bool:
        """Add an execution; False where its key is taken."""
        ...

    # staging
    async def lock_due(self, shards: Sequence[int], until: datetime, limit: int) -> list[Cursor]: ...
    async def stage(self, moves: Sequence[Move], now: datetime) -> None:
        """Write the verdicts and move the cursors, by compare-and-set; raises LeaseLost where one has moved."""
        ...

    async def record(self, moves: Sequence[Move], now: datetime) -> None:
        """Write the verdicts only; the caller sets the cursor itself."""
        ...

    # idempotency
    async def recall(self, tenant_id: int, key: str) -> Answer | None:
        """What was answered to this key; another request with it waits until this transaction ends."""
        ...

    async def remember(self, tenant_id: int, key: str, answer: Answer, now: datetime) -> None: ...


class Store(Protocol):
    """The durable truth."""

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...

    # jobs
    async def get_job(self, tenant_id: int, job_id: UUID, now: datetime) -> Job | None: ...
    async def find_job(self, tenant_id: int, name: str) -> UUID | None: ...
    async def list_jobs(
        self, tenant_id: int, where: JobFilter, after: tuple[str, UUID] | None, limit: int, now: datetime
    ) -> list[Job]: ...
    async def definitions(self, keys: Sequence[tuple[int, UUID]]) -> list[Definition]: ...
    async def pauses_over(self, now: datetime, limit: int) -> list[tuple[int, UUID]]: ...
    async def signing_secret(self, tenant_id: int) -> str: ...

    # executions: what workers do
    async def claim(
        self, worker: UUID, pool: str, priority: int, *, ready_by: datetime, limit: int, now: datetime
    ) -> list[Claimed]: ...
    async def skip_blocked(self, pools: Sequence[str], now: datetime) -> int: ...
    async def complete(self, ended: Sequence[Ended]) -> list[State | None]:
        """Record results; for each, the state it led to, or None where its fence was no longer valid."""
        ...

    async def hand_back(self, claims: Sequence[tuple[int, ExecutionKey, int]]) -> None: ...
    async def report(self, reports: Sequence[Report]) -> None: ...
    async def cancels(self, worker: UUID) -> list[tuple[int, ExecutionKey, int]]: ...
    async def held_by(self, worker: UUID) -> list[tuple[int, ExecutionKey, int]]: ...

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
    async def register(self, worker: Worker) -> None: ...
    async def heartbeat(
        self, worker: UUID, now: datetime, lease_until: datetime, *, running: int, is_draining: bool
    ) -> bool:
        """Lengthen a lease; False where the worker was given up."""
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
