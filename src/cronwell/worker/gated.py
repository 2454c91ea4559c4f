"""What waits at gates, as a worker claims it: executions of groups, and of tenants with quotas."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from cronwell.model.ageing import Ageing
from cronwell.model.fairness import FairShares
from cronwell.runtime.resting import rest_after
from cronwell.store.port import FIRST_GATE, LINES, Claimed, Gate, Line, Store

PRIORITIES = (0, 1, 2)
GATED_TIERS = (3, 4, 5)
"""Where what has a gate stands, apart from the others of its priority."""
LOOK_EVERY = 0.1
"""Seconds between two looks, while nothing has ended that somebody may wait for."""
CONTENDED, MOST_CONTENDED = 0.02, 0.32
"""Seconds until the next look where others were at a gate too: at first, and at the most."""


class Gated:
    """All pools and tiers together: a group may have executions in any of them."""

    def __init__(self, store: Store, pools: Sequence[str], age: timedelta = timedelta()) -> None:
        self._store = store
        self._pools = pools
        self._age = age
        self._ageing = Ageing()
        self._is_crowded = False
        """The last look filled every place."""
        self._shares = FairShares()
        self._look_at = 0.0
        self._after = FIRST_GATE
        self._contended = 0
        """So many looks in a row met another worker at a gate."""

    @property
    def retry_in(self) -> timedelta | None:
        """When to look again where another worker was at a gate at the same moment: later and later, and not all at once."""
        if not self._contended:
            return None
        longest = min(CONTENDED * 2**self._contended, MOST_CONTENDED)
        return timedelta(seconds=random.uniform(CONTENDED, longest))

    def hasten(self) -> None:
        """Look at once: something has ended that others may have been waiting for."""
        self._look_at = 0.0

    async def claim(self, worker: UUID, places: int, *, ready_by: datetime, now: datetime) -> list[Claimed]:
        """Claim for so many places, of what its gates let through."""
        if time.monotonic() < self._look_at:
            return []
        began = time.monotonic()
        found = await self._store.waiting_lines(self._pools, ready_by, self._after)
        ended = time.monotonic()
        self._look_at = began + rest_after(ended - began, LOOK_EVERY)
        self._after = _end(found)
        # A gate that is full is not worth locking, which keeps others from it.
        lines = [line for line in found if line.has_room]
        if not lines:
            self._contended = 0
            return []
        aged = await self._claim_aged(worker, lines, places, now) if self._is_crowded else []
        left = places - len(aged)
        if left <= 0:
            self.hasten()
            return aged
        weights = {line.tenant_id: line.weight for line in lines}
        shares = self._shares.allot(left, weights)
        claims, is_contended = await self._store.claim_gated(
            worker, lines, places=left, shares=shares, ready_by=ready_by, now=now
        )
        for tenant, share in shares.items():
            unused = share - sum(claim.tenant_id == tenant for claim in claims)
            if unused > 0:
                self._shares.give_back(tenant, unused, weights[tenant])
        self._is_crowded = len(claims) == left
        self._contended = min(self._contended + 1, 8) if is_contended and not claims else 0
        if is_contended or self._is_crowded:
            self.hasten()
        return aged + claims

    async def _claim_aged(
        self, worker: UUID, lines: Sequence[Line], places: int, now: datetime
    ) -> list[Claimed]:
        """Give those who have waited for too long behind higher tiers their share: see `model/ageing.py`."""
        highest = min(line.priority for line in lines)
        tiers = sorted({line.priority for line in lines} - {highest})
        left = self._ageing.allot(places) if self._age and tiers else 0
        found: list[Claimed] = []
        for tier in self._ageing.order(tiers) if left else ():
            ready_by = now - (tier - highest) * self._age
            old = [line for line in lines if line.priority == tier and line.ready_at <= ready_by]
            if old and left > len(found):
                shares = {line.tenant_id: left for line in old}
                claims, _ = await self._store.claim_gated(
                    worker, old, places=left - len(found), shares=shares, ready_by=ready_by, now=now
                )
                found += claims
        return found


def _end(lines: Sequence[Line]) -> Gate:
    """Where the next look begins: behind what was looked at where there is more, or else at the first gate again.

    Otherwise whoever has a thousand full groups would keep those of the tenants after it from being looked at.
    """
    gates: defaultdict[tuple[str, int], list[Gate]] = defaultdict(list)
    for line in lines:
        gates[line.pool, line.priority].append((line.tenant_id, line.gate))
    return min((max(found) for found in gates.values() if len(found) == LINES), default=FIRST_GATE)
