"""How far back a worker's claims look.

A claim goes through an index of what is ready from its beginning, and so over all that was claimed before and has not been
cleared away by vacuum: at thousands a second some hundred thousand entries. So where rounds of claims follow each other quickly only
one in a while begins there, and the others a little before where the last one ended.

Vacuum clears nothing away while a transaction is open that is older (a report, a backup): then every entry since it began stays
where it is, millions after minutes. While looking costs that much no round begins at the beginning. What comes up behind is looked
for beside the claims: see `behind.py`.

Each day of slots that is kept is a partition, and costs a statement that may look into it, whatever it holds. Nearly all that comes
due is of the last days. So the rounds in between look into those alone, as long as nothing older is met by the others.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from datetime import UTC, datetime, timedelta

from cronwell import telemetry
from cronwell.store.port import EVER, Tier

NEAR = timedelta(milliseconds=250)
"""So long before now, at least, a claim always begins: what is ready when it is written is visible a moment later."""
FAR = timedelta(seconds=5)
FAR_EVERY = 0.5
"""Seconds between two rounds that look back further, for what took longer. At 5,000 executions a second such a look takes 15 ms;
one round in ten, as it was, had a quarter of a core (November 2026)."""
WHOLE_EVERY = 0.19
"""Seconds between two rounds that look back to the beginning; a little less than a worker rests when it has nothing to do."""
SLOW = 0.01
"""Seconds that looking alone takes when it costs too much."""
FOR_EACH = 0.00005
"""Seconds that are allowed beside that for each execution that was claimed."""
RECENT = timedelta(days=1)
"""Slots of the day of so long ago, and later ones, are looked for in every round."""
LOOKS = 10
"""So many in a row at the same are slow before it is looked into: a busy machine is slow now and then."""


class Reach:
    """Whether the claims of a worker look back to the beginning."""

    def __init__(self) -> None:
        self.is_short = False
        self.is_suspect = False
        """Looks are slow, it may be for the length of the way: somebody should measure that."""
        self.margin = NEAR
        self.is_whole = True
        """This round looks back to the beginning."""
        self._is_of_all_days = True
        self._has_met_older = False
        self._whole_at = 0.0
        self._far_at = 0.0
        self._times: defaultdict[Tier | None, deque[float]] = defaultdict(lambda: deque(maxlen=LOOKS))

    def begin_round(self) -> None:
        """All that a round of claims asks for looks back equally far."""
        now = time.monotonic()
        self.margin = NEAR
        if now >= self._far_at:
            self.margin = FAR
            self._far_at = now + FAR_EVERY
        self.is_whole = not self.is_short and now >= self._whole_at
        if self.is_whole:
            self._whole_at = now + WHOLE_EVERY
        looks_back = self.is_whole or self.margin == FAR
        self._is_of_all_days = looks_back or self._has_met_older
        if looks_back:
            self._has_met_older = False

    @property
    def is_farthest(self) -> bool:
        """No other round looks back further than this one."""
        return self.is_whole or (self.is_short and self.margin == FAR)

    def slots_since(self, now: datetime) -> datetime:
        """The earliest slots that this round looks for."""
        return EVER if self._is_of_all_days else _recent(now)

    def meet(self, slot: datetime, now: datetime) -> None:
        """Let rounds look into all days for as long as there is something in them."""
        self._has_met_older = self._has_met_older or slot < _recent(now)

    def look_back(self) -> None:
        """Let the next round look back to the beginning, if any does: something has waited that may start now."""
        self._whole_at = 0.0

    def note(self, seconds: float, tier: Tier | None = None, *, claimed: int = 0) -> None:
        """Keep how long a look at a tier, or at all together, took that began at the beginning."""
        if not self.is_whole or self.is_suspect:
            return
        times = self._times[tier]
        times.append(seconds - claimed * FOR_EACH)
        self.is_suspect = len(times) == LOOKS and min(times) > SLOW

    def judge(self, seconds: float) -> None:
        """Decide by how much longer a look takes that goes the whole way than one that goes none."""
        self.is_suspect = False
        self._times.clear()
        is_short = seconds > SLOW
        if is_short and not self.is_short:
            telemetry.claims_shortened(seconds)
        elif self.is_short and not is_short:
            telemetry.claims_lengthened()
        self.is_short = is_short
        self.is_whole = not is_short


def _recent(now: datetime) -> datetime:
    return (now - RECENT).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


class Frontier:
    """How far a line of claims has come: what is ready before that was claimed, as far as it was there."""

    def __init__(self, reach: Reach, reached: datetime | None = None) -> None:
        self._reach = reach
        self.reached = reached
        """None where it is not known."""

    def since(self, now: datetime) -> datetime:
        """Where the next claim begins."""
        if self.reached is None or self._reach.is_whole:
            return EVER
        return min(self.reached, now) - self._reach.margin

    def branch(self) -> Frontier:
        """One that has come as far, and goes on by itself."""
        return Frontier(self._reach, self.reached)
