"""Which of a schedule's slots its calendars leave out, and where such a slot is moved to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Literal, get_args

from cronwell.model import zones
from cronwell.model.calendars import Calendar
from cronwell.model.instants import HORIZON

Shift = Literal["next", "previous"]
SHIFTS: tuple[Shift, ...] = get_args(Shift)
LONGEST_SHIFT = 31
"""Days that a slot may be moved; one that finds no open day within them is left out."""

_DAY = timedelta(days=1)
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Named:
    """A calendar as it was when the schedule was written, under the name that its tenant gave it."""

    name: str
    calendar: Calendar


@dataclass(frozen=True, slots=True)
class Filter:
    """Leaves out what any `exclude` contains and what any `only` does not; with `shift`, moves it to an open day."""

    exclude: tuple[Named, ...] = ()
    only: tuple[Named, ...] = ()
    shift: Shift | None = None

    @property
    def names(self) -> list[str]:
        """Of all its calendars, in order."""
        return sorted({each.name for each in (*self.exclude, *self.only)})

    def refusal(self, wall: datetime) -> str | None:
        """Say why a time is left out; None where it is not."""
        for each in self.exclude:
            if (why := each.calendar.why(wall)) is not None:
                return f"{why}, in the calendar {each.name}"
        for each in self.only:
            if not each.calendar.contains(wall):
                return f"outside the calendar {each.name}"
        return None

    def left_out_until(self, slot: datetime, zone: tzinfo) -> datetime | None:
        """None for a slot that is kept; else a time up to which everything is left out."""
        wall = slot.astimezone(zone)
        ends = [each.calendar.stays_until(wall) for each in self.exclude if each.calendar.contains(wall)]
        ends += [each.calendar.stays_until(wall) for each in self.only if not each.calendar.contains(wall)]
        if not ends:
            return None
        return max(HORIZON if end is None else end for end in ends) - _TICK

    def is_open(self, day: date) -> bool:
        """Whether a whole day is kept; asked only of calendars that consist of whole days."""
        return not any(each.calendar.has_day(day) for each in self.exclude) and all(
            each.calendar.has_day(day) for each in self.only
        )

    def moved(
        self, slot: datetime, zone: tzinfo, open_days: dict[date, bool] | None = None
    ) -> datetime | None:
        """Where a slot goes: nowhere if its day is open, else to the same time of the next or previous open day.

        Who asks for many slots in a row hands in the same `open_days`, so that each day is looked at once.
        """
        open_days = {} if open_days is None else open_days
        wall = slot.astimezone(zone)
        for day in (wall.date(), *self._days_from(wall.date())):
            if day not in open_days:
                open_days[day] = self.is_open(day)
            if open_days[day]:
                if day == wall.date():
                    return slot
                there = datetime.combine(day, wall.time().replace(fold=0), zone)
                return zones.jump(there).at if zones.is_missing(there) else there.astimezone(UTC)
        return None

    def earliest_source(self, t: datetime, zone: tzinfo) -> datetime:
        """A time from which on every slot is looked at that may be moved to after `t`."""
        day = t.astimezone(zone).date()
        if self.shift == "next":
            for _ in range(LONGEST_SHIFT):
                if self.is_open(day - _DAY):
                    break
                day -= _DAY
        return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)

    def latest_source(self, t: datetime) -> datetime:
        """A time from which on no slot is moved to before `t`."""
        return t if self.shift == "next" else t + (LONGEST_SHIFT + 2) * _DAY

    def _days_from(self, day: date) -> Iterator[date]:
        step = _DAY if self.shift == "next" else -_DAY
        for _ in range(LONGEST_SHIFT):
            day += step
            yield day
