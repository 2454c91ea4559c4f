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
from cronwell.store.port import EVER, Claimed, Found, Store, Tier
from cronwell.worker.blocked import Blocked
from cronwell.worker.lease import Lease
from cronwell.worker.queue import Queue
from cronwell.worker.reach import Reach

AT_ONCE = 10_000
"""So many are looked for at once."""
REST = timedelta(milliseconds=200)
REST_FACTOR = 20
"""The loop rests for so many times as long as it took to look and find nothing."""
TRIES = 3


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
        """Go the way back to the beginning once, if the claims do not; or find out whether they should."""
        if not self._lease.may_claim or self._found:
            return REST
        if self._reach.is_short:
            return await self._find()
        if self._reach.is_suspect:
            # The shortest times of some: the others are those of a busy machine.
            none = min([await self._timed({}, 1) for _ in range(TRIES)])
            whole = min([await self._timed(self._before(), 1) for _ in range(TRIES)])
            self._reach.judge(whole - none)
        return REST

    async def _find(self) -> timedelta:
        await self._blocked.settle_all()
        none = await self._timed({}, AT_ONCE)
        took = await self._timed(self._before(), AT_ONCE)
        if self._found:
            # Where something has come up there may be more to come.
            self.on_found()
            return max(REST, timedelta(seconds=took))
        self._reach.judge(took - none)
        return max(REST, REST_FACTOR * timedelta(seconds=took))

    def _before(self) -> dict[Tier, datetime]:
        """Where claims begin, in each tier."""
        now = self._clock.now()
        return {
            (queue.pool, queue.priority): min(reached, now)
            for queue in self._queues
            if (reached := queue.frontier.reached) is not None
        }

    async def _timed(self, before: Mapping[Tier, datetime], limit: int) -> float:
        """Look for what lies behind, and tell how many seconds that took."""
        now = self._clock.now()
        everywhere = {(queue.pool, queue.priority): EVER for queue in self._queues}
        began = time.monotonic()
        self._found = await self._store.startable(
            self._lease.worker, {**everywhere, **before}, ready_by=now + self._ahead, limit=limit, now=now
        )
        return time.monotonic() - began

    async def claim(self, worker: UUID, places: int, *, ready_by: datetime, now: datetime) -> list[Claimed]:
        """Claim for so many places, of what was found."""
        wanted = self._found[:places]
        del self._found[:places]
        return await self._store.claim_found(worker, wanted, ready_by=ready_by, now=now)
