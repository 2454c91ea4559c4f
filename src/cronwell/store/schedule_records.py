"""What goes into the store and comes out of it about schedules: definitions of then, calendars, overrides, the rules of
zones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from cronwell.store.records import Cursor


@dataclass(frozen=True, slots=True)
class Revision:
    """A definition of a job and when it held; without a schedule it has no plan."""

    revision: int
    plan: str | None
    valid_from: datetime
    valid_to: datetime | None


@dataclass(frozen=True, slots=True)
class Skip:
    """A range of slots, both ends included, that were not run."""

    reason: str
    from_slot: datetime
    to_slot: datetime
    slots: int | None
    noted_at: datetime


@dataclass(frozen=True, slots=True)
class KeptCalendar:
    """A calendar as it is kept. `content` is what its user wrote, as JSON text."""

    name: str
    revision: int
    content: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class CalendarUse:
    """A job follows a calendar; its plan is made of this revision."""

    calendar: str
    job_id: UUID
    revision: int


@dataclass(frozen=True, slots=True)
class Accountable:
    """A job that existed in a range of time, with every definition that held then, oldest first."""

    job_id: UUID
    name: str
    created_at: datetime
    paused_at: datetime | None
    """Since when it is paused, where it is."""
    is_over: bool
    """It has no further slot."""
    revisions: tuple[Revision, ...]
    """The last one has no end where it holds now."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A cursor and what was staged around it, from which its next slot can be found anew."""

    cursor: Cursor
    name: str
    since: datetime
    """Nothing is owed from before this time."""
    reached: datetime | None
    """The newest slot up to now that has an execution; None where none is recent."""
    ahead: tuple[datetime, ...]
    """Slots after now that have an execution."""


@dataclass(frozen=True, slots=True)
class Herd:
    """Jobs that share a plan, and how many they are."""

    plan: str
    runs_left: int | None
    jobs: int


@dataclass(frozen=True, slots=True)
class Override:
    """What somebody decided about one slot of a job."""

    tenant_id: int
    job_id: UUID
    slot: datetime
    action: str
    """`skip`, `move` or `payload`."""
    ready_at: datetime | None
    """Where the slot is moved to."""
    payload: str | None
    note: str | None
    author: str | None
    expires_at: datetime | None
    """One that is not applied by then does nothing."""
    created_at: datetime
    applied_at: datetime | None = None

    @property
    def due_at(self) -> datetime:
        """The first instant at which it makes a difference."""
        return self.slot if self.ready_at is None else min(self.slot, self.ready_at)


@dataclass(frozen=True, slots=True)
class WaitingOverride:
    """An override that is not applied yet, with the plan of its job."""

    tenant_id: int
    job_id: UUID
    slot: datetime
    due_at: datetime
    plan: str
