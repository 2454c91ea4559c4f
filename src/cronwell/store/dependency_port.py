"""The part of the store that knows which jobs follow which, and what of them waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from cronwell.model.dependencies import On
from cronwell.model.execution import ExecutionKey, State

JobPlace = tuple[int, UUID]
"""A tenant and a job of it."""
SlotPlace = tuple[int, UUID, datetime]
"""A tenant, a job of it, and a slot of that."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A job follows another."""

    dependent_id: UUID
    upstream_id: UUID
    place: int
    """Where the upstream stands in the list."""
    condition: On


@dataclass(frozen=True, slots=True)
class Dependent:
    """What a job that follows others is now."""

    tenant_id: int
    id: UUID
    name: str
    revision: int
    state: str
    spec: str
    is_followed: bool
    """Others follow it in turn."""


@dataclass(frozen=True, slots=True)
class AtSlot:
    """An execution of a job at a slot."""

    tenant_id: int
    key: ExecutionKey
    state: State
    reason: str | None
    finished_at: datetime | None
    is_followed: bool
    """It has dependents that have not been judged by its end yet."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """Whether a job that has no execution at a slot may get one."""

    is_ahead: bool
    """Its schedule has not passed the slot yet."""
    is_waiting: bool
    """It waits for its upstreams there."""
    is_skipped: bool
    """It was skipped there, in a range of slots."""


@dataclass(frozen=True, slots=True)
class Revised:
    """What becomes of an execution that was skipped for its upstreams' sake: it runs from `ready_at` on, or is skipped still."""

    place: SlotPlace
    ready_at: datetime | None
    reason: str
    revision: int
    pool: str
    is_followed: bool
    group: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class WaitingSlot:
    """A slot of a dependent for which some upstreams have ended and others have not."""

    job_id: UUID
    slot: datetime
    since: datetime
    tenant_id: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class WaitingCount:
    """How many slots of dependents wait, and for how long."""

    waiting: int
    oldest: datetime | None
    stuck: int


@dataclass(frozen=True, slots=True)
class UpstreamResult:
    """What an upstream of a dependent ended with."""

    name: str
    key: ExecutionKey
    state: State
    output: str | None
    is_cut: bool


@dataclass(frozen=True, slots=True)
class NamedJob:
    """A job, in short."""

    id: UUID
    name: str
    state: str
    schedule: str | None
    """As it was written."""
    after: str | None
    """As it was written, as JSON."""


class DependencyChanges(Protocol):
    """What a transaction can do about jobs that follow others."""

    # which follow which
    async def lock_graph(self, tenant_id: int) -> None:
        """Keep what a tenant's jobs follow as it is until the transaction ends, but for what it does itself."""
        ...

    async def jobs_named(self, tenant_id: int, names: Sequence[str]) -> dict[str, UUID]: ...
    async def jobs_of_ids(self, tenant_id: int, ids: Sequence[UUID]) -> list[NamedJob]: ...
    async def names_between(self, tenant_id: int, first: str, end: str, limit: int) -> list[str]: ...
    async def put_edges(self, tenant_id: int, dependents: Sequence[UUID], edges: Sequence[Edge]) -> None:
        """Note what jobs follow, in place of what was noted; those that follow none wait for none any more."""
        ...

    async def edges_above(self, tenant_id: int, jobs: Sequence[UUID], limit: int) -> list[Edge]: ...
    async def edges_below(self, tenant_id: int, jobs: Sequence[UUID], limit: int) -> list[Edge]: ...
    async def followed_jobs(self, tenant_id: int, jobs: Sequence[UUID]) -> set[UUID]: ...
    async def dependents_named(self, tenant_id: int, job_id: UUID, limit: int) -> list[str]: ...
    async def follow(self, tenant_id: int, job_id: UUID, plan: str | None) -> None:
        """Have all executions of a locked job followed: those that have not ended, and by its plan those to come."""
        ...

    # judging
    async def may_judge(self) -> bool:
        """Whether this transaction may judge dependents: one does at a time, until it ends."""
        ...

    async def keep_from_judging(self) -> None:
        """Wait until nobody judges dependents; none does until the transaction ends."""
        ...

    async def lock_followed(self, limit: int) -> list[tuple[int, ExecutionKey]]:
        """Executions that have ended and whose dependents have not been judged since."""
        ...

    async def waiting_due(self, now: datetime, limit: int) -> list[SlotPlace]: ...
    async def dependents_of(self, jobs: Sequence[JobPlace]) -> list[tuple[int, UUID, UUID]]:
        """The jobs that follow some jobs: tenant, upstream, dependent."""
        ...

    async def upstreams_of(self, jobs: Sequence[JobPlace]) -> list[tuple[int, Edge]]: ...
    async def share_dependents(self, jobs: Sequence[JobPlace]) -> list[Dependent]:
        """What jobs are now; nobody pauses, edits or deletes them until the transaction ends."""
        ...

    async def executions_at(self, places: Sequence[SlotPlace]) -> list[AtSlot]: ...
    async def prospects_at(self, places: Sequence[SlotPlace]) -> dict[SlotPlace, Prospect]: ...
    async def skip_unmet(self, reasons: Mapping[SlotPlace, str], now: datetime) -> None:
        """Dependents that were added just now do not run, with the reason."""
        ...

    async def revise_unmet(self, revisions: Sequence[Revised], now: datetime) -> None: ...
    async def outrun(self, places: Sequence[SlotPlace]) -> set[SlotPlace]:
        """Those of some slots that come up after later ones of their job, which have not ended."""
        ...

    async def clear_followed(self, done: Sequence[tuple[int, ExecutionKey]]) -> None: ...
    async def keep_waiting(self, waiting: Sequence[tuple[SlotPlace, datetime, datetime]]) -> None:
        """Slots wait, each since a time, and are looked at again at another."""
        ...

    async def waiting_since(self, places: Sequence[SlotPlace]) -> dict[SlotPlace, datetime]:
        """Since when those of some slots wait that do."""
        ...

    async def end_waiting(self, places: Sequence[SlotPlace]) -> None: ...

    # running again
    async def lock_rerun(
        self, tenant_id: int, jobs: Sequence[UUID], slot: datetime
    ) -> list[tuple[ExecutionKey, State]]: ...
    async def rerun(
        self, tenant_id: int, key: ExecutionKey, now: datetime, *, is_followed: bool
    ) -> str | None:
        """Have an execution that has ended run once more, and return its pool; None where its job is deleted."""
        ...

    async def undo_dependents(
        self, tenant_id: int, jobs: Sequence[UUID], slot: datetime, now: datetime
    ) -> int: ...


class DependencyReads(Protocol):
    """What the store can tell about jobs that follow others."""

    async def jobs_around(self, tenant_id: int, job_id: UUID, limit: int) -> list[NamedJob]:
        """A job and all that it has to do with by what follows what."""
        ...

    async def edges_among(self, tenant_id: int, jobs: Sequence[UUID]) -> list[Edge]: ...
    async def waiting_of(self, tenant_id: int, jobs: Sequence[UUID], limit: int) -> list[WaitingSlot]: ...
    async def latest_of(
        self, tenant_id: int, jobs: Sequence[UUID], now: datetime, slot: datetime | None
    ) -> list[tuple[ExecutionKey, State, str | None]]:
        """The newest execution of each job or, with a slot, the one of that slot."""
        ...

    async def upstream_results(
        self, places: Sequence[SlotPlace], most: int
    ) -> dict[SlotPlace, list[UpstreamResult]]: ...
    async def any_to_judge(self, now: datetime) -> bool:
        """Whether an execution that is followed has ended, or a wait is due for another look."""
        ...

    async def unfollowed(self, limit: int) -> list[JobPlace]:
        """Jobs that others follow and whose plan does not say so."""
        ...

    async def tell_stuck(self, since: datetime) -> list[WaitingSlot]:
        """Slots that have waited since before a time, each told once."""
        ...

    async def count_waiting(self, stuck_since: datetime) -> WaitingCount: ...
