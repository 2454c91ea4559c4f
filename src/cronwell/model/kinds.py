"""The kinds of schedule: cron, a rule of RFC 5545, a fixed rate, a fixed delay, instants. Each answers one question: what
comes after `t`?

A further kind needs `next_after` here, a way in (`reading`) and a canonical form (`stored`).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Self

from cronwell.model import dst, zones
from cronwell.model.cron import Expression
from cronwell.model.dst import DstRule
from cronwell.model.instants import HORIZON
from cronwell.model.recurrence import Recurrence
from cronwell.model.wallclock import WallClock, compiled

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class CronTimes:
    """The instants at which a zone's wall clock matches a cron expression.

    Without a rule of its own, by Debian cron's: fixed times fire once on each matching day, right after a gap that
    swallows them (several in one gap become one slot), and in the first pass of a fold. All others follow the clock's
    face: nothing in a gap, both passes of a fold.
    """

    expression: Expression
    timezone: str
    rule: DstRule
    zone: tzinfo = field(init=False, repr=False, compare=False)
    faces: WallClock = field(init=False, repr=False, compare=False)

    @classmethod
    def of(cls, expression: Expression, timezone: str, rule: DstRule | None = None) -> Self:
        return cls(expression, timezone, rule or (dst.FIXED if expression.has_fixed_times else dst.FACE))

    def __post_init__(self) -> None:
        # Kept at hand: looking them up would be a third of the cost of a slot.
        object.__setattr__(self, "zone", zones.find(self.timezone))
        object.__setattr__(self, "faces", compiled(self.expression))

    @property
    def default_rule(self) -> DstRule:
        return dst.FIXED if self.expression.has_fixed_times else dst.FACE

    def next_after(self, t: datetime) -> datetime | None:
        return dst.next_instant(self.faces, t, self.zone, self.rule)


@dataclass(frozen=True, slots=True)
class RuleTimes:
    """The instants at which a zone's wall clock shows a time of a recurrence rule."""

    faces: Recurrence
    timezone: str
    rule: DstRule
    zone: tzinfo = field(init=False, repr=False, compare=False)

    @classmethod
    def of(cls, faces: Recurrence, timezone: str, rule: DstRule | None = None) -> Self:
        return cls(faces, timezone, rule or (dst.FIXED if faces.has_fixed_times else dst.FACE))

    def __post_init__(self) -> None:
        object.__setattr__(self, "zone", zones.find(self.timezone))

    @property
    def default_rule(self) -> DstRule:
        return dst.FIXED if self.faces.has_fixed_times else dst.FACE

    def next_after(self, t: datetime) -> datetime | None:
        return dst.next_instant(self.faces, t, self.zone, self.rule)


@dataclass(frozen=True, slots=True)
class FixedRate:
    """`anchor + k * every` for every whole k, also below zero: the anchor sets the phase, `start` the beginning."""

    every: timedelta
    anchor: datetime

    def next_after(self, t: datetime) -> datetime | None:
        slot = self.anchor + ((t - self.anchor) // self.every + 1) * self.every
        return slot if slot < HORIZON else None


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """`first`, and then `every` after each execution has finished.

    When that will be nobody knows, so what comes after `first` is told as if executions took no time at all.
    """

    every: timedelta
    first: datetime

    def next_after(self, t: datetime) -> datetime | None:
        slot = self.first if t < self.first else t + self.every
        return slot if slot < HORIZON else None


@dataclass(frozen=True, slots=True)
class Instants:
    """One instant or several, in order."""

    at: tuple[datetime, ...]

    def next_after(self, t: datetime) -> datetime | None:
        place = bisect_right(self.at, t)
        return self.at[place] if place < len(self.at) else None


Kind = CronTimes | RuleTimes | FixedRate | FixedDelay | Instants


def has(kind: Kind, slot: datetime) -> bool:
    """Whether an instant is one of a kind's."""
    return kind.next_after(slot - _MICROSECOND) == slot


def leaves_off(kind: Kind, slot: datetime) -> datetime:
    """Given an instant that is a kind's, return a time up to which each whole second is too."""
    if isinstance(kind, CronTimes):
        wall = slot.astimezone(kind.zone)
        end = kind.faces.run_ends(wall)
        length = end - wall
        # Across a change of the clock the face tells nothing: go on second by second.
        if (
            length > timedelta(seconds=1)
            and (slot + length).astimezone(kind.zone).utcoffset() == wall.utcoffset()
        ):
            return (slot + length - _MICROSECOND).astimezone(UTC)
    return slot
