"""The days of an RFC 5545 rule, year by year, as bit masks: bit 0 is 1 January.

dateutil knows what a rule means, but it walks there from the start, one period at a time: the 10,000th day costs tens of
milliseconds, and a 30 February half a second, the way to the year 9999. Here it is asked one thing only: which days of a
year do the BY-parts leave? The answer depends on nothing but the kind of the year (its length, the weekday it starts
on and, for week numbers, the lengths of its neighbours), so it is asked at most 28 times for a rule. INTERVAL is
then a mask with every n-th period in it, and BYSETPOS a choice of bits.
"""

from __future__ import annotations

from calendar import isleap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache

from dateutil import rrule as dateutil

from cronwell.model.rrule import Freq, Rule

# A week has seven days, of which six may lie in another year than the seventh.
_MARGIN = 6
_BEFORE = 400
_WHOLE = {length: (1 << length) - 1 for length in (365, 366)}
# So far that dateutil, which heeds no end where nothing matches, stops after the first year.
_NEVER_AGAIN = 10_000
_MONTH_ENDS = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365)

Kind = tuple[int, bool, bool, bool]
"""A year's first weekday; whether it is a leap year; where that matters, whether the ones before and after it are."""


@dataclass(frozen=True, slots=True)
class YearDays:
    """The days of a rule that starts on `start`; those before it are not left out."""

    rule: Rule
    start: date
    positions: tuple[int, ...] = ()
    """Which days of each period, counted from 1 or back from -1; empty: all of them."""

    _known: dict[Kind, int] = field(init=False, repr=False, compare=False, default_factory=dict)
    """What was computed so far, the same for all years of a kind."""
    _grid: int = field(init=False, repr=False, compare=False)
    """For weeks and days: every INTERVAL-th period, over a year and one interval more."""

    def __post_init__(self) -> None:
        length, period = self._spacing()
        block = (1 << length) - 1
        grid = 0
        for begin in range(0, 366 + period, period):
            grid |= block << begin
        object.__setattr__(self, "_grid", grid)

    def of(self, year: int) -> int:
        """Mask the rule's days of a year."""
        rule = self.rule
        if rule.freq is Freq.YEARLY and (year - self.start.year) % rule.interval:
            return 0
        kind = _kind(year, minds_neighbours=bool(rule.weeks))
        days = self._known.get(kind)
        if days is None:
            typical = _typical_years()[kind]
            days = self._picked(typical) if self.positions else _matching(rule, self.start, typical)
            self._known[kind] = days
        return days & self._periods(year) if days and rule.interval > 1 else days

    def _spacing(self) -> tuple[int, int]:
        """Return how many days a period has and after how many the next one begins, for weeks and days."""
        length = 7 if self.rule.freq is Freq.WEEKLY else 1
        return length, length * (self.rule.interval if self.rule.freq >= Freq.WEEKLY else 1)

    def _periods(self, year: int) -> int:
        """Mask the days in every INTERVAL-th period, counted from the start's own."""
        rule, start = self.rule, self.start
        if rule.freq is Freq.YEARLY:
            return _WHOLE[366]
        if rule.freq is Freq.MONTHLY:
            first = ((start.year - year) * 12 + start.month - 1) % rule.interval
            return sum(_month(year, month) for month in range(first, 12, rule.interval))
        origin = start.toordinal()
        if rule.freq is Freq.WEEKLY:
            origin -= (start.weekday() - rule.week_start) % 7
        _, period = self._spacing()
        return self._grid >> (date(year, 1, 1).toordinal() - origin) % period & _WHOLE[366]

    def _picked(self, year: int) -> int:
        """Mask what BYSETPOS leaves of each period."""
        rule, start = self.rule, self.start
        days = _matching(rule, start, year)
        if rule.freq is Freq.YEARLY:
            return _pick(days, self.positions)
        if rule.freq is Freq.MONTHLY:
            return sum(_pick(days & _month(year, month), self.positions) for month in range(12))
        # Weeks reach over both ends of the year, and RFC 5545 counts in whole ones.
        length, before = _length(year), _matching(rule, start, year - 1)
        wide = before >> _length(year - 1) - _MARGIN | days << _MARGIN
        wide |= _matching(rule, start, year + 1) % (1 << _MARGIN) << _MARGIN + length
        first = _MARGIN - (date(year, 1, 1).weekday() - rule.week_start) % 7
        weeks = range(first, _MARGIN + length, 7)
        return sum(_pick(wide & 0x7F << week, self.positions) for week in weeks) >> _MARGIN & _WHOLE[length]


def _matching(rule: Rule, start: date, year: int) -> int:
    """Mask the days of a year that the BY-parts leave; what they do not say is taken from the start."""
    if rule.freq is Freq.DAILY and not (rule.has_days or rule.months):
        return _WHOLE[_length(year)]
    keeps_weekday = rule.freq is Freq.DAILY and rule.interval % 7 == 0
    if keeps_weekday and rule.weekdays and start.weekday() not in {each.day for each in rule.weekdays}:
        # Known without a search through all years.
        return 0
    counted = [dateutil.weekday(each.day, each.nth) for each in rule.weekdays if each.nth]
    plain = [dateutil.weekday(each.day) for each in rule.weekdays if not each.nth]
    if counted and plain:
        # Given both, dateutil wants a day to be both.
        return _ask(rule, start, year, counted) | _ask(rule, start, year, plain)
    return _ask(rule, start, year, counted or plain)


def _ask(rule: Rule, start: date, year: int, weekdays: Sequence[dateutil.weekday]) -> int:
    months, month_days = rule.months, rule.month_days
    if rule.freq is Freq.MONTHLY:
        # A month's rule is a year's rule with its months named: BYDAY then counts within each of them.
        months = months or tuple(range(1, 13))
    if not rule.has_days:
        if rule.freq is Freq.YEARLY:
            months, month_days = months or (start.month,), (start.day,)
        elif rule.freq is Freq.MONTHLY:
            month_days = (start.day,)
        else:
            days = (start.weekday(),) if rule.freq is Freq.WEEKLY else range(7)
            weekdays = [dateutil.weekday(day) for day in days]
    first_day = datetime(year, 1, 1)  # noqa: DTZ001  # a calendar has no zone
    found = dateutil.rrule(
        dateutil.YEARLY,
        dtstart=first_day,
        interval=_NEVER_AGAIN,
        bymonth=months or None,
        bymonthday=month_days or None,
        byyearday=rule.year_days or None,
        byweekday=weekdays or None,
        byhour=0,
        byminute=0,
        bysecond=0,
    )
    mask = 0
    for day in found:
        mask |= 1 << (day - first_day).days
    return mask & _in_weeks(rule, year) if rule.weeks else mask


def _in_weeks(rule: Rule, year: int) -> int:
    """Mask the days of a year whose week has one of the rule's numbers, be it a week of this year or of a neighbour.

    dateutil is not asked: it puts 1 January 2011 into a week 53 that 2010 does not have (its pull request 1537).
    """
    # From before the year before, so that no shift is negative.
    begin_of_mask, mask = date(year, 1, 1).toordinal() - _BEFORE, 0
    for owner in (year - 1, year, year + 1):
        first, end = _first_week(owner, rule.week_start), _first_week(owner + 1, rule.week_start)
        for number in rule.weeks:
            begin = first + 7 * (number - 1) if number > 0 else end + 7 * number
            if first <= begin < end:
                mask |= 0x7F << begin - begin_of_mask
    return mask >> _BEFORE & _WHOLE[_length(year)]


def _first_week(year: int, week_start: int) -> int:
    """Return the ordinal of the day on which the first week begins: the first one with four days of the year."""
    fourth = date(year, 1, 4)
    return fourth.toordinal() - (fourth.weekday() - week_start) % 7


def _pick(days: int, positions: Sequence[int]) -> int:
    """Keep the days at these positions."""
    among = list(_bits(days))
    chosen = {at - 1 if at > 0 else at + len(among) for at in positions}
    return sum(1 << bit for place, bit in enumerate(among) if place in chosen)


def _bits(mask: int) -> Iterator[int]:
    """Yield the places of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _kind(year: int, *, minds_neighbours: bool) -> Kind:
    before, after = (isleap(year - 1), isleap(year + 1)) if minds_neighbours else (False, False)
    return date(year, 1, 1).weekday(), isleap(year), before, after


@cache
def _typical_years() -> dict[Kind, int]:
    """Return one year of each kind; the calendar repeats itself after 400 years."""
    # With neighbours last: a year without leap years around it serves for both, the reverse does not hold.
    return {
        _kind(year, minds_neighbours=minds): year for minds in (False, True) for year in range(2000, 2400)
    }


def _month(year: int, month: int) -> int:
    """Mask the days of a month, 0 being January."""
    leap = isleap(year)
    begin, end = _MONTH_ENDS[month] + (leap and month > 1), _MONTH_ENDS[month + 1] + (leap and month > 0)
    return (1 << end) - (1 << begin)


def _length(year: int) -> int:
    return 366 if isleap(year) else 365
