"""One pool and tier as a worker claims from it: in order while there is room for all, by shares while there is not."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from cronwell.model.fairness import FairShares
from cronwell.runtime.resting import rest_after
from cronwell.store.port import EVER, Claimed, Store
from cronwell.worker.reach import Frontier, Reach

STALE_AFTER, STALE_AT_LAST = 0.05, 1.0
"""Seconds after which it is looked up again who has something waiting: at least, and at the most, however long that takes. Whoever
comes meanwhile gets no share."""
LOOKS = 3
"""Of so many the shortest counts: on a busy machine one takes fifty times as long now and then."""


class Queue:
    """Where nobody has to wait any order is fair, and the order of time is the cheapest. A claim that was filled to the last
    place is the sign that somebody may have to: from then on each tenant that has something due gets its share, until all
    of it is taken."""

    def __init__(self, store: Store, pool: str, priority: int, reach: Reach) -> None:
        self._store = store
        self.pool = pool
        self.tier = (pool, priority)
        self._reach = reach
        self.frontier = Frontier(reach)
        """How far it has been claimed in order."""
        self._of_tenant: dict[int, Frontier] = {}
        """And how far by shares, since it was last claimed in order."""
        self._is_deep = False
        self._deep_at = 0.0
        self._worker: UUID | None = None
        self._shares = FairShares()
        self._is_crowded = False
        self._backlog: dict[int, float] = {}
        self._passed_over: dict[int, float] = {}
        """Who got less than its share in claims that look back less far than others: it may wait with something that lies behind, or
        has an old slot."""
        self._fresh_until = 0.0
        self._looks: deque[float] = deque(maxlen=LOOKS)

    async def claim(self, worker: UUID, places: int, *, ready_by: datetime, now: datetime) -> list[Claimed]:
        """Claim for so many places; fewer where no more is due, or where some was changed in that very moment."""
        if worker != self._worker:
            # To one whose lease had ended the store gave nothing, however much there was.
            self.frontier.reached = None
            self._of_tenant.clear()
            self._worker = worker
        if self._is_crowded:
            await self._look(ready_by, now)
        else:
            # In order they are found without, as soon as it is looked back far enough; by shares they would be the only ones.
            self._passed_over.clear()
        is_farthest = self._reach.is_farthest
        if is_farthest:
            # One more of whom there is nothing takes some 20 µs with the days of a month, 3 in the last two (November 2026).
            self._backlog = self._passed_over | self._backlog
            self._passed_over.clear()
        if len(self._backlog) < 2:
            return await self._claim_in_order(worker, places, ready_by=ready_by, now=now)
        found: list[Claimed] = []
        while len(found) < places and self._backlog:
            shares = self._shares.allot(places - len(found), self._backlog)
            since, began = self._begin_shares(shares, now), time.monotonic()
            slots_since = self._slots_since(min(since.values()), now)
            claims = await self._store.claim_shares(
                worker,
                *self.tier,
                ready_by=ready_by,
                shares=shares,
                now=now,
                since=since,
                slots_since=slots_since,
            )
            if self._is_deep:
                ended = time.monotonic()
                self._deep_at = ended + rest_after(ended - began, STALE_AFTER)
            without = self._note(shares, claims, ready_by)
            if not is_farthest:
                self._passed_over |= without
            found += claims
        self._is_crowded = bool(self._backlog)
        return found

    def _begin_shares(self, tenants: Iterable[int], now: datetime) -> dict[int, datetime]:
        """Where each tenant's claim begins; now and then where it was last claimed in order, for what came up behind."""
        self._is_deep = time.monotonic() >= self._deep_at
        for tenant in tenants:
            if self._is_deep or tenant not in self._of_tenant:
                self._of_tenant[tenant] = self.frontier.branch()
        return {tenant: self._of_tenant[tenant].since(now) for tenant in tenants}

    async def _claim_in_order(
        self, worker: UUID, places: int, *, ready_by: datetime, now: datetime
    ) -> list[Claimed]:
        since = self.frontier.since(now)
        claims = await self._store.claim(
            worker,
            *self.tier,
            ready_by=ready_by,
            limit=places,
            now=now,
            since=since,
            slots_since=self._slots_since(since, now),
        )
        self._is_crowded = len(claims) == places
        self.frontier.reached = max((claim.ready_at for claim in claims), default=ready_by)
        self._of_tenant.clear()
        return claims

    def _slots_since(self, since: datetime, now: datetime) -> datetime:
        """The earliest slots to look for, of what is ready since then: those of all days where that is as long ago."""
        recent = self._reach.slots_since(now)
        return recent if since >= recent else EVER

    async def _look(self, ready_by: datetime, now: datetime) -> None:
        began = time.monotonic()
        if began >= self._fresh_until:
            # Each tenant is asked where the way along the index is long. Else that is dearer: 10,000 tenants took 230 ms.
            since = self.frontier.since(now) if self._reach.is_short else EVER
            self._backlog = await self._store.waiting_tenants(*self.tier, ready_by, since)
            if since is EVER:
                # One that begins later may find fewer than are known already.
                self._passed_over.clear()
            ended = time.monotonic()
            self._looks.append(ended - began)
            self._fresh_until = ended + min(rest_after(min(self._looks), STALE_AFTER), STALE_AT_LAST)

    def _note(self, shares: dict[int, int], claims: list[Claimed], ready_by: datetime) -> dict[int, float]:
        """Who got less than its share has nothing left that could be had: these leave the backlog, and are told."""
        got = Counter(claim.tenant_id for claim in claims)
        last: dict[int, datetime] = {}
        for claim in claims:
            last[claim.tenant_id] = max(claim.ready_at, last.get(claim.tenant_id, claim.ready_at))
        without: dict[int, float] = {}
        for tenant, places in shares.items():
            self._of_tenant[tenant].reached = last.get(tenant, ready_by)
            if got[tenant] < places:
                without[tenant] = self._backlog.pop(tenant)
                self._shares.give_back(tenant, places - got[tenant], without[tenant])
        return without
