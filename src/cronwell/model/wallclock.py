"""Which wall-clock times a cron expression matches, and the next of them, in a bounded number of steps.

Each field becomes a bit mask, and each kind of month (28 of them: the weekday it starts on and its length) a mask of
its matching days. The next time is then found by shifting masks: no loop over minutes or days, and at worst one
step per month up to the horizon for something as rare as a 29 February on a Monday. An expression that no kind of month can
satisfy is known for it without any search.

cronsim has the same semantics and is what the tests compare with. It is not the engine, because it searches field by
field (18 to 110 µs a slot, against 2 to 8 here; November 2026), parses anew for each start, answers with a time *before* its
start inside a fold, and loses slots where a zone jumps by half an hour.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache

from cronwell.model.cron import Expression
from cronwell.model.cronfields import FIRST_YEAR, LAST, Field, MonthEnd, NearestWeekday, NthWeekday, Span
from cronwell.model.instants import HORIZON

# The months that may have so many days, as masks.
_MONTHS_WITH = {28: 1 << 2, 29: 1 << 2, 30: 0b1010_0101_0000, 31: 0b1_0101_1010_1010}
_EVERY_SEVENTH = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28
# A clock west of Greenwich shows 1969 at the earliest time that there is.
_YEAR_BASE = FIRST_YEAR - 1
_ALL_60 = (1 << 60) - 1
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True)
class WallClock:
    """An expression compiled to masks; bit n stands for the value n."""

    seconds: int
    minutes: int
    hours: int
    months: int
    years: int
    """Bit n stands for the year n after `_YEAR_BASE`; -1, which has every bit, for any year."""
    days: tuple[tuple[int, ...], ...]
    """The matching days by the weekday (0 is Monday) that the month starts on, and by its length less 28."""

    can_match: bool
    """Whether any date at all matches, in whatever year."""

    def next_after(self, wall: datetime) -> datetime | None:
        """Return the first match later on the clock's face than `wall`, in the same zone; it may not exist there.

        None when there is none before the horizon.
        """
        if not self.can_match:
            return None
        year, month, day = wall.year, wall.month, wall.day
        days = self._days_of(year, month)
        if days >> day & 1:
            time = self._time_after(wall.hour, wall.minute, wall.second)
            if time is not None:
                return datetime(year, month, day, *time, tzinfo=wall.tzinfo)
        days = days >> (day + 1) << (day + 1)
        while not days:
            month += 1
            if month > 12:
                later = self.years >> (year + 1 - _YEAR_BASE)
                year, month = year + 1 + _lowest(later), 1
                if not later or year >= HORIZON.year:
                    return None
            days = self._days_of(year, month)
        return datetime(
            year,
            month,
            _lowest(days),
            _lowest(self.hours),
            _lowest(self.minutes),
            _lowest(self.seconds),
            tzinfo=wall.tzinfo,
        )

    def run_ends(self, wall: datetime) -> datetime:
        """Given a match, return a later time up to which every second matches too: where it ends, or the day does."""
        day = wall.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        if self.seconds != _ALL_60:
            missing = ~self.seconds >> wall.second
            return wall + timedelta(seconds=min(_lowest(missing), 60 - wall.second))
        if self.minutes != _ALL_60:
            minutes = (
                wall.hour * 60 + wall.minute + min(_lowest(~self.minutes >> wall.minute), 60 - wall.minute)
            )
            return day + timedelta(minutes=minutes)
        return day + timedelta(hours=wall.hour + min(_lowest(~self.hours >> wall.hour), 24 - wall.hour))

    def _days_of(self, year: int, month: int) -> int:
        if not (self.months >> month & 1 and self.years >> (year - _YEAR_BASE) & 1):
            return 0
        length = _LENGTHS[month]
        if month == 2 and year % 4 == 0 and (year % 100 or year % 400 == 0):
            length = 29
        return self.days[date(year, month, 1).weekday()][length - 28]

    def _time_after(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1 and (later := self.seconds >> (second + 1)):
                return hour, minute, second + 1 + _lowest(later)
            if later := self.minutes >> (minute + 1):
                return hour, minute + 1 + _lowest(later), _lowest(self.seconds)
        if later := self.hours >> (hour + 1):
            return hour + 1 + _lowest(later), _lowest(self.minutes), _lowest(self.seconds)
        return None


@lru_cache(maxsize=4096)
def compiled(expression: Expression) -> WallClock:
    """Compile an expression; a herd that shares it compiles it once."""
    months = _mask(expression.months.values)
    days = tuple(
        tuple(_matching_days(expression, first, length) for length in _MONTHS_WITH) for first in range(7)
    )
    return WallClock(
        seconds=_mask(expression.seconds.values),
        minutes=_mask(expression.minutes.values),
        hours=_mask(expression.hours.values),
        months=months,
        years=-1 if expression.years.is_any else _mask(y - _YEAR_BASE for y in expression.years.values),
        days=days,
        can_match=any(
            mask and months & having
            for by_length in days
            for mask, having in zip(by_length, _MONTHS_WITH.values(), strict=True)
        ),
    )


def _matching_days(expression: Expression, first: int, length: int) -> int:
    """Mask the matching days of a month of that length that starts on the weekday `first` (0 is Monday)."""
    whole = (1 << length + 1) - 2
    by_date = _date_mask(expression.days, first, length)
    by_weekday = _weekday_mask(expression.weekdays, first, length)
    return (by_date & by_weekday if expression.needs_both_days else by_date | by_weekday) & whole


def _date_mask(days: Field, first: int, length: int) -> int:
    mask = 0
    for term in days.terms:
        if isinstance(term, Span):
            mask |= _mask(term.values)
        elif isinstance(term, MonthEnd):
            day = length - term.before
            if day >= 1:
                mask |= 1 << (_nearest_weekday(day, first, length) if term.on_weekday else day)
        elif isinstance(term, NearestWeekday) and term.day <= length:
            mask |= 1 << _nearest_weekday(term.day, first, length)
    return mask


def _weekday_mask(weekdays: Field, first: int, length: int) -> int:
    mask = 0
    for term in weekdays.terms:
        if isinstance(term, Span):
            for weekday in term.values:
                # May reach beyond the month's end; the caller cuts it off.
                mask |= _EVERY_SEVENTH << _first_such(weekday, first)
        elif isinstance(term, NthWeekday):
            occurrences = range(_first_such(term.weekday, first), length + 1, 7)
            if term.nth == LAST:
                mask |= 1 << occurrences[-1]
            elif term.nth <= len(occurrences):
                mask |= 1 << occurrences[term.nth - 1]
    return mask


def _first_such(weekday: int, first: int) -> int:
    """Return the first day of the month on `weekday` (0 is Sunday, as in cron), in a month that starts on `first`."""
    return (weekday - 1 - first) % 7 + 1


def _nearest_weekday(day: int, first: int, length: int) -> int:
    """Return the day from Monday to Friday nearest to `day`, without leaving the month."""
    weekday = (first + day - 1) % 7
    if weekday == 5:
        return day - 1 if day > 1 else day + 2
    if weekday == 6:
        return day + 1 if day < length else day - 2
    return day


def _mask(values: Iterable[int]) -> int:
    mask = 0
    for value in values:
        mask |= 1 << value
    return mask


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1
