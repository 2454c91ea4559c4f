"""The part of the store that workers work with: they claim executions, confirm and report on them, and say how they ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import UUID

from cronwell.model.execution import ExecutionKey, State
from cronwell.store.records import Claimed, Confirmed, Ended, Report

EVER = datetime(1970, 1, 1, tzinfo=UTC)
"""Nothing is ready before it."""

Tier = tuple[str, int]
"""A pool, and a priority in it; or, above those, the same of what waits at gates."""

Found = tuple[int, ExecutionKey]
"""An execution that was found, by its tenant and key."""

LINES = 1000
"""Lines of a pool and tier that are looked at in one claim."""

Gate = tuple[int, str]
"""A tenant, and the name of its group; nothing for its quotas."""

FIRST_GATE: Gate = (0, "")
"""It stands before all others."""


@dataclass(frozen=True, slots=True)
class Line:
    """Executions that wait at a gate, in one pool and tier."""

    pool: str
    priority: int
    tenant_id: int
    gate: str
    """The name of their group; nothing where they wait for their tenant's quotas alone."""
    limit: int | None
    """How many of the group may run for the first in line to start, that one included."""
    ready_at: datetime
    weight: float
    max_running: int | None
    """How many the tenant may have running."""
    max_per_minute: int | None
    """How many the tenant may begin in a minute."""
    has_room: bool = True
    """False where as many run as may, as far as that was soon counted."""


@dataclass(frozen=True, slots=True)
class Halt:
    """What an execution that waits at its gates waits for."""

    group: str
    """The name of its group; nothing where it is in none."""
    group_limit: int | None
    max_running: int | None
    """How many executions its tenant may have running; None for any number, as below."""
    max_per_minute: int | None
    group_running: int
    running: int
    """How many of its tenant run; counted only where that is limited."""
    begun: int
    """How many its tenant has begun in this minute; counted only where that is limited."""


class WorkStore(Protocol):
    """The part of the store."""

    async def claim(  # noqa: PLR0913  # three of them bound what is looked through
        self,
        worker: UUID,
        pool: str,
        priority: int,
        *,
        ready_by: datetime,
        limit: int,
        now: datetime,
        since: datetime = EVER,
        slots_since: datetime = EVER,
    ) -> list[Claimed]:
        """Claim in the order of time, of what is ready by a moment and not before another.

        With `slots_since` only what has no earlier slot, which `since` must not lie before.
        """
        ...

    async def claim_shares(  # noqa: PLR0913  # three of them bound what is looked through
        self,
        worker: UUID,
        pool: str,
        priority: int,
        *,
        ready_by: datetime,
        shares: Mapping[int, int],
        now: datetime,
        since: Mapping[int, datetime] | None = None,
        slots_since: datetime = EVER,
    ) -> list[Claimed]:
        """Claim so many of each tenant, and of some only what is not ready before a moment; `slots_since` as above."""
        ...

    async def startable(
        self, worker: UUID, before: Mapping[Tier, datetime], *, ready_by: datetime, limit: int, now: datetime
    ) -> dict[Tier, list[Found]]:
        """Find what could be claimed and was ready before a moment, in each of some tiers; up to a limit in all."""
        ...

    async def count_before(self, before: Mapping[Tier, datetime], limit: int) -> int:
        """How many wait that were ready before a moment, in each of some tiers, up to a limit in each."""
        ...

    async def claim_found(
        self, worker: UUID, pool: str, found: Sequence[Found], *, ready_by: datetime, now: datetime
    ) -> list[Claimed]:
        """Claim those of some executions that still can be, in a pool."""
        ...

    async def due_tiers(
        self, since: Mapping[Tier, datetime], ready_by: datetime, slots_since: datetime = EVER
    ) -> set[Tier]:
        """Those tiers in which something is ready, not before a moment for each, whether it may start or not.

        Earlier slots than `slots_since` do not count.
        """
        ...

    async def waiting_tenants(
        self, pool: str, priority: int, ready_by: datetime, since: datetime = EVER
    ) -> dict[int, float]:
        """The tenants that have something to claim, with their weights."""
        ...

    async def waiting_lines(
        self, pools: Sequence[str], ready_by: datetime, after: Gate = FIRST_GATE
    ) -> list[Line]:
        """What waits at gates behind one, the first in line of the earliest tier first; `LINES` of each pool and tier at most."""
        ...

    async def claim_gated(
        self,
        worker: UUID,
        lines: Sequence[Line],
        *,
        places: int,
        shares: Mapping[int, int],
        ready_by: datetime,
        now: datetime,
    ) -> tuple[list[Claimed], bool]:
        """Claim what its gates let through, and tell whether some gate was another's at this moment."""
        ...

    async def why_waiting(self, tenant_id: int, key: ExecutionKey, now: datetime) -> Halt | None:
        """What an execution waits for at its gates; None where it has none."""
        ...

    async def gate_waiting(self) -> int:
        """Have what waits of tenants with quotas wait at their gate; how many had not."""
        ...

    async def settle_blocked(
        self, pools: Sequence[str], now: datetime, since: datetime = EVER
    ) -> tuple[int, set[UUID]]:
        """See to what came due, since a moment, while its job had as many unfinished as it may have, and does not simply wait.

        It is skipped, or asks the oldest to end; how many are skipped, and the workers of those that are asked.
        """
        ...

    async def complete(self, ended: Sequence[Ended]) -> list[State | None]:
        """Record results; for each, the state it led to, or None where its fence was no longer valid, or another's."""
        ...

    async def hand_back(self, worker: UUID, claims: Sequence[tuple[int, ExecutionKey, int]]) -> None: ...
    async def confirm(
        self,
        worker: UUID,
        claims: Sequence[tuple[int, ExecutionKey, int]],
        now: datetime,
        *,
        ahead: timedelta = timedelta(),
    ) -> list[Confirmed | None]:
        """Ask anew for claims that were not started in time; None where one is no longer the worker's.

        One that comes back running may start, as if it had been claimed now or, with `ahead`, so much later. What a pause or delete has reached meanwhile
        has been ended by this.
        """
        ...

    async def report(self, reports: Sequence[Report]) -> None: ...
    async def cancels(self, worker: UUID) -> list[tuple[int, ExecutionKey, int]]: ...
    async def held_by(self, worker: UUID) -> list[tuple[int, ExecutionKey, int]]: ...
    async def disown(
        self, worker: UUID, claims: Sequence[tuple[int, ExecutionKey, int]], now: datetime
    ) -> None:
        """Have what a worker holds and knows nothing of rescued, although the worker lives."""
        ...
