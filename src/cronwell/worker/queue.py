"""One pool and tier as a worker claims from it: in order while there is room for all, by shares while there is not."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from uuid import UUID

from cronwell.model.fairness import FairShares
from cronwell.store.port import Claimed, Store

STALE_AFTER = 0.05
"""Seconds after which it is looked up again who has something waiting."""
STALE_FACTOR = 20
"""And no sooner than so many times as long as that took."""


class Queue:
    """Where nobody has to wait any order is fair, and the order of time is the cheapest. A claim that was filled to the last
    place is the sign that somebody may have to: from then on each tenant that has something due gets its share, until all
    of it is taken."""

    def __init__(self, store: Store, pool: str, priority: int) -> None:
        self._store = store
        self.pool = pool
        self._priority = priority
        self._shares = FairShares()
        self._is_crowded = False
        self._backlog: dict[int, float] = {}
        self._fresh_until = 0.0

    async def claim(self, worker: UUID, places: int, *, ready_by: datetime, now: datetime) -> list[Claimed]:
        """Claim for so many places; fewer only where no more is due."""
        if self._is_crowded:
            await self._look(ready_by)
        if len(self._backlog) < 2:
            claims = await self._store.claim(
                worker, self.pool, self._priority, ready_by=ready_by, limit=places, now=now
            )
            self._is_crowded = len(claims) == places
            return claims
        found: list[Claimed] = []
        while len(found) < places and self._backlog:
            shares = self._shares.allot(places - len(found), self._backlog)
            claims = await self._store.claim_shares(
                worker, self.pool, self._priority, ready_by=ready_by, shares=shares, now=now
            )
            self._note(shares, claims)
            found += claims
        self._is_crowded = bool(self._backlog)
        return found

    async def _look(self, ready_by: datetime) -> None:
        began = time.monotonic()
        if began >= self._fresh_until:
            self._backlog = await self._store.waiting_tenants(self.pool, self._priority, ready_by)
            ended = time.monotonic()
            self._fresh_until = ended + max(STALE_AFTER, STALE_FACTOR * (ended - began))

    def _note(self, shares: dict[int, int], claims: list[Claimed]) -> None:
        """Who got less than its share has nothing left that could be had."""
        got = Counter(claim.tenant_id for claim in claims)
        for tenant, places in shares.items():
            if got[tenant] < places:
                self._shares.give_back(tenant, places - got[tenant], self._backlog.pop(tenant))
