"""Deadlines of many attempts on one timer of the event loop.

Nearly every attempt ends long before its deadline, thousands of them a second, and a hundred thousand may run at once. A timer
of the loop's own for each would be made and thrown away for nothing, and is the largest thing that a waiting attempt keeps
in memory. Here a deadline is a place in a set that it shares with those of the same millisecond: nothing strikes before its
deadline, and nothing more than that later.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from typing import Protocol

PER_SECOND = 1000
SPARE = 64


class Expiring(Protocol):
    """Something with a deadline."""

    def expire(self) -> None:
        """The deadline has passed."""
        ...


class Deadlines:
    """Those of one event loop; all methods are called from its thread. Times are of `time.monotonic`."""

    __slots__ = ("_armed_for", "_moments", "_sets", "_timer")

    def __init__(self) -> None:
        self._sets: dict[int, set[Expiring]] = {}
        """By the millisecond at which they strike."""
        self._moments: list[int] = []
        """A heap of those milliseconds, and of some whose sets are gone: to find one there takes a search."""
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0

    def __len__(self) -> int:
        return sum(map(len, self._sets.values()))

    @property
    def moments(self) -> int:
        """How many moments are kept in order, those of nobody included."""
        return len(self._moments)

    def add(self, deadline: float, who: Expiring) -> int:
        """Call `who.expire()` once `deadline` has passed; what is returned takes it back."""
        at = math.ceil(deadline * PER_SECOND)
        together = self._sets.get(at)
        if together is None:
            self._sets[at] = {who}
            heapq.heappush(self._moments, at)
            if len(self._moments) > 2 * len(self._sets) + SPARE:
                self._moments = sorted(self._sets)
            self._arm(at)
        else:
            together.add(who)
        return at

    def remove(self, at: int, who: Expiring) -> None:
        """Forget one that was added with this answer; one that has struck is forgotten already."""
        together = self._sets.get(at)
        if together is not None:
            together.discard(who)
            if not together:
                # The timer stays as it is: most of the time others have come meanwhile, for later.
                del self._sets[at]

    def _arm(self, at: int) -> None:
        """See to it that the timer strikes by then."""
        if self._timer is not None:
            if self._armed_for <= at:
                return
            self._timer.cancel()
        self._armed_for = at
        wait = max(0.0, at / PER_SECOND - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(wait, self._strike)

    def _strike(self) -> None:
        self._timer = None
        now = time.monotonic() * PER_SECOND
        while self._moments and (self._moments[0] <= now or self._moments[0] not in self._sets):
            for who in self._sets.pop(heapq.heappop(self._moments), ()):
                who.expire()
        if self._moments:
            self._arm(self._moments[0])
