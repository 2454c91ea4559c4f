"""The part of the store that knows the cluster: its processes, the fence and watermark of each shard, what is amiss."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard as the store knows it."""

    shard: int
    epoch: int
    owner: UUID | None
    incarnation: str | None
    entered_at: datetime | None
    watermark: datetime | None
    """All slots up to here, of the jobs that were there at `marked_at`, are staged or have their verdict."""
    marked_at: datetime | None


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a process's sign of life found when it was written."""

    incarnation: str
    """Which incarnation of the database has it."""
    number: int | None
    """The last one that was there before; None: there was none."""
    beat_at: datetime | None


@dataclass(frozen=True, slots=True)
class Node:
    """A process as it tells of itself."""

    id: UUID
    role: str
    name: str
    """Its host and process number, which another process may have had before."""
    version: str
    started_at: datetime
    seen_at: datetime
    stopped_at: datetime | None = None
    """When it ended in order."""
    drain_requested_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """How often the scanner found one kind of thing that should not be, in its last whole walk."""

    kind: str
    found: int
    mended: int
    examples: tuple[str, ...]
    """Some of those that were found: ids of jobs, or names of pools."""
    walked_at: datetime


@dataclass(frozen=True, slots=True)
class Suspect:
    """A job that may stand where no job should."""

    tenant_id: int
    job_id: UUID
    state: str
    has_cursor: bool
    is_held: bool
    awaits: bool
    next_slot: datetime | None
    plan: str | None
    runs_left: int | None
    held_until: datetime | None
    """Until when it waits for a calendar that leaves it no slot."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Executions that are running, so the store says, under a worker that is gone."""

    worker: UUID
    held: int
    jobs: tuple[str, ...]
    """Some of their jobs."""
    is_unknown: bool
    """Whether the store does not know the worker at all."""


class ClusterChanges(Protocol):
    """The part of a transaction."""

    async def hold_shards(self, owner: UUID, epochs: Mapping[int, int]) -> None:
        """Make sure, until the transaction ends, that these are the shards' epochs and `owner` theirs.

        Raises Fenced, naming those that are not, also where this is another incarnation of the database than the one
        that gave the epochs.
        """
        ...

    async def suspect(
        self, key: tuple[int, UUID], *, due_before: datetime, ended_before: datetime
    ) -> Suspect | None:
        """One job, where it is among the suspects at this moment."""
        ...


class ClusterStore(Protocol):
    """The part of the store."""

    async def enter_shards(self, owner: UUID, shards: Iterable[int], now: datetime) -> dict[int, int]:
        """Begin a new epoch of each shard, with this owner; waits for whoever is staging in the old one."""
        ...

    async def mark_shards(
        self, owner: UUID, epochs: Mapping[int, int], horizon: datetime, now: datetime
    ) -> dict[int, datetime]:
        """Write down up to where, but no further than `horizon`, the slots of each shard are accounted for.

        Shards that are another's, or in another epoch, are left alone and do not come back.
        """
        ...

    async def pulse(self, process: UUID, number: int, now: datetime) -> Pulse:
        """Write down a sign of life in place of the last one, and tell which that was."""
        ...

    def begin_anew(self) -> None:
        """Forget what was read, because another incarnation of the database answers in which it may not be true."""
        ...

    async def list_shards(self) -> list[Shard]:
        """Every shard, in order."""
        ...

    # processes
    async def see_node(self, node: Node) -> datetime | None:
        """Enter a process, or note that it lives; since when it is asked to drain comes back."""
        ...

    async def stop_node(self, node: UUID, now: datetime) -> None:
        """Note that a process has ended in order."""
        ...

    async def ask_to_drain(self, node: UUID, now: datetime) -> datetime | None:
        """Ask a process to drain: since when it is asked; None where there is no such process or it has ended."""
        ...

    async def list_nodes(self, seen_since: datetime) -> list[Node]:
        """Processes that were seen since a time; those that ended in order come last."""
        ...

    async def forget_nodes(self, before: datetime) -> None: ...
    async def incarnation(self) -> str:
        """Which server answers, and which life of it: its identifier and its timeline."""
        ...

    # what is amiss
    async def put_findings(self, findings: Iterable[Finding]) -> None:
        """Keep what a whole walk found, in place of what was kept of the same kinds."""
        ...

    async def list_findings(self) -> list[Finding]: ...

    async def slice_end(self, after: tuple[int, UUID], count: int) -> tuple[int, UUID] | None:
        """The key of the job that stands `count` places behind another; None where there are fewer."""
        ...

    async def suspects(
        self, after: tuple[int, UUID], upto: tuple[int, UUID], *, due_before: datetime, ended_before: datetime
    ) -> list[Suspect]:
        """The jobs of a slice that may stand where no job should."""
        ...

    async def abandoned(self, before: datetime, examples: int) -> list[Abandoned]:
        """What is running under workers that are gone since a time, or that are not known, by worker."""
        ...

    async def unserved(self, served: Collection[str], ready_by: datetime) -> dict[str, int]:
        """How many executions wait that were ready by then in each pool that is none of these."""
        ...

    async def enter_lost(self, workers: Sequence[UUID], now: datetime) -> None:
        """Enter workers that are not known as lost, so that what they hold is rescued."""
        ...
