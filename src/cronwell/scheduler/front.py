"""How far the slots of our shards are staged, so that a look for the next ones need not begin at the beginning.

The cursors of a shard stand in an index in the order of their next slots. One that moves on leaves a dead entry where it stood,
at the beginning, until vacuum clears it away; and vacuum clears nothing away while a transaction is open that is older (a report,
a backup). With 5,000 jobs that fire each second there are 150 more of them each second, and each look passed over all of them: 15 ms
after a minute of an open transaction, a quarter of a core, and more the longer it lasted (November 2026).

So a look begins where the last one ended. One in a second begins a look-ahead before now, for what is written so near to its slots that
they are not staged with it (a job that goes on with all that it missed; an API whose look-ahead is shorter). And one in a while
begins at the beginning, as often as costs a twentieth of the time: what it finds is what another transaction had locked. Whoever writes a
cursor otherwise (a new job, one that goes on after a pause) stages what lies within the look-ahead with it. Where a look fails, as when
its way takes longer than a statement may, the next ones are the shorter for a long while.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timedelta

from cronwell.runtime.resting import rest_after
from cronwell.store.port import EVER

SLOW = 0.005
"""Seconds that a look may take, beside so many for each cursor that it found, without a rest after it."""
FOR_EACH = 0.00005
NEAR_EVERY = 1.0
"""Seconds between two looks that begin a look-ahead before now, at least."""
LONGEST_REST = 600.0
"""Seconds until a look is tried again that has failed, at most."""


class Front:
    """Up to where each shard that is ours has been staged, as far as its cursors were there."""

    def __init__(self, look_ahead: timedelta) -> None:
        self._look_ahead = look_ahead
        self._reached: dict[tuple[int, int], datetime] = {}
        """By shard and epoch: whoever gets a shard anew begins anew."""
        self._whole_at = 0.0
        self._near_at = 0.0
        self._is_whole = self._is_near = False
        self._began: float | None = None
        """When a look began that has not been answered."""

    def since(self, epochs: Mapping[int, int], now: datetime) -> dict[int, datetime]:
        """Where the next look begins in each of these shards."""
        began = time.monotonic()
        if self._began is not None:
            self._rest(min(rest_after(began - self._began), LONGEST_REST))
        self._began = began
        self._is_whole = began >= self._whole_at
        self._is_near = not self._is_whole and began >= self._near_at
        if self._is_whole:
            return dict.fromkeys(epochs, EVER)
        latest = now - self._look_ahead if self._is_near else datetime.max.replace(tzinfo=now.tzinfo)
        return {
            shard: min(self._reached.get((shard, epoch), EVER), latest) for shard, epoch in epochs.items()
        }

    def looked(self, seconds: float, found: int) -> None:
        """That look was answered after so long, and found so many."""
        self._began = None
        if self._is_near:
            self._rest(rest_after(seconds, NEAR_EVERY))
        elif self._is_whole:
            self._near_at = time.monotonic() + NEAR_EVERY
            if seconds > SLOW + found * FOR_EACH:
                self._rest(min(rest_after(seconds), self._look_ahead.total_seconds() / 4))

    def staged(self, epochs: Mapping[int, int], reached: Mapping[int, datetime]) -> None:
        """What that look found has been staged: each of these shards is, up to these moments."""
        self._reached = {(shard, epoch): reached[shard] for shard, epoch in epochs.items()}

    def _rest(self, seconds: float) -> None:
        """Let no look of this kind come for so long."""
        until = time.monotonic() + seconds
        if self._is_whole:
            self._whole_at = until
        elif self._is_near:
            self._near_at = until
