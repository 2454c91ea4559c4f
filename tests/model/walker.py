"""A second, slow opinion on cron slots: step through every minute or second and look at the clock.

It shares no code with `cronwell.model`. Whether a clock face matches is asked of cronsim's own field sets.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo

from cronsim import CronSim

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)

_WIDEST_GAP = timedelta(hours=3)


def walk(expression: str, zone: tzinfo, after: datetime, until: datetime) -> list[datetime]:
    """Return every slot in (after, until] by Debian cron's rule, in UTC."""
    face = _Face(expression)
    return _fixed(face, zone, after, until) if face.is_fixed else _by_the_clock(face, zone, after, until)


def walk_faces(
    matches: Callable[[datetime], bool], zone: tzinfo, after: datetime, until: datetime, gap: str, fold: str
) -> list[datetime]:
    """Return every slot in (after, until] whose minute on the clock's face matches, by a chosen rule for gap and fold.

    It looks at every minute of the face, and at every minute of the time that passes, to see how often each is shown.
    """
    shown: dict[datetime, list[datetime]] = {}
    moment = (after - _WIDEST_GAP - _WIDEST_GAP).replace(second=0, microsecond=0)
    while moment <= until + _WIDEST_GAP:
        shown.setdefault(moment.astimezone(zone).replace(tzinfo=None, fold=0), []).append(moment)
        moment += MINUTE
    faces = sorted(shown)
    found: set[datetime] = set()
    face = faces[0]
    while face <= faces[-1]:
        if matches(face):
            passes = shown.get(face, [])
            if len(passes) == 1:
                found.update(passes)
            elif passes:
                found.update({"first": passes[:1], "second": passes[-1:], "both": passes}[fold])
            elif gap == "first_after":
                later = face
                while later not in shown:
                    later += MINUTE
                found.add(shown[later][0])
            elif gap == "shift":
                begin = face
                while begin not in shown:
                    begin -= MINUTE
                found.add(shown[begin][-1] + (face - begin))
        face += MINUTE
    return sorted(moment for moment in found if after < moment <= until)


class _Face:
    def __init__(self, expression: str) -> None:
        self.sim = CronSim(expression, datetime(2027, 1, 1, tzinfo=UTC))
        fields = expression.split()
        self.step = SECOND if len(fields) == 6 else MINUTE
        self.is_fixed = len(fields) == 5 and not fields[0].startswith("*") and not fields[1].startswith("*")

    def matches(self, wall: datetime) -> bool:
        sim = self.sim
        return (
            wall.hour in sim.hours
            and wall.minute in sim.minutes
            and wall.second in sim.seconds
            and wall.month in sim.months
            and sim.match_day(wall.date())
        )


def _by_the_clock(face: _Face, zone: tzinfo, after: datetime, until: datetime) -> list[datetime]:
    found = []
    moment = after.astimezone(UTC).replace(microsecond=0)
    if face.step == MINUTE:
        moment = moment.replace(second=0)
    while moment <= until:
        if moment > after and face.matches(moment.astimezone(zone)):
            found.append(moment)
        moment += face.step
    return found


def _fixed(face: _Face, zone: tzinfo, after: datetime, until: datetime) -> list[datetime]:
    found = set()
    # Wider than asked: a gap pushes slots later, by its size.
    wall = (after - _WIDEST_GAP).astimezone(zone).replace(second=0, microsecond=0, fold=0)
    last = (until + _WIDEST_GAP).astimezone(zone)
    while wall <= last:
        if face.matches(wall):
            shown = wall
            while not _exists(shown):
                shown += MINUTE
            found.add(shown.astimezone(UTC))
        wall += MINUTE
    return sorted(moment for moment in found if after < moment <= until)


def _exists(wall: datetime) -> bool:
    shown = wall.astimezone(UTC).astimezone(wall.tzinfo)
    return shown.replace(tzinfo=None) == wall.replace(tzinfo=None)
