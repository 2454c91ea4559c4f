"""The part of the store that knows the cluster: the fence and the watermark of each shard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


class ClusterChanges(Protocol):
    """The part of a transaction."""

    async def hold_shards(self, owner: UUID, epochs: Mapping[int, int]) -> None:
        """Make sure, until the transaction ends, that these are the shards' epochs and `owner` theirs.

        Raises Fenced, naming those that are not, also where this is another incarnation of the database than the one
        that gave the epochs.
        """
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
