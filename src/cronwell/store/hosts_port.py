"""The part of the store that knows what targets bear and how hosts fare, and that keeps executions which wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from cronwell.model.breaker import State
from cronwell.model.execution import ExecutionKey
from cronwell.model.throttle import Limit, read_rate


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A claim that is given up because its target cannot take it."""

    tenant_id: int
    key: ExecutionKey
    fence: int
    ready_at: datetime
    """When it should come again."""
    held_by: str
    """The target."""


@dataclass(frozen=True, slots=True)
class TargetLimit:
    """What a target bears, as somebody has said."""

    tenant_id: int
    target: str
    rate: str | None
    """As it was written, such as `100/s`."""
    concurrency: int | None
    breaker: bool
    created_at: datetime
    updated_at: datetime

    @property
    def limit(self) -> Limit:
        return Limit(None if self.rate is None else read_rate(self.rate), self.concurrency, self.breaker)


@dataclass(frozen=True, slots=True)
class HostState:
    """How a host fares, as a worker has found out."""

    tenant_id: int
    host: str
    state: State
    since: datetime
    """Since when it fails, or failed."""
    failures: int
    """In a row, as that worker saw them."""
    waits: int
    """Calls that tried it since, and failed."""
    next_probe_at: datetime
    """When it is tried next, while it is `open`."""
    error: str | None
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class Throttling:
    """Whether limits are still the same, and who shares them."""

    stamp: tuple[int, datetime | None]
    """Another one where any limit has changed."""
    workers: tuple[UUID, ...]
    """In an order that is the same for all of them."""


class HostStore(Protocol):
    """The part of the store."""

    async def hold_back(self, worker: UUID, held: Sequence[HeldBack]) -> list[bool]:
        """Write claims back to be ready later; for each, whether it was. What was not is to be confirmed."""
        ...

    async def release_held(self, tenant_id: int, target: str, now: datetime, limit: int) -> int:
        """Let some of those that wait for a target be ready now; how many they were."""
        ...

    async def count_held(self, tenant_id: int, targets: Sequence[str], most: int) -> dict[str, int]:
        """How many executions wait for each of these targets, counted up to so many."""
        ...

    async def throttling(self, now: datetime, pools: Sequence[str]) -> Throttling: ...
    async def every_limit(self) -> list[TargetLimit]: ...
    async def put_limit(self, limit: TargetLimit) -> tuple[TargetLimit, bool]:
        """Keep a limit; True where it is new."""
        ...

    async def drop_limit(self, tenant_id: int, target: str) -> bool: ...
    async def get_limit(self, tenant_id: int, target: str) -> TargetLimit | None: ...
    async def list_limits(self, tenant_id: int, after: str | None, limit: int) -> list[TargetLimit]: ...
    async def note_hosts(self, states: Sequence[HostState]) -> None: ...
    async def changed_hosts(self, since: datetime) -> list[HostState]:
        """What has been found out since, of hosts of all tenants."""
        ...

    async def list_hosts(
        self, tenant_id: int, state: str | None, after: str | None, limit: int
    ) -> list[HostState]: ...
    async def get_host(self, tenant_id: int, host: str) -> HostState | None: ...
    async def close_host(self, tenant_id: int, host: str, now: datetime) -> bool:
        """Say that a host is well; False where it is not known to be ill."""
        ...
