"""The watermark: up to where all slots of our shards are accounted for, written down for others to watch.

It stands about a look-ahead before the clock. Where it comes near the clock slots are about to be late, and where it has
been passed by they are: somebody is told while there is still time.
"""

from __future__ import annotations

import time
from datetime import timedelta

from cronwell import telemetry
from cronwell.config import SchedulerSettings
from cronwell.runtime.clock import Clock
from cronwell.runtime.resting import rest_after
from cronwell.scheduler.duties import Duties
from cronwell.store.port import Store

EVERY = timedelta(seconds=1)
LONGEST_REST = timedelta(seconds=5)
"""Behind an old transaction it is a long way to the first cursor of a shard. Who reads marks waits for 15 s at least."""


class Watermark:
    """Marks the shards that are ours, and tells their keeper when we fall behind."""

    def __init__(self, store: Store, clock: Clock, settings: SchedulerSettings, duties: Duties) -> None:
        self._store = store
        self._clock = clock
        self._look_ahead = settings.look_ahead
        self._duties = duties

    async def mark(self) -> timedelta:
        epochs = self._duties.epochs
        if not epochs:
            self._duties.is_behind = False
            return EVERY
        began, now = time.monotonic(), self._clock.now()
        marks = await self._store.mark_shards(self._duties.member, epochs, now + self._look_ahead, now)
        lost = epochs.keys() - marks.keys()
        if lost:
            self._duties.drop(lost)
        if marks:
            ahead = min(marks.values()) - now
            self._duties.is_behind = ahead < self._look_ahead / 2
            telemetry.watermark(ahead)
        rest = rest_after(time.monotonic() - began, EVERY.total_seconds())
        return min(timedelta(seconds=rest), LONGEST_REST)
