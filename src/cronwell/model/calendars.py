"""A calendar: a set of times that schedules keep to or stay away from. Its name lives with whoever stores it.

    {"dates": ["2026-12-24", "2026-12-28/2027-01-02"],
     "rrules": ["FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=31"],
     "holidays": [{"country": "DE", "region": "BY"}],
     "hours": [{"days": "MON-FRI", "from": "09:00", "to": "17:30"}],
     "windows": [{"from": "2026-12-20T18:00", "to": "2027-01-03T06:00"}],
     "description": "when nobody is there"}

A moment belongs to the calendar when any of its parts contains it. Days and hours are those of the zone in which it is
asked; so the same calendar serves Berlin and New York, each by its own clock.
"""

from __future__ import annotations

import json
from calendar import isleap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache

from cronwell import errors
from cronwell.model import calendar_reading, zones
from cronwell.model.calendar_parts import (
    YEARS_AHEAD,
    Dates,
    DayRule,
    Holidays,
    Hours,
    Window,
    write_bound,
    write_days,
    write_minute,
    write_range,
)
from cronwell.model.instants import HORIZON

_END = HORIZON.replace(tzinfo=None)
_WEEK = 7 * 1440
_WHOLE_WEEK = (1 << _WEEK) - 1


@dataclass(frozen=True, slots=True)
class Calendar:
    """A set of times. Every question takes an aware wall-clock time, and answers for its zone."""

    dates: Dates = field(default_factory=lambda: Dates(()))
    holidays: tuple[Holidays, ...] = ()
    rules: tuple[DayRule, ...] = ()
    windows: tuple[Window, ...] = ()
    hours: tuple[Hours, ...] = ()
    description: str = ""
    _text: str = field(init=False, repr=False, compare=False)
    _week: int = field(init=False, repr=False, compare=False)
    """The minutes of a week in its hours, as a mask."""
    _years: dict[int, int] = field(init=False, repr=False, compare=False, default_factory=dict)
    """The days of a year, as masks, of those years that were asked for."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_text", _write(self))
        week = 0
        for hours in self.hours:
            week |= hours.minutes
        object.__setattr__(self, "_week", week)

    def canonical(self) -> str:
        """Return the compact, stable JSON text to store; `load` reads it back."""
        return self._text

    def contains(self, wall: datetime) -> bool:
        """Tell whether a moment belongs to the calendar."""
        if self.has_day(wall.date()) or self._week >> _minute(wall) & 1:
            return True
        instant = wall.astimezone(UTC) if self.windows else wall
        return any(window.why(wall, instant) is not None for window in self.windows)

    def has_day(self, day: date) -> bool:
        """Tell whether a whole day belongs to the calendar."""
        return bool(self._days_of(day.year) >> (day - date(day.year, 1, 1)).days & 1)

    def why(self, wall: datetime) -> str | None:
        """Say which part contains a moment, such as "Christmas Day" or "Monday 09:00-17:30"; None when none does."""
        day = wall.date()
        for days in self._days():
            if (name := days.why(day)) is not None:
                return name
        if self.windows:
            instant = wall.astimezone(UTC)
            for window in self.windows:
                if (name := window.why(wall, instant)) is not None:
                    return name
        for hours in self.hours:
            if (name := hours.why(wall)) is not None:
                return name
        return None

    @property
    def has_only_days(self) -> bool:
        """Whether it consists of whole days."""
        return not (self.hours or self.windows)

    def next_change(self, wall: datetime) -> datetime | None:
        """Return the first later moment, in the same zone, at which an answer of `contains` may change.

        Up to it the answer stays; it may go on staying after it. Later means later in time: in the first pass of
        a fold the answer may be a time with an earlier face, of the second. None when nothing changes before the horizon.
        """
        instant = wall.astimezone(UTC)
        changes = [window.next_change(wall, instant) for window in self.windows]
        if any(self._days()) or self.hours:
            changes.append(self._change_on_the_face(wall, instant))
        first = min((change for change in changes if change is not None), default=None)
        return None if first is None or first >= HORIZON else first.astimezone(wall.tzinfo)

    def stays_until(self, wall: datetime) -> datetime | None:
        """Return an instant up to which `contains` goes on answering alike; None where it always does.

        Days and hours that touch or overlap are one stretch, which `next_change` takes apart.
        """
        instant = wall.astimezone(UTC)
        face = wall.replace(tzinfo=None, fold=0)
        in_days, in_week = self.has_day(face.date()), bool(self._week >> _minute(wall) & 1)
        ends = [end for window in self.windows if (end := window.ends_after(wall, instant)) is not None]
        if in_days:
            ends.append(self._shown_at(self._day_after(face, is_in=True), wall, instant))
        if in_week:
            ends.append(self._shown_at(self._minute_after(face, is_in=True), wall, instant))
        if ends:
            last = max(ends)
            return None if last >= HORIZON else last
        begins = [window.next_change(wall, instant) for window in self.windows]
        first = min(self._day_after(face, is_in=False), self._minute_after(face, is_in=False))
        begins.append(self._shown_at(first, wall, instant))
        nearest = min((begin for begin in begins if begin is not None), default=HORIZON)
        return None if nearest >= HORIZON else nearest

    def _days_of(self, year: int) -> int:
        """Mask the days of a year that any part has."""
        days = self._years.get(year)
        if days is None:
            whole = (1 << 365 + isleap(year)) - 1
            days = 0
            # Holidays last: they take milliseconds to find out, and nothing adds to a whole year.
            parts: tuple[Dates | DayRule | Holidays, ...] = (self.dates, *self.rules, *self.holidays)
            for part in parts:
                days |= part.days_of(year) & whole
                if days == whole:
                    break
            self._years[year] = days
        return days

    def _day_after(self, face: datetime, *, is_in: bool) -> datetime:
        """The first midnight from which on the days are other than `is_in`; where there are holidays, it may be."""
        year, passed = face.year, (face - datetime(face.year, 1, 1)).days + 1  # noqa: DTZ001  # a face has no zone
        last = min(_END.year, year + YEARS_AHEAD) if self.holidays and not is_in else _END.year
        while year < last:
            length = 365 + isleap(year)
            days = self._days_of(year) ^ ((1 << length) - 1 if is_in else 0)
            days = days >> passed << passed
            if days:
                return datetime(year, 1, 1) + timedelta((days & -days).bit_length() - 1)  # noqa: DTZ001  # as above
            year, passed = year + 1, 0
        return datetime(last, 1, 1)  # noqa: DTZ001  # as above

    def _minute_after(self, face: datetime, *, is_in: bool) -> datetime:
        """The first minute from which on the hours are other than `is_in`."""
        week = self._week ^ (_WHOLE_WEEK if is_in else 0)
        if not week:
            return _END
        now = _minute(face)
        later = week >> now + 1
        away = (later & -later).bit_length() if later else _WEEK - now + (week & -week).bit_length() - 1
        return face.replace(second=0, microsecond=0) + timedelta(minutes=away)

    def _shown_at(self, first: datetime, wall: datetime, instant: datetime) -> datetime:
        return self._instant_of(first, wall, instant) or HORIZON

    def _change_on_the_face(self, wall: datetime, instant: datetime) -> datetime | None:
        """Return the instant at which the clock first shows another day or hour of a part."""
        face = wall.replace(tzinfo=None, fold=0)
        days = [part.next_change(face.date()) for part in self._days()]
        faces = [datetime.combine(day, time()) for day in days if day is not None]
        faces += [hours.next_change(face) for hours in self.hours]
        return self._instant_of(min(faces, default=_END), wall, instant)

    def _instant_of(self, first: datetime, wall: datetime, instant: datetime) -> datetime | None:
        """Return the instant at which the clock shows a later time, or another one that may matter before it."""
        if not wall.fold and zones.is_repeated(wall):
            # First pass: if nothing comes before it ends, what the clock then shows again may be of another part.
            change = zones.jump(wall)
            if first.replace(tzinfo=wall.tzinfo) >= zones.wall_at(change, wall.tzinfo, change.before):
                return change.at
        if first >= _END:
            return None
        found = first.replace(tzinfo=wall.tzinfo)
        if zones.is_missing(found):
            return zones.jump(found).at
        reached = found.astimezone(UTC)
        return reached if reached > instant else found.replace(fold=1).astimezone(UTC)

    def _days(self) -> Iterator[Dates | Holidays | DayRule]:
        if self.dates.ranges:
            yield self.dates
        yield from self.holidays
        yield from self.rules


def parse(raw: Mapping[str, object], field: str = "calendar") -> Calendar:
    """Read what a user wrote. Raises errors.Invalid with every field that is wrong, below `field`."""
    parts = calendar_reading.read(raw, field)
    return Calendar(
        parts.dates,
        tuple(parts.holidays),
        tuple(parts.rules),
        tuple(parts.windows),
        tuple(parts.hours),
        parts.description,
    )


@lru_cache(maxsize=1024)
def load(text: str) -> Calendar:
    """Read a canonical text back. Raises errors.Invalid when it is none, or names a country that is gone."""
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise errors.Invalid.field("calendar", f"{text[:200]!r} is not a stored calendar: {error}") from error
    return parse(raw)


def _minute(face: datetime) -> int:
    """The minute of the week."""
    return 1440 * face.weekday() + 60 * face.hour + face.minute


def _write(calendar: Calendar) -> str:
    members: dict[str, object] = {
        "dates": [write_range(*each) for each in calendar.dates.ranges],
        "holidays": [_write_holidays(each) for each in calendar.holidays],
        "rrules": [_write_rule(each) for each in calendar.rules],
        "windows": [
            {"from": write_bound(each.begin), "to": write_bound(each.end)} for each in calendar.windows
        ],
        "hours": [
            {"days": write_days(each.days), "from": write_minute(each.begin), "to": write_minute(each.end)}
            for each in calendar.hours
        ],
        "description": calendar.description,
    }
    given = {name: value for name, value in members.items() if value}
    return json.dumps(given, separators=(",", ":"), sort_keys=True)


def _write_holidays(part: Holidays) -> dict[str, str]:
    return {"country": part.country} | ({"region": part.region} if part.region is not None else {})


def _write_rule(part: DayRule) -> str | dict[str, str]:
    start: date = part.rule.start.date()
    return {"rule": part.rule.text, "start": f"{start}"} if part.has_start else part.rule.text
