"""What goes into the store and comes out of it.

Nothing here changes once it is made. The records that a worker makes for each execution, and those of new jobs, are not
declared frozen all the same, as that makes making one several times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from cronwell.model.execution import CLAIMABLE, ExecutionKey, Kind, Result, State
from cronwell.model.job import Queueing
from cronwell.model.planning import PlannedSlot, SkippedRange, load_plan
from cronwell.model.waiting import waits_until


@dataclass(slots=True)  # not frozen: see the top of this file
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
    runs_left: int | None = None
    awaits: bool = False
    held_until: datetime | None = None


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
    runs_left: int | None = None
    """How many more slots may be run, where the schedule has `max_runs`."""
    defined_at: datetime | None = None
    """Since when the definition holds."""
    decided: tuple[tuple[datetime, datetime | None], ...] = ()
    """Slots from `next_slot` on that overrides skip or move, and where to as long as that is not written yet."""
    held_until: datetime | None = None
    """Its calendars leave it no slot: when it is looked at again, at the latest."""


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
    runs_left: int | None = None
    tzdata: str | None = None
    """The release of the zones' rules by which `next_slot` was found."""


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
    runs_left: int | None = None
    awaits: bool = False
    """The execution of `next_slot` is staged, and the job goes on when it has ended."""
    queueing: Queueing | None = None
    """How a slot beyond the limit waits; None where it is skipped."""
    group: tuple[str, int] | None = None
    """The name of the job's group, and how many of it may run."""
    is_followed: bool = False
    """Other jobs wait for the end of the job's executions."""

    def held_until(self, now: datetime) -> datetime | None:
        """When to look again at a job that only its calendars leave without a next slot; None for any other."""
        if self.next_slot is not None or self.runs_left == 0:
            return None
        last = max((each.slot for each in self.planned), default=now)
        return waits_until(load_plan(self.cursor.plan).schedule, max(now, self.cursor.next_slot, last))


@dataclass(slots=True)  # not frozen: see the top of this file
class Claimed:
    """An execution that a worker now owns, until its fence is passed on."""

    tenant_id: int
    key: ExecutionKey
    ready_at: datetime
    attempt: int
    fence: int
    worker: UUID
    """The name under which it was claimed."""
    revision: int
    priority: int
    payload: str | None
    gate: str | None = None
    """What it had to wait for: its group, or nothing but its tenant's quotas."""
    is_awaited: bool = False
    """Others may be waiting for its end."""
    checkpoint: str | None = None
    """What an attempt before this one left, as JSON."""
    held_until: datetime | None = None
    """Equal to `ready_at` where it was held back until then, because its target could not take it."""
    upstream: dict[str, Any] | None = None
    """What the jobs that it follows ended with, for one that follows others; read after the claim."""

    @property
    def is_back(self) -> bool:
        """Whether it was held back, and this is when it should come again."""
        return self.held_until == self.ready_at


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What became of a claim that was asked for anew."""

    state: State
    """`running`: it may start."""
    is_cancelled: bool
    """Somebody asked to cancel it."""


@dataclass(slots=True)  # not frozen: see the top of this file
class Definition:
    """What a worker knows of a job."""

    tenant_id: int
    job_id: UUID
    name: str
    revision: int
    state: str
    spec: str


@dataclass(frozen=True, slots=True)
class Awaited:
    """Until when an attempt waits for its callback."""

    deadline: datetime
    heartbeat: timedelta | None
    """How long it may be silent before that; None: all the time."""


@dataclass(slots=True)  # not frozen: see the top of this file
class Ended:
    """How an attempt ended and what the execution becomes."""

    tenant_id: int
    key: ExecutionKey
    fence: int
    worker: UUID
    """Whose attempt it was: after a failover that lost a claim another worker may have been given the same fence."""
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
    awaits: Awaited | None = None
    """Not ended after all: from `finished_at` on it waits for its callback, and is its worker's no more."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a running attempt has to tell."""

    tenant_id: int
    key: ExecutionKey
    fence: int
    worker: UUID
    started_at: datetime
    progress: str | None


@dataclass(frozen=True, slots=True)
class Touched:
    """An unfinished execution that a change of its job reached."""

    state: State
    starts_at: datetime
    """Its instant or, where it was claimed after that, when it was claimed: from then on its worker starts it."""
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
    running_limit: int | None
    """While so many earlier ones of its job are unfinished it does not start; None: it waits for no other."""
    checkpoint: str | None = None
    callback_until: datetime | None = None
    """It waits for its callback, and is timed out then."""
    held_until: datetime | None = None
    held_by: str | None = None
    """The target that could not take it, at the last time that it was held back."""

    @property
    def is_held(self) -> bool:
        """Whether it waits for its target. Whatever else sets a time to be ready ends that."""
        return self.held_until == self.ready_at and self.state in CLAIMABLE


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
    keys: tuple[ExecutionKey, ...] | None = None
    """Only these; for a redrive."""
    begun_by: datetime | None = None
    """Slots after this time only where they were moved and have started."""


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
    queueing: Queueing | None = None
    """How a slot beyond the limit waits; None where it is skipped."""
    group: tuple[str, int] | None = None
    """The name of the job's group, and how many of it may run."""
    is_followed: bool = False
    """Other jobs wait for its end."""


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
    node: UUID | None = None
    """The process that it belongs to."""


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
