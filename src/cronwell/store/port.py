"""The store: the durable truth, as the rest of Cronwell sees it.

Reads and single-statement writes are methods of `Store`. What must happen together happens inside
`async with store.transaction() as tx`: it commits when the block ends and rolls back on any exception. Every time
is an argument; rows of one tenant are never given to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import date, datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from cronwell.model.execution import ExecutionKey, State
from cronwell.store.backfill import Backfill
from cronwell.store.records import (
    Accountable,
    Answer,
    Attempt,
    Backlog,
    CalendarUse,
    Claimed,
    Cursor,
    Definition,
    Ended,
    Execution,
    ExecutionFilter,
    Herd,
    Job,
    JobFilter,
    KeptCalendar,
    Move,
    NewExecution,
    NewJob,
    Orphan,
    Report,
    Revision,
    Skip,
    Standing,
    Touched,
    Worker,
)

__all__ = [
    "Accountable",
    "Answer",
    "Attempt",
    "Backfill",
    "Backlog",
    "CalendarUse",
    "Claimed",
    "Cursor",
    "Definition",
    "Ended",
    "Execution",
    "ExecutionFilter",
    "Herd",
    "Job",
    "JobFilter",
    "KeptCalendar",
    "Move",
    "NewExecution",
    "NewJob",
    "Orphan",
    "Report",
    "Revision",
    "Skip",
    "Standing",
    "Store",
    "Touched",
    "Transaction",
    "Worker",
]


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
    async def put_cursor(
        self, cursor: Cursor, next_slot: datetime | None, *, is_held: bool = False, awaits: bool = False
    ) -> None: ...
    async def drop_cursor(self, tenant_id: int, job_id: UUID) -> None: ...

    # staged and unfinished executions of a job
    async def drop_staged(self, tenant_id: int, job_id: UUID, after: datetime) -> int:
        """Unstage the slots of a job after a time; how many they were."""
        ...

    async def withhold_due(
        self, tenant_id: int, job_id: UUID, now: datetime, reason: str
    ) -> list[Touched]: ...
    async def rebase_open(self, job: NewJob, revision: int, priority: int) -> list[Touched]: ...
    async def unfinished(self, tenant_id: int, job_id: UUID, now: datetime, limit: int) -> list[ExecutionKey]:
        """The executions of a job whose slot has come and that have not ended, newest first."""
        ...

    async def insert_execution(self, new: NewExecution) -> bool:
        """Add an execution; False where its key is taken."""
        ...

    # staging
    async def lock_due(self, shards: Sequence[int], until: datetime, limit: int) -> list[Cursor]: ...
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

    # the rules of zones
    async def lock_cursors(self, keys: Sequence[tuple[int, UUID]]) -> None: ...
    async def standings(
        self, keys: Sequence[tuple[int, UUID]], now: datetime, back: timedelta
    ) -> list[Standing]:
        """Where jobs that have a next slot stand, by key, looking so far back for what was staged last."""
        ...

    async def mark_tzdata(self, cursors: Sequence[Cursor], tzdata: str) -> int:
        """Note by which release cursors go; how many, as one that has moved meanwhile is left alone."""
        ...

    # backfills
    async def insert_backfill(self, backfill: Backfill) -> None: ...
    async def lock_backfill(self, tenant_id: int, backfill_id: UUID) -> Backfill | None:
        """One backfill, locked until the transaction ends; its job is not deleted or edited meanwhile."""
        ...

    async def put_backfill(self, backfill: Backfill) -> None:
        """Keep how far a locked backfill has come."""
        ...

    async def backfilled(
        self, tenant_id: int, job_id: UUID, slots: Sequence[datetime]
    ) -> dict[datetime, State]:
        """Of these slots those that have an execution of a backfill, and its state."""
        ...

    async def insert_executions(self, new: Sequence[NewExecution]) -> set[ExecutionKey]:
        """Add executions of any kind; those that come back were added, the others' keys are taken."""
        ...

    async def withdraw(
        self, tenant_id: int, job_id: UUID, slots: Sequence[datetime], now: datetime
    ) -> set[datetime]:
        """Take back the executions of a backfill; the slots that come back had not begun and have none any more.

        What runs may finish, but is not tried again.
        """
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
    async def definitions_at(self, keys: Sequence[tuple[int, UUID, int]]) -> list[Definition]:
        """Definitions of jobs at revisions that have been replaced."""
        ...

    async def pauses_over(self, now: datetime, limit: int) -> list[tuple[int, UUID]]: ...
    async def signing_secret(self, tenant_id: int) -> str: ...

    # what became of the past
    async def revision_at(self, tenant_id: int, job_id: UUID, at: datetime) -> Revision | None:
        """The definition that a job had at a time; None before it was made and after it was deleted."""
        ...

    async def revisions_over(
        self, tenant_id: int, job_id: UUID, begin: datetime, end: datetime, limit: int
    ) -> list[Revision]:
        """The definitions that a job had between two times, in order, at most so many."""
        ...

    async def skips_over(self, tenant_id: int, job_id: UUID, at: datetime) -> list[Skip]:
        """The ranges of slots that were not run and reach over a time."""
        ...

    # calendars
    async def put_calendar(
        self, tenant_id: int, name: str, content: str, now: datetime, *, revision: int | None
    ) -> int | None:
        """Keep a calendar and return its revision; None where nothing changed, or `revision` is not the present one."""
        ...

    async def get_calendars(self, tenant_id: int, names: Sequence[str]) -> list[KeptCalendar]: ...
    async def list_calendars(self, tenant_id: int, after: str | None, limit: int) -> list[KeptCalendar]: ...
    async def calendar_users(self, tenant_id: int, name: str, most: int) -> int:
        """How many jobs follow a calendar, counted up to `most`."""
        ...

    async def drop_calendar(self, tenant_id: int, name: str) -> bool:
        """Forget a calendar; False where there is none, or a job follows it."""
        ...

    async def outdated_uses(self, limit: int) -> list[tuple[int, UUID]]:
        """Jobs, with their tenants, that follow a calendar which has changed since they were planned."""
        ...

    async def herds(self, tenant_id: int, most: int) -> tuple[list[Herd], float]:
        """The plans of the jobs that have a next slot; of a random sample of about `most`, where they are more.

        With them, the share of the jobs that was looked at: 1 for all of them.
        """
        ...

    # expected and accounted for, of many jobs
    async def accountable_jobs(
        self,
        tenant_id: int,
        since: datetime,
        before: datetime,
        *,
        shard: int | None,
        after: UUID | None,
        limit: int,
    ) -> list[Accountable]:
        """Jobs that existed between two times, of one shard or of all, by id from behind `after`."""
        ...

    async def skips_between(
        self, tenant_id: int, jobs: Sequence[UUID], since: datetime, before: datetime
    ) -> dict[UUID, list[tuple[datetime, datetime]]]:
        """The ranges of slots that were not run, both ends included, by job."""
        ...

    async def slots_between(
        self, tenant_id: int, jobs: Sequence[UUID], since: datetime, before: datetime
    ) -> dict[UUID, list[datetime]]:
        """The slots in [since, before) that have an execution, whatever became of it, by job and in order."""
        ...

    async def last_slots(self, tenant_id: int, jobs: Sequence[UUID]) -> dict[UUID, datetime]:
        """The newest slot of each job that has an execution."""
        ...

    # the rules of zones
    async def window_end(
        self, after: tuple[int, UUID], upto: tuple[int, UUID], count: int
    ) -> tuple[int, UUID] | None:
        """The key of the cursor `count` places behind `after`; None where there are fewer up to `upto`."""
        ...

    async def stale_cursors(
        self, after: tuple[int, UUID], upto: tuple[int, UUID], releases: Sequence[str]
    ) -> list[Cursor]:
        """Cursors with a next slot behind `after` and up to `upto` that go by none of these releases, by key."""
        ...

    async def standings(
        self, keys: Sequence[tuple[int, UUID]], now: datetime, back: timedelta
    ) -> list[Standing]:
        """As in a transaction; nothing is locked."""
        ...

    # backfills
    async def get_backfill(self, tenant_id: int, backfill_id: UUID) -> Backfill | None: ...
    async def list_backfills(
        self, tenant_id: int, job_id: UUID | None, state: str | None, after: UUID | None, limit: int
    ) -> list[Backfill]:
        """Backfills, newest first, from behind one on."""
        ...

    async def open_backfills(self, limit: int) -> list[tuple[int, UUID]]:
        """Those with something to stage, executions that have not ended, or a job that is gone; oldest first."""
        ...

    async def count_backfilled(
        self, tenant_id: int, job_id: UUID, begin: datetime, end: datetime, most: int
    ) -> int:
        """How many slots in [begin, end) have an execution of a backfill, counted up to `most`."""
        ...

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
