"""See to what came due while its job had as many unfinished as it may have: it is skipped, or has the oldest of them end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from uuid import UUID

from cronwell import telemetry
from cronwell.runtime.clock import Clock
from cronwell.store.port import EVER, Store
from cronwell.worker.reach import Frontier, Reach


class Blocked:
    """That of some pools."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        pools: Sequence[str],
        reach: Reach,
        tell: Callable[[Collection[UUID]], Awaitable[None]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._pools = pools
        self._tell = tell
        self._frontier = Frontier(reach)

    async def settle(self) -> None:
        """Settle what came due since the last time; all of it, where that is no long way."""
        now = self._clock.now()
        await self._settle(now, self._frontier.since(now))
        self._frontier.reached = now

    async def settle_all(self) -> None:
        await self._settle(self._clock.now(), EVER)

    async def _settle(self, now: datetime, since: datetime) -> None:
        skipped, stopping = await self._store.settle_blocked(self._pools, now, since)
        if skipped:
            telemetry.skipped_for_overlap(skipped)
        if stopping:
            await self._tell(stopping)
