"""Claim what has waited for too long behind a higher priority: see `model/ageing.py`.

It is found by the same statement and index as everything else, with an earlier time by which it must have been ready; and
looked for only while a higher priority fills every place.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from cronwell.model.ageing import Ageing
from cronwell.runtime.resting import rest_after
from cronwell.store.port import Store
from cronwell.worker.queue import Queue
from cronwell.worker.reach import Reach

LOOK_EVERY = 1.0
"""Seconds after which it is looked again for those who are old enough, where there were none."""

SLOW = 0.2
"""Seconds after which a look is followed by a rest also where it found something."""

Take = Callable[[Queue, int, timedelta], Awaitable[int]]
"""Claims so many from a queue of what has waited for so long, and tells how many they were."""


class Elders:
    """Those of one pool, whose priorities are numbered from the highest."""

    def __init__(self, store: Store, pool: str, priorities: int, age: timedelta) -> None:
        self._age = age
        self._ageing = Ageing()
        # They look back to the beginning, however long that takes: nothing else would find what came up behind them.
        self._queues = [Queue(store, pool, priority, Reach()) for priority in range(priorities)]
        self._quiet_until = 0.0
        self.filled: int | None = None
        """The priority that took the last free place; None where there was room for all."""

    async def claim(self, places: int, take: Take) -> None:
        """Give those who are old enough their share of so many free places."""
        if self.filled is None or not self._age or time.monotonic() < self._quiet_until:
            return
        began = time.monotonic()
        left = share = self._ageing.allot(places)
        for tier in self._ageing.order(range(self.filled + 1, len(self._queues))):
            if left > 0:
                left -= await take(self._queues[tier], left, (tier - self.filled) * self._age)
        ended = time.monotonic()
        if share and left == share:
            self._quiet_until = ended + rest_after(ended - began, LOOK_EVERY)
        elif ended - began > SLOW:
            self._quiet_until = ended + rest_after(ended - began)
