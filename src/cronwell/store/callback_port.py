"""The part of the store that knows long work: checkpoints, and attempts that end by a callback."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from cronwell.model.access import Quotas
from cronwell.model.execution import ExecutionKey, State
from cronwell.store.records import Ended


@dataclass(frozen=True, slots=True)
class Told:
    """What a running attempt tells; what is None is not told. Whatever it is, the attempt lives."""

    tenant_id: int
    key: ExecutionKey
    fence: int
    worker: UUID
    """Whose attempt it is, or who delivered it."""
    progress: str | None = None
    """As JSON."""
    checkpoint: str | None = None
    """As JSON."""


@dataclass(frozen=True, slots=True)
class Called:
    """An execution as whoever calls back finds it."""

    tenant_id: int
    key: ExecutionKey
    job_name: str
    spec: str
    state: State
    fence: int
    worker: UUID | None
    """Who has it or, where it waits for its callback, who delivered it."""
    attempt: int
    started_at: datetime | None
    is_cancelled: bool
    until: datetime | None
    """When it is timed out; None where it does not wait for a callback."""
    deadline: datetime | None

    def is_held(self, fence: int, worker: UUID) -> bool:
        """Whether the attempt with this fence is the one under way."""
        return self.state is State.RUNNING and (self.fence, self.worker) == (fence, worker)


class CallbackChanges(Protocol):
    """The part of a transaction."""

    async def lock_overdue(self, now: datetime, limit: int) -> list[Called]:
        """Executions whose callback is overdue, or that were cancelled while they waited for it."""
        ...

    async def complete(self, ended: Sequence[Ended]) -> list[State | None]:
        """What `Store.complete` does, together with the rest of the transaction."""
        ...


class CallbackStore(Protocol):
    """The part of the store."""

    async def hear(self, told: Sequence[Told], now: datetime) -> list[bool]:
        """Keep what running attempts tell; for each, whether its fence was valid."""
        ...

    async def get_called(self, tenant_id: int, key: ExecutionKey) -> Called | None: ...
    async def callback_terms(self, tenant_id: int) -> tuple[bytes, Quotas] | None:
        """What callbacks are signed with, and how often this tenant may call; None where there is no such tenant."""
        ...
