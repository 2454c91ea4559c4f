"""See to what came due while its job had as many unfinished as it may have: it is skipped, or has the oldest of them end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from uuid import UUID

from cronwell import telemetry
from cronwell.runtime.clock import Clock
from cronwell.store.port import EVER, Store
from cronwell.worker.gated import GATED_TIERS, PRIORITIES
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
        self._tiers = [(pool, tier) for pool in pools for tier in (*PRIORITIES, *GATED_TIERS)]
        self._reach = reach
        self._frontier = Frontier(reach)

    async def settle(self) -> None:
        """Settle what came due since the last time; all of it, where that is no long way."""
        now = self._clock.now()
        since = self._frontier.since(now)
        # Most often there is nothing, which is soon told: settling asks each day that is kept.
        if await self._store.due_tiers(dict.fromkeys(self._tiers, since), now, self._reach.slots_since(now)):
            await self._settle(now, since)
        self._frontier.reached = now

    async def settle_all(self) -> None:
        await self._settle(self._clock.now(), EVER)

    async def _settle(self, now: datetime, since: datetime) -> None:
        skipped, stopping = await self._store.settle_blocked(self._pools, now, since)
        if skipped:
            telemetry.skipped_for_overlap(skipped)
        if stopping:
            await self._tell(stopping)
