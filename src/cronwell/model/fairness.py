"""Shares of what there is not enough of: start-time fair queueing between tenants.

Each tenant has a tag, in a time of its own that goes on by 1/weight with each execution it is given. The lowest tag is served
next, and the tag that was served last is the common time: a tenant that comes back after a while starts there, so it is
neither owed for the time in which it wanted nothing, nor made to wait for what it had when nobody else wanted any.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping


class FairShares:
    """What each tenant was given so far, of one queue."""

    def __init__(self) -> None:
        self._time = 0.0
        self._tags: dict[int, float] = {}

    def allot(self, places: int, backlog: Mapping[int, float]) -> dict[int, int]:
        """Divide places among tenants that could each fill all of them, by their weights."""
        if not backlog:
            return {}
        # What lies behind the common time says nothing any more.
        self._tags = {tenant: tag for tenant, tag in self._tags.items() if tag > self._time}
        heap = [(self._tags.get(tenant, self._time), tenant) for tenant in backlog]
        heapq.heapify(heap)
        shares: Counter[int] = Counter()
        for _ in range(places):
            tag, tenant = heap[0]
            self._time = tag
            shares[tenant] += 1
            self._tags[tenant] = tag + 1 / backlog[tenant]
            heapq.heapreplace(heap, (self._tags[tenant], tenant))
        return dict(shares)

    def give_back(self, tenant: int, places: int, weight: float) -> None:
        """Take back places that a tenant had nothing for."""
        self._tags[tenant] = self._tags.get(tenant, self._time) - places / weight
