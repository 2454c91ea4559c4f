"""Which wall-clock times an RFC 5545 rule means, and the next of them, in a bounded number of steps.

A rule of days, weeks, months or years is days (`yeardays`) and times of day: the next is found by shifting the masks of
days, one step per year at the worst. A rule of hours, minutes or seconds is an even beat on the clock's face, and needs
no calendar. None of it starts from DTSTART: what is asked for in 2090 costs no more than what is asked for today.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NoReturn

from cronwell import errors
from cronwell.model import rrule, rrule_words
from cronwell.model.instants import HORIZON
from cronwell.model.rrule import Freq, Rule
from cronwell.model.yeardays import YearDays

MOST_TIMES = 1440
"""So many times of day a rule may have; more are a matter for cron."""

_MOST_STRANDS = 4
_DAY = 86_400
_SECOND = timedelta(seconds=1)
_END = HORIZON.replace(tzinfo=None)
_BEATS = {Freq.HOURLY: 3600, Freq.MINUTELY: 60, Freq.SECONDLY: 1}
_CRON = "write cron, or `every`"


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A rule and its start. `text` and `start` say all about it; the rest is what they compile to."""

    text: str
    start: datetime
    """DTSTART, as a wall-clock time without a zone, in whole seconds. A slot only where the rule matches it."""

    rule: Rule = field(repr=False, compare=False)
    _sources: tuple[_Strand | _Beat, ...] = field(repr=False, compare=False)
    _last: datetime = field(repr=False, compare=False)
    """No time of the rule is later: the last one that COUNT leaves, or the horizon."""

    def next_after(self, wall: datetime) -> datetime | None:
        """Return the first match later on the clock's face than `wall`, in the same zone; it may not exist there.

        None when there is none before the horizon.
        """
        face = wall.replace(tzinfo=None, microsecond=0)
        if face < self.start:
            face = self.start - _SECOND
        found: datetime | None = None
        for source in self._sources:
            candidate = source.next_after(face)
            if candidate is not None and (found is None or candidate < found):
                found = candidate
        return None if found is None or found > self._last else found.replace(tzinfo=wall.tzinfo)

    def days_of(self, year: int) -> int:
        """Mask the days of a year on which a rule of days has a time; bit 0 is 1 January."""
        if not self.start.year <= year <= min(self._last.year, _END.year - 1):
            return 0
        days = 0
        for source in self._sources:
            assert isinstance(source, _Strand), "a rule of hours has no days of its own"
            days |= source.days.of(year) if source.times else 0
        if year == self.start.year:
            passed = (self.start - _new_year(year)).days
            days = days >> passed << passed
        if year == self._last.year:
            days %= 1 << (self._last - _new_year(year)).days + 1
        return days

    @property
    def can_match(self) -> bool:
        """Whether any time at all matches, from the start to the horizon."""
        return self.next_after(self.start - _SECOND) is not None

    @property
    def has_fixed_times(self) -> bool:
        """Whether each time of day is meant once on its day: the rule's period is a day or longer."""
        return self.rule.freq.is_of_days


@lru_cache(maxsize=4096)
def parse(text: str, start: datetime) -> Recurrence:
    """Read a rule. Raises errors.Invalid with an empty field name and, where one is to blame, the column.

    One that never matches is not refused; ask `can_match`.
    """
    if start.tzinfo is not None or start.microsecond:
        raise ValueError("a rule starts at a wall-clock time without a zone, in whole seconds")
    rule = rrule.read(text)
    last: datetime | None = None
    sources: tuple[_Strand | _Beat, ...]
    if rule.freq.is_of_days:
        sources = strands = tuple(_strands(rule, start))
        last = _counted(strands, start, rule.count) if rule.count is not None else None
    else:
        sources = (beat := _beat(rule, start),)
        last = beat.nth(start, rule.count) if rule.count is not None else None
    return Recurrence(rule.text, start, rule, sources, last or _END)


def in_words(recurrence: Recurrence) -> str:
    """Say when it fires, without its zone: "Every month on the first Monday at 09:00"."""
    return rrule_words.describe(recurrence.rule, recurrence.start)


@dataclass(frozen=True, slots=True)
class _Beat:
    """`base + k * period + offset`, in seconds, for every k from 0 and every offset of the sorted `offsets`."""

    base: datetime
    period: int
    offsets: tuple[int, ...]

    def next_after(self, face: datetime) -> datetime | None:
        if not self.offsets:
            return None
        beats, rest = divmod((face - self.base) // _SECOND, self.period)
        later = bisect_right(self.offsets, rest)
        if later == len(self.offsets):
            beats, later = beats + 1, 0
        found = self.base + timedelta(seconds=beats * self.period + self.offsets[later])
        return found if found < _END else None

    def nth(self, start: datetime, n: int) -> datetime | None:
        """Return the n-th time, 1 being the first from `start` on; None beyond the horizon."""
        if not self.offsets:
            return None
        passed = bisect_left(self.offsets, (start - self.base) // _SECOND)
        beats, which = divmod(passed + n - 1, len(self.offsets))
        seconds = beats * self.period + self.offsets[which]
        return self.base + timedelta(seconds=seconds) if seconds < (_END - self.base) // _SECOND else None


@dataclass(frozen=True, slots=True)
class _Strand:
    """Some days, each at the same times of day (seconds since midnight, sorted)."""

    days: YearDays
    times: tuple[int, ...]

    def next_after(self, face: datetime) -> datetime | None:
        if not self.times:
            return None
        year, first = face.year, _new_year(face.year)
        day, second = divmod((face - first) // _SECOND, _DAY)
        days = self.days.of(year) >> day
        if days & 1 and second < self.times[-1]:
            return first + timedelta(day, self.times[bisect_right(self.times, second)])
        days = days >> 1 << 1
        while not days:
            year, day = year + 1, 0
            if year >= _END.year:
                return None
            days = self.days.of(year)
        return _new_year(year) + timedelta(day + _lowest(days), self.times[0])


def _strands(rule: Rule, start: datetime) -> Iterator[_Strand]:
    """Yield days with their times; only BYSETPOS can give different days different times."""
    times = _times(rule, start)
    if not rule.positions:
        yield _Strand(YearDays(rule, start.date()), times)
    elif rule.freq is Freq.DAILY:
        count = len(times)
        places = {at - 1 if at > 0 else at + count for at in rule.positions}
        chosen = tuple(times[place] for place in sorted(places) if 0 <= place < count)
        yield _Strand(YearDays(rule, start.date()), chosen)
    else:
        for positions, chosen in _by_positions(rule.positions, times).items():
            yield _Strand(YearDays(rule, start.date(), positions), chosen)


def _by_positions(positions: Sequence[int], times: Sequence[int]) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Turn positions among all times of a period into positions of days, and the times that go with them."""
    days_at: dict[int, set[int]] = {}
    for position in positions:
        day, place = divmod(position - 1 if position > 0 else position, len(times))
        days_at.setdefault(times[place], set()).add(day + 1 if position > 0 else day)
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for time in sorted(days_at):
        days = tuple(sorted(days_at[time]))
        found[days] = (*found.get(days, ()), time)
    if len(found) > _MOST_STRANDS:
        _refuse("BYSETPOS mixes too many days and times of day; give one time of day, or several schedules")
    return found


def _times(rule: Rule, start: datetime) -> tuple[int, ...]:
    hours = rule.hours or (start.hour,)
    minutes = rule.minutes or (start.minute,)
    seconds = rule.seconds or (start.second,)
    _check_number(len(hours) * len(minutes) * len(seconds))
    return tuple(
        3600 * hour + 60 * minute + second for hour in hours for minute in minutes for second in seconds
    )


def _beat(rule: Rule, start: datetime) -> _Beat:
    unit = _BEATS[rule.freq]
    base = start - timedelta(seconds=(start.minute * 60 + start.second) % unit)
    minutes = (rule.minutes or (start.minute,)) if rule.freq is Freq.HOURLY else (0,)
    seconds = (rule.seconds or (start.second,)) if rule.freq is not Freq.SECONDLY else (0,)
    _check_number(len(minutes) * len(seconds))
    within = [60 * minute + second for minute in minutes for second in seconds]
    limits_minutes = rule.freq is Freq.MINUTELY and bool(rule.minutes)
    if rule.freq is Freq.SECONDLY and (rule.hours or rule.minutes or rule.seconds):
        _refuse("FREQ=SECONDLY goes without other parts than INTERVAL and COUNT")
    if not (rule.hours or limits_minutes):
        return _Beat(base, rule.interval * unit, tuple(within))
    period = rule.interval * unit
    if _DAY % period:
        _refuse(
            f"with an INTERVAL of {rule.interval} the {rule.freq.unit}s differ from day to day, so that few of them fit"
        )
    midnight = base.replace(hour=0, minute=0, second=0)
    firsts = [
        first
        for first in range((base - midnight) // _SECOND % period, _DAY, period)
        if (not rule.hours or first // 3600 in rule.hours)
        and (not limits_minutes or first // 60 % 60 in rule.minutes)
    ]
    _check_number(len(firsts) * len(within))
    return _Beat(midnight, _DAY, tuple(first + offset for first in firsts for offset in within))


def _counted(strands: Sequence[_Strand], start: datetime, count: int) -> datetime | None:
    """Return the last time that COUNT leaves; None when the horizon comes first."""
    first = _new_year(start.year)
    day, second = divmod((start - first) // _SECOND, _DAY)
    # Those of the start's year that come before it are counted too, and so must be added.
    for strand in strands:
        days = strand.days.of(start.year)
        count += (days % (1 << day)).bit_count() * len(strand.times)
        count += (days >> day & 1) * bisect_left(strand.times, second)
    for year in range(start.year, _END.year):
        of_year = sum(strand.days.of(year).bit_count() * len(strand.times) for strand in strands)
        if count <= of_year:
            break
        count -= of_year
    else:
        return None
    for day in range(366):
        times = sorted(time for strand in strands if strand.days.of(year) >> day & 1 for time in strand.times)
        if count <= len(times):
            return _new_year(year) + timedelta(day, times[count - 1])
        count -= len(times)
    raise AssertionError("the year has as many times as were counted")


def _check_number(times: int) -> None:
    if times > MOST_TIMES:
        _refuse(f"it has {times} times of day, more than {MOST_TIMES}")


def _new_year(year: int) -> datetime:
    return datetime(year, 1, 1)  # noqa: DTZ001  # the clock's face has no zone


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _refuse(message: str) -> NoReturn:
    raise errors.Invalid.field("", f"{message}; {_CRON}", accepted=rrule.ACCEPTED)
