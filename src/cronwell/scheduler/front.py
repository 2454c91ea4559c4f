"""How far the slots of our shards are staged, so that a look for the next ones need not begin at the beginning.

The cursors of a shard stand in an index in the order of their next slots. One that moves on leaves a dead entry where it stood,
at the beginning, until vacuum clears it away; and vacuum clears nothing away while a transaction is open that is older (a report,
a backup). With 5,000 jobs that fire each second there are 150 more of them each second, and each look passed over all of them: 15 ms
after a minute of an open transaction, a quarter of a core, and more the longer it lasted (November 2026).

So a look begins where the last one ended, and one in a while at the beginning, as often as costs a twentieth of the time. What
comes up behind is not urgent: whoever writes a cursor (a new job, one that goes on after a pause) stages what lies within the
look-ahead with it. What waits longest is what another transaction had locked, or a server that has forgotten its last commits:
for a quarter of the look-ahead.
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


class Front:
    """Up to where each shard that is ours has been staged, as far as its cursors were there."""

    def __init__(self, look_ahead: timedelta) -> None:
        self._longest_rest = look_ahead.total_seconds() / 4
        self._reached: dict[tuple[int, int], datetime] = {}
        """By shard and epoch: whoever gets a shard anew begins anew."""
        self._whole_at = 0.0
        self._is_whole = True

    def since(self, epochs: Mapping[int, int]) -> dict[int, datetime]:
        """Where the next look begins in each of these shards."""
        self._is_whole = time.monotonic() >= self._whole_at
        if self._is_whole:
            return dict.fromkeys(epochs, EVER)
        return {shard: self._reached.get((shard, epoch), EVER) for shard, epoch in epochs.items()}

    def looked(self, seconds: float, found: int) -> None:
        """That look took so long, and found so many."""
        if self._is_whole and seconds > SLOW + found * FOR_EACH:
            self._whole_at = time.monotonic() + min(rest_after(seconds), self._longest_rest)

    def staged(self, epochs: Mapping[int, int], reached: Mapping[int, datetime]) -> None:
        """What that look found has been staged: each of these shards is, up to these moments."""
        self._reached = {(shard, epoch): reached[shard] for shard, epoch in epochs.items()}
