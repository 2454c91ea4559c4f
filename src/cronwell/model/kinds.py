"""The kinds of schedule: cron, a fixed rate, one instant. Each answers one question: what comes after `t`?

A further kind needs `next_after` here, a way in (`reading`) and a canonical form (`schedule`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo

from cronwell.model import zones
from cronwell.model.cron import Expression
from cronwell.model.instants import HORIZON
from cronwell.model.wallclock import WallClock, compiled

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class CronTimes:
    """The instants at which a zone's wall clock matches a cron expression, by Debian cron's rule.

    Fixed times fire once on each matching day: right after a gap that swallows them (several in one gap become one
    slot), and in the first pass of a fold. All others follow the clock's face: nothing in a gap, both passes of a fold.
    """

    expression: Expression
    zone: tzinfo
    _clock: WallClock = field(init=False, repr=False, compare=False)
    _has_fixed_times: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Kept at hand: looking them up would be a third of the cost of a slot.
        object.__setattr__(self, "_clock", compiled(self.expression))
        object.__setattr__(self, "_has_fixed_times", self.expression.has_fixed_times)

    def next_after(self, t: datetime) -> datetime | None:
        wall = t.astimezone(self.zone)
        if self.zone is UTC:
            return self._clock.next_after(wall)
        if self._has_fixed_times:
            return _next_fixed(self._clock, wall)
        return _next_on_the_face(self._clock, wall, t)


@dataclass(frozen=True, slots=True)
class FixedRate:
    """`anchor + k * every` for every whole k, also below zero: the anchor sets the phase, `start` the beginning."""

    every: timedelta
    anchor: datetime

    def next_after(self, t: datetime) -> datetime | None:
        slot = self.anchor + ((t - self.anchor) // self.every + 1) * self.every
        return slot if slot < HORIZON else None


@dataclass(frozen=True, slots=True)
class Once:
    """One instant."""

    at: datetime

    def next_after(self, t: datetime) -> datetime | None:
        return self.at if t < self.at else None


Kind = CronTimes | FixedRate | Once


def _next_fixed(clock: WallClock, wall: datetime) -> datetime | None:
    if wall.fold:
        # Second pass: whatever it repeats has fired in the first, so go on from the fold's end.
        change = zones.jump(wall)
        wall = zones.wall_at(change, wall.tzinfo, change.before) - _SECOND
    found = clock.next_after(wall)
    if found is None:
        return None
    # The reading with fold=0 is the first pass of a repeated time.
    return zones.jump(found).at if zones.is_missing(found) else found.astimezone(UTC)


def _next_on_the_face(clock: WallClock, wall: datetime, t: datetime) -> datetime | None:
    found = clock.next_after(wall)
    if not wall.fold and zones.is_repeated(wall):
        # First pass: when nothing more comes in it, the clock goes back and shows earlier times again.
        change = zones.jump(wall)
        if found is None or found >= zones.wall_at(change, wall.tzinfo, change.before):
            found = clock.next_after(zones.wall_at(change, wall.tzinfo, change.after) - _SECOND)
    while found is not None and zones.is_missing(found):
        change = zones.jump(found)
        found = clock.next_after(zones.wall_at(change, wall.tzinfo, change.after) - _SECOND)
    if found is None:
        return None
    instant = found.astimezone(UTC)
    return instant if instant > t else found.replace(fold=1).astimezone(UTC)
