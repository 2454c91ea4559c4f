"""What comes up behind the point where claims begin, while they do not look back to the beginning: see `reach.py`.

Few things do: what was staged or handed back late, or has waited for its turn. The way to them is long, so it is gone by a
loop of its own, which claims nothing and holds up nobody; what it finds is claimed by key, with the next round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from cronwell.runtime.clock import Clock
from cronwell.runtime.resting import rest_after
from cronwell.store.port import EVER, Claimed, Found, Store, Tier
from cronwell.worker.blocked import Blocked
from cronwell.worker.gated import GATED_TIERS
from cronwell.worker.lease import Lease
from cronwell.worker.queue import Queue
from cronwell.worker.reach import NEAR, Reach

AT_ONCE = 10_000
"""So many are looked for at once."""
REST = timedelta(milliseconds=200)
LONGEST_REST = timedelta(seconds=30)
TRIES = 3
COUNTED = 1000
FOR_EACH = 0.00002
"""So many that wait are counted to measure the way to them, and each may take so many seconds."""


class Tail:
    """What was found behind in one tier."""

    def __init__(self, store: Store, pool: str) -> None:
        self._store = store
        self._pool = pool
        self.found: list[Found] = []

    async def claim(self, worker: UUID, places: int, *, ready_by: datetime, now: datetime) -> list[Claimed]:
        """Claim for so many places, of what was found."""
        wanted = self.found[:places]
        del self.found[:places]
        return await self._store.claim_found(worker, self._pool, wanted, ready_by=ready_by, now=now)


class Behind:
    """Finds it, for the next rounds to claim."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        lease: Lease,
        reach: Reach,
        queues: Sequence[Queue],
        blocked: Blocked,
        *,
        ahead: timedelta,
    ) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._reach = reach
        self._queues = queues
        self._blocked = blocked
        self._ahead = ahead
        self.tails = {queue.tier: Tail(store, queue.pool) for queue in queues}
        self._again_at = 0.0
        self.on_found: Callable[[], None] = lambda: None
        self.count_workers: Callable[[], int] = lambda: 1
        """How many work in its pools, itself included."""

    @property
    def _has_any(self) -> bool:
        return any(tail.found for tail in self.tails.values())

    async def look(self) -> timedelta:
        """Go the way back to the beginning once, if the claims do not; or find out whether they should."""
        if not (self._reach.is_short or self._reach.is_suspect) or not self._lease.may_claim:
            return REST
        if self._has_any and time.monotonic() < self._again_at:
            # Of what was found something is left. It may be of a tier that has to wait, so others are looked for all the same.
            return REST
        took, waiting = await self._measure(1 if self._reach.is_short else TRIES)
        if not self._reach.is_short:
            return REST
        began = time.monotonic()
        has_found = False
        if waiting or await self._waits_at_gates():
            # Where nothing waits there is nothing to find on the same way twice more.
            has_found = await self._find()
            await self._blocked.settle_all()
        took += time.monotonic() - began
        # However many workers there are, one of them has looked in about that time.
        longest = (LONGEST_REST * self.count_workers()).total_seconds()
        rest = min(rest_after(took, REST.total_seconds()), longest)
        self._again_at = time.monotonic() + rest
        # Where something has come up there may be more to come.
        return timedelta(seconds=min(max(took, REST.total_seconds()), longest) if has_found else rest)

    async def _measure(self, tries: int) -> tuple[float, int]:
        """Have it judged by how long the way is; tell how long it took to go it once, and how many wait there."""
        # The shortest times of some: the others are those of a busy machine.
        none = min([(await self._timed({}))[0] for _ in range(tries)])
        whole, waiting = min([await self._timed(self._before()) for _ in range(tries)])
        self._reach.judge(whole - none - waiting * FOR_EACH)
        return whole, waiting

    async def _waits_at_gates(self) -> bool:
        """Whether something is ready that waits at a gate: it may have to be skipped."""
        ready_by = self._clock.now() - NEAR
        pools = {queue.pool for queue in self._queues}
        before = {(pool, tier): ready_by for pool in pools for tier in GATED_TIERS}
        return await self._store.count_before(before, 1) > 0

    async def _timed(self, before: Mapping[Tier, datetime]) -> tuple[float, int]:
        """How many seconds it took to count what waits behind, and how many they were."""
        everywhere = dict.fromkeys(self.tails, EVER)
        began = time.monotonic()
        waiting = await self._store.count_before({**everywhere, **before}, COUNTED)
        return time.monotonic() - began, waiting

    async def _find(self) -> bool:
        """Look for what could be claimed, and tell whether there is any."""
        now = self._clock.now()
        found = await self._store.startable(
            self._lease.worker, self._before(), ready_by=now + self._ahead, limit=AT_ONCE, now=now
        )
        for tier, keys in found.items():
            self.tails[tier].found = keys
        if found:
            self.on_found()
        return bool(found)

    def _before(self) -> dict[Tier, datetime]:
        """Where claims begin, in each tier."""
        now = self._clock.now()
        return {
            queue.tier: min(reached, now) - NEAR
            for queue in self._queues
            if (reached := queue.frontier.reached) is not None
        }
