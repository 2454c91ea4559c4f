"""What comes up behind the point where claims begin, while they do not look back to the beginning: see `reach.py`.

Few things do: what was staged or handed back late, or has waited for its turn. The way to them is long, so it is gone by a
loop of its own, which claims nothing and holds up nobody; what it finds is claimed by key, with the next round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from cronwell.runtime.clock import Clock
from cronwell.store.port import Claimed, Found, Store
from cronwell.worker.blocked import Blocked
from cronwell.worker.lease import Lease
from cronwell.worker.queue import Queue
from cronwell.worker.reach import SLOW, Reach

AT_ONCE = 10_000
"""So many are looked for at once."""
REST = timedelta(milliseconds=200)
REST_FACTOR = 20
"""The loop rests for so many times as long as it took to look."""


class Behind:
    """Finds it, and claims it when there is room."""

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
        self._found: list[Found] = []
        self.on_found: Callable[[], None] = lambda: None

    @property
    def has_any(self) -> bool:
        return bool(self._found)

    async def look(self) -> timedelta:
        """Look back to the beginning once, if the claims do not."""
        if not self._reach.is_short or not self._lease.may_claim or self._found:
            return REST
        now = self._clock.now()
        before = {
            (queue.pool, queue.priority): min(reached, now)
            for queue in self._queues
            if (reached := queue.frontier.reached) is not None
        }
        began = time.monotonic()
        await self._blocked.settle_all()
        self._found = await self._store.startable(
            self._lease.worker, before, ready_by=now + self._ahead, limit=AT_ONCE, now=now
        )
        took = time.monotonic() - began
        if self._found:
            self.on_found()
        elif took < SLOW:
            self._reach.lengthen()
        if len(self._found) == AT_ONCE:
            return REST
        return max(REST, REST_FACTOR * timedelta(seconds=took))

    async def claim(self, worker: UUID, places: int, *, ready_by: datetime, now: datetime) -> list[Claimed]:
        """Claim for so many places, of what was found."""
        wanted = self._found[:places]
        del self._found[:places]
        return await self._store.claim_found(worker, wanted, ready_by=ready_by, now=now)
