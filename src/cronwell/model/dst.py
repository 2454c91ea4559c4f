"""What a wall-clock time means where the clock jumps: over it (the gap), or back to before it (the fold).

A schedule chooses a rule for each. In a gap a time may be skipped, happen right after the gap (`first_after`; several
become one), or happen as long after the gap's beginning as it would have (`shift`). In a fold a time may happen in the
first pass, in the second, or in both. Whatever the rules, two times that fall on one instant are one slot, and slots
come in the order of their instants.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal, Protocol, get_args

from cronwell.model import zones
from cronwell.model.zones import Transition

Gap = Literal["skip", "first_after", "shift"]
Fold = Literal["first", "second", "both"]
GAPS: tuple[Gap, ...] = get_args(Gap)
FOLDS: tuple[Fold, ...] = get_args(Fold)

_SECOND = timedelta(seconds=1)
# No zone has jumped by more than a day and an hour at once since 1970 (Pacific/Apia and Kwajalein skipped a day).
_WIDEST = timedelta(hours=26)


class Faces(Protocol):
    """Times on a clock's face."""

    def next_after(self, wall: datetime) -> datetime | None:
        """Return the first one later on the face than `wall`, in the same zone; it may not exist there."""
        ...


@dataclass(frozen=True, slots=True)
class DstRule:
    """What happens to times that are missing, and to times that come twice."""

    gap: Gap
    fold: Fold


FIXED = DstRule("first_after", "first")
"""Debian cron's rule for fixed times: each is meant once a day."""
FACE = DstRule("skip", "both")
"""Debian cron's rule for all others: they follow the clock's face."""


def next_instant(faces: Faces, t: datetime, zone: tzinfo, rule: DstRule) -> datetime | None:
    """Return the first instant after `t` at which the zone's clock shows one of the times, by the rule."""
    wall = t.astimezone(zone)
    if zone is UTC:
        return faces.next_after(wall)
    found = _next_that_exists(faces, wall, t, rule)
    if rule.gap != "shift":
        return found
    shifted = _next_shifted(faces, wall, t, found)
    return min((each for each in (found, shifted) if each is not None), default=None)


def _next_that_exists(faces: Faces, wall: datetime, t: datetime, rule: DstRule) -> datetime | None:
    """The next slot, but for those that a gap shifts."""
    is_first_pass = not wall.fold and zones.is_repeated(wall)
    if rule.fold == "first" and wall.fold:
        # Second pass: whatever it repeats has fired in the first, so go on from the fold's end.
        wall = _edge(zones.jump(wall), wall.tzinfo, is_end=True)
    elif rule.fold == "second" and is_first_pass:
        # Nothing of the first pass has fired: all of it is still to come, in the second.
        wall = _edge(zones.jump(wall), wall.tzinfo, is_end=False)
    found = faces.next_after(wall)
    if rule.fold == "both" and is_first_pass:
        # When nothing more comes in the first pass, the clock goes back and shows earlier times again.
        change = zones.jump(wall)
        if found is None or found >= zones.wall_at(change, wall.tzinfo, change.before):
            found = faces.next_after(_edge(change, wall.tzinfo, is_end=False))
    while found is not None and zones.is_missing(found):
        change = zones.jump(found)
        if rule.gap == "first_after":
            return change.at
        found = faces.next_after(zones.wall_at(change, wall.tzinfo, change.after) - _SECOND)
    if found is None:
        return None
    if rule.fold == "second":
        return found.replace(fold=1).astimezone(UTC)
    # The reading with fold=0 is the first pass of a repeated time.
    instant = found.astimezone(UTC)
    return instant if instant > t else found.replace(fold=1).astimezone(UTC)


def _next_shifted(faces: Faces, wall: datetime, t: datetime, found: datetime | None) -> datetime | None:
    """The first missing time whose shifted instant lies after `t`, if one may come before `found`."""
    zone = wall.tzinfo
    for change in zones.transitions(zone or UTC, t - _WIDEST, t):
        if change.is_gap and t < change.at + (change.after - change.before):
            # Some of this gap's times have been shifted to before `t` and some have not.
            return _in_gap(faces, change, zone, t)
    hit = faces.next_after(wall.replace(fold=0))
    if hit is None or not zones.is_missing(hit):
        return None
    change = zones.jump(hit)
    return None if found is not None and found <= change.at else _in_gap(faces, change, zone, t)


def _in_gap(faces: Faces, change: Transition, zone: tzinfo | None, t: datetime) -> datetime | None:
    # Read with the offset from before the jump, `t` is a time within the gap, and shifted times keep their order.
    begin = max((t + change.before).replace(tzinfo=zone), _edge(change, zone, is_end=False))
    hit = faces.next_after(begin.replace(fold=0))
    if hit is None or hit >= zones.wall_at(change, zone, change.after):
        return None
    return (hit.replace(tzinfo=None) - change.before).replace(tzinfo=UTC)


def _edge(change: Transition, zone: tzinfo | None, *, is_end: bool) -> datetime:
    """The last second before a gap or fold begins on the clock's face, or before it ends."""
    first, last = sorted((change.before, change.after))
    return zones.wall_at(change, zone, last if is_end else first) - _SECOND
