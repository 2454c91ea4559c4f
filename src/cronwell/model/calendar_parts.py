"""What a calendar is made of: days (dates, rules, holidays), hours of the week, and windows between two moments.

Days and hours go by the clock's face: they are asked with a date, or with a time that has no zone. A window is a stretch of
real time: it is asked with an aware time. Each part knows what contains a moment, and when that may change next.
"""

from __future__ import annotations

import calendar
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from cronwell.model import instants, public_holidays, zones
from cronwell.model.recurrence import Recurrence

DAY_NAMES = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)
# How far ahead is looked for the end of a run of days, and for the next holiday. What lies farther is answered
# with "may change", which is always true.
_LONGEST_RUN = 62
YEARS_AHEAD = 2


@dataclass(frozen=True, slots=True)
class Dates:
    """Ranges of days, both ends included, in order and without overlap."""

    ranges: tuple[tuple[date, date], ...]

    def why(self, day: date) -> str | None:
        place = bisect_right(self.ranges, (day, date.max)) - 1
        if place < 0 or self.ranges[place][1] < day:
            return None
        return write_range(*self.ranges[place]).replace("/", " to ")

    def days_of(self, year: int) -> int:
        """Mask the days of a year; bit 0 is 1 January."""
        new_year = date(year, 1, 1)
        place = bisect_right(self.ranges, (new_year, date.max)) - 1
        days = 0
        for first, last in self.ranges[max(0, place) :]:
            if first.year > year:
                break
            if last >= new_year:
                begin, end = max(0, (first - new_year).days), min(366, (last - new_year).days + 1)
                days |= (1 << end) - (1 << begin)
        return days

    def next_change(self, day: date) -> date | None:
        place = bisect_right(self.ranges, (day, date.max))
        if place and self.ranges[place - 1][1] >= day:
            return self.ranges[place - 1][1] + _DAY
        return self.ranges[place][0] if place < len(self.ranges) else None


@dataclass(frozen=True, slots=True)
class DayRule:
    """The days of a recurrence rule that has one time of day, midnight."""

    rule: Recurrence
    has_start: bool
    """Whether its start was given; it does not matter otherwise."""

    def why(self, day: date) -> str | None:
        return self.rule.text if self._first_from(day) == day else None

    def days_of(self, year: int) -> int:
        """As `Dates.days_of`."""
        return self.rule.days_of(year)

    def next_change(self, day: date) -> date | None:
        following = self._first_from(day + _DAY)
        if self._first_from(day) != day:
            return following
        end = day + _DAY
        while following == end and (end - day).days < _LONGEST_RUN:
            end += _DAY
            following = self._first_from(end)
        return end

    def _first_from(self, day: date) -> date | None:
        found = self.rule.next_after(datetime.combine(day, time(), UTC) - _SECOND)
        return None if found is None else found.date()


@dataclass(frozen=True, slots=True)
class Holidays:
    """The public holidays of a country, or of one of its regions."""

    country: str
    region: str | None

    def why(self, day: date) -> str | None:
        return public_holidays.of(self.country, self.region, day.year).names.get(day)

    def days_of(self, year: int) -> int:
        """As `Dates.days_of`."""
        new_year = date(year, 1, 1)
        found = public_holidays.of(self.country, self.region, year).days
        return sum(1 << (day - new_year).days for day in found if day.year == year)

    def next_change(self, day: date) -> date | None:
        if self.why(day) is not None:
            return day + _DAY
        for year in range(day.year, day.year + YEARS_AHEAD):
            found = public_holidays.of(self.country, self.region, year).first_after(day)
            if found is not None:
                return found
        return date(day.year + YEARS_AHEAD, 1, 1)


@dataclass(frozen=True, slots=True)
class Hours:
    """From one minute of the day (included) to another (not included; 1440 is midnight), on some days of the week."""

    days: tuple[int, ...]
    """In order; 0 is Monday."""
    begin: int
    end: int

    def why(self, face: datetime) -> str | None:
        if face.weekday() in self.days and self.begin <= 60 * face.hour + face.minute < self.end:
            return f"{calendar.day_name[face.weekday()]} {write_minute(self.begin)}-{write_minute(self.end)}"
        return None

    @property
    def minutes(self) -> int:
        """Mask the minutes of a week; bit 0 is the first of Monday."""
        return sum(((1 << self.end) - (1 << self.begin)) << 1440 * day for day in self.days)

    def next_change(self, face: datetime) -> datetime:
        midnight = datetime.combine(face, time())
        for _ in range(8):
            if midnight.weekday() in self.days:
                for minute in (self.begin, self.end):
                    if (change := midnight + minute * _MINUTE) > face:
                        return change
            midnight += _DAY
        raise AssertionError("a week has every day of the week")


@dataclass(frozen=True, slots=True)
class Window:
    """The time from `begin` (included) to `end` (not included).

    Both are instants in UTC, or both are wall-clock times of whatever zone is asked. One that the clock jumps
    over is the end of the gap; of one that comes twice a window takes both: it begins with the first and ends with the last.
    """

    begin: datetime
    end: datetime
    _is_local: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_is_local", self.begin.tzinfo is None)

    def why(self, wall: datetime, instant: datetime) -> str | None:
        if not self._may_touch(wall):
            return None
        begin, end = self._bounds(wall.tzinfo)
        return f"{write_bound(self.begin)} to {write_bound(self.end)}" if begin <= instant < end else None

    def next_change(self, wall: datetime, instant: datetime) -> datetime | None:
        if self._is_local and wall.replace(tzinfo=None) >= self.end + 2 * _DAY:
            return None  # long past, which is told without asking the zone
        begin, end = self._bounds(wall.tzinfo)
        if instant < begin:
            return begin
        return end if instant < end else None

    def ends_after(self, wall: datetime, instant: datetime) -> datetime | None:
        """When the window ends that a moment is in; None where it is not."""
        if not self._may_touch(wall):
            return None
        begin, end = self._bounds(wall.tzinfo)
        return end if begin <= instant < end else None

    def _may_touch(self, wall: datetime) -> bool:
        """Tell cheaply whether the window is worth a look; no clock change is as long as two days."""
        if not self._is_local:
            return True
        face = wall.replace(tzinfo=None)
        return self.begin - 2 * _DAY <= face < self.end + 2 * _DAY

    def _bounds(self, zone: tzinfo | None) -> tuple[datetime, datetime]:
        if not self._is_local:
            return self.begin, self.end
        return _instant(self.begin.replace(tzinfo=zone)), _instant(self.end.replace(tzinfo=zone, fold=1))


def write_range(first: date, last: date) -> str:
    return f"{first}" if first == last else f"{first}/{last}"


def write_minute(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


def write_bound(bound: datetime) -> str:
    if bound.tzinfo is not None:
        return instants.write(bound)
    return bound.isoformat(timespec="auto" if bound.second or bound.microsecond else "minutes")


def write_days(days: Sequence[int]) -> str:
    """Write days of the week, with a range for three or more in a row: `MON-FRI,SUN`."""
    runs: list[list[int]] = []
    for day in days:
        if runs and runs[-1][-1] == day - 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    return ",".join(
        f"{DAY_NAMES[run[0]]}-{DAY_NAMES[run[-1]]}"
        if len(run) > 2
        else ",".join(DAY_NAMES[day] for day in run)
        for run in runs
    )


def _instant(wall: datetime) -> datetime:
    return zones.jump(wall).at if zones.is_missing(wall) else wall.astimezone(UTC)
