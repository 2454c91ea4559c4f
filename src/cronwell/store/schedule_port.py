"""The part of the store that schedules need: definitions of then, calendars, overrides, backfills, the rules of zones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from cronwell.model.execution import ExecutionKey, State
from cronwell.store.backfill import Backfill
from cronwell.store.records import Cursor, Move, NewExecution
from cronwell.store.schedule_records import (
    Accountable,
    Herd,
    KeptCalendar,
    Override,
    Revision,
    Skip,
    Standing,
    WaitingOverride,
)


class ScheduleChanges(Protocol):
    """What a transaction can do about schedules."""

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

    # overrides
    async def put_override(self, override: Override) -> None:
        """Keep an override, in place of the one that its slot had; it is not applied yet."""
        ...

    async def drop_override(self, tenant_id: int, job_id: UUID, slot: datetime) -> bool: ...
    async def overrides_after(
        self, tenant_id: int, job_id: UUID, after: datetime, now: datetime
    ) -> list[Override]:
        """What holds for the slots of a job after a time, in their order."""
        ...

    async def write_decided(self, move: Move, now: datetime) -> set[datetime]:
        """Write a job's slots as overrides have them, and note these as applied; the slots that had no row yet."""
        ...

    async def clear_slot(self, tenant_id: int, job_id: UUID, slot: datetime) -> State | None:
        """Take back what is written for a slot; where a worker has it or it has ended it stays, and its state is told."""
        ...

    async def slot_state(self, tenant_id: int, job_id: UUID, slot: datetime) -> State | None: ...
    async def count_ahead(
        self, tenant_id: int, job_id: UUID, after: datetime, before: datetime | None
    ) -> int:
        """How many slots between two times are staged, begun or ended; skipped by an override does not count."""
        ...

    async def slots_left_out(
        self, cursors: Sequence[Cursor], until: datetime
    ) -> dict[tuple[int, UUID], frozenset[datetime]]:
        """The slots from these cursors on that overrides have skipped, by tenant and job."""
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


class ScheduleReads(Protocol):
    """What can be asked about schedules, and single writes."""

    # what became of the past
    async def revision_at(self, tenant_id: int, job_id: UUID, at: datetime) -> Revision | None:
        """The definition that a job had at a time; None before it was made and after it was deleted."""
        ...

    async def last_plan(self, tenant_id: int, job_id: UUID) -> str | None:
        """By which plan a job went before the present one; the last of all where it is finished."""
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

    async def shifting_users(self, tenant_id: int, name: str, most: int) -> list[str]:
        """The names of jobs that follow a calendar and move slots to its open days, in order, at most so many."""
        ...

    async def drop_calendar(self, tenant_id: int, name: str) -> bool:
        """Forget a calendar; False where there is none, or a job follows it."""
        ...

    async def outdated_uses(self, limit: int) -> list[tuple[int, UUID]]:
        """Jobs, with their tenants, that follow a calendar which has changed since they were planned."""
        ...

    async def waits_over(self, now: datetime, limit: int) -> list[tuple[int, UUID]]:
        """Jobs, with their tenants, that their calendars leave without a slot and that are to be looked at again."""
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

    # overrides
    async def get_override(self, tenant_id: int, job_id: UUID, slot: datetime) -> Override | None: ...
    async def list_overrides(
        self, tenant_id: int, job_id: UUID, before: datetime | None, limit: int
    ) -> list[Override]:
        """The overrides of a job, the latest slot first."""
        ...

    async def overrides_of(
        self, tenant_id: int, job_id: UUID, after: datetime, now: datetime
    ) -> list[Override]:
        """What holds for the slots of a job after a time, in their order."""
        ...

    async def overrides_waiting(
        self, now: datetime, until: datetime, longest: timedelta, after: WaitingOverride | None, limit: int
    ) -> list[WaitingOverride]:
        """Overrides to be applied by a time and not applied yet, of jobs that go on; none is moved by more than
        `longest`."""
        ...

    async def forget_overrides(self, before: datetime) -> None: ...

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
