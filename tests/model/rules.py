"""Random recurrence rules, and plain dateutil's opinion of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import takewhile
from types import SimpleNamespace
from unittest import mock

from dateutil import rrule as dateutil
from hypothesis import strategies as st

DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")

starts = st.integers(0, 120 * 365 * 86_400).map(
    lambda seconds: datetime.fromisoformat("1970-01-01T00:00") + timedelta(seconds=seconds)
)


def _numbers(low: int, high: int, *, back: bool = False) -> st.SearchStrategy[str]:
    each = st.integers(low, high)
    if back:
        each = st.one_of(each, each.map(lambda number: -number))
    return st.lists(each, min_size=1, max_size=3, unique=True).map(
        lambda numbers: ",".join(map(str, numbers))
    )


_weekdays = st.lists(st.sampled_from(DAYS), min_size=1, max_size=5, unique=True).map(",".join)


def _counted(most: int) -> st.SearchStrategy[str]:
    nth = st.integers(1, most).flatmap(lambda number: st.sampled_from([number, -number]))
    one = st.builds("{}{}".format, nth, st.sampled_from(DAYS))
    return st.lists(one, min_size=1, max_size=3, unique=True).map(",".join)


# Which parts each FREQ may have; the times of day go with all of them. Without BYWEEKNO, where dateutil errs.
_PARTS = {
    "YEARLY": {
        "BYMONTH": _numbers(1, 12),
        "BYYEARDAY": _numbers(1, 366, back=True),
        "BYMONTHDAY": _numbers(1, 31, back=True),
        "BYDAY": st.one_of(_weekdays, _counted(5)),
    },
    "MONTHLY": {
        "BYMONTH": _numbers(1, 12),
        "BYMONTHDAY": _numbers(1, 31, back=True),
        "BYDAY": st.one_of(_weekdays, _counted(5)),
    },
    "WEEKLY": {"BYMONTH": _numbers(1, 12), "BYDAY": _weekdays},
    "DAILY": {"BYMONTH": _numbers(1, 12), "BYMONTHDAY": _numbers(1, 31, back=True), "BYDAY": _weekdays},
}
_TIMES = {"BYHOUR": _numbers(0, 23), "BYMINUTE": _numbers(0, 59), "BYSECOND": _numbers(0, 59)}


@st.composite
def day_rules(draw: st.DrawFn) -> str:
    """Draw a rule of days, weeks, months or years."""
    freq = draw(st.sampled_from(list(_PARTS)))
    known = _PARTS[freq] | _TIMES
    chosen = draw(st.lists(st.sampled_from(sorted(known)), max_size=3, unique=True))
    parts = {name: draw(known[name]) for name in chosen}
    if parts and draw(st.integers(0, 3)) == 0:
        parts["BYSETPOS"] = draw(
            st.one_of(st.sampled_from(["1", "-1", "2", "1,-1", "2,-3"]), _numbers(1, 40, back=True))
        )
    if draw(st.booleans()):
        parts["INTERVAL"] = str(draw(st.integers(1, 9)))
    if draw(st.integers(0, 4)) == 0:
        parts["COUNT"] = str(draw(st.integers(1, 30)))
    if draw(st.integers(0, 3)) == 0:
        parts["WKST"] = draw(st.sampled_from(DAYS))
    return ";".join([f"FREQ={freq}", *(f"{name}={value}" for name, value in parts.items())])


@st.composite
def beat_rules(draw: st.DrawFn) -> str:
    """Draw a rule of hours, minutes or seconds."""
    freq = draw(st.sampled_from(["HOURLY", "MINUTELY", "SECONDLY"]))
    names = {
        "HOURLY": ["BYHOUR", "BYMINUTE", "BYSECOND"],
        "MINUTELY": ["BYHOUR", "BYMINUTE", "BYSECOND"],
        "SECONDLY": [],
    }
    parts = {name: draw(_TIMES[name]) for name in names[freq] if draw(st.booleans())}
    is_limited = "BYHOUR" in parts or (freq == "MINUTELY" and "BYMINUTE" in parts)
    parts["INTERVAL"] = str(
        draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24]) if is_limited else st.integers(1, 100))
    )
    if draw(st.integers(0, 4)) == 0:
        parts["COUNT"] = str(draw(st.integers(1, 30)))
    return ";".join([f"FREQ={freq}", *(f"{name}={value}" for name, value in parts.items())])


def walk(text: str, start: datetime, after: datetime, until: datetime) -> list[datetime]:
    """Return what plain dateutil lists in (after, until], by walking all the way from the start."""
    # dateutil looks for what comes after `until` up to the year 9999, which for a rare rule takes minutes.
    ending = SimpleNamespace(**{**vars(dt), "MAXYEAR": until.year})
    with mock.patch.object(dateutil, "datetime", ending):
        return [
            found for found in takewhile(lambda found: found <= until, _all(text, start)) if found > after
        ]


def _all(text: str, start: datetime) -> Iterator[datetime]:
    parts = dict(part.split("=") for part in text.split(";"))
    if parts["FREQ"] != "WEEKLY" or "BYSETPOS" not in parts:
        yield from dateutil.rrulestr(text, dtstart=start)
        return
    # dateutil counts within the first week from its start on, RFC 5545 from the week's beginning: begin there.
    parts.setdefault("BYDAY", DAYS[start.weekday()])
    for name, value in (("BYHOUR", start.hour), ("BYMINUTE", start.minute), ("BYSECOND", start.second)):
        parts.setdefault(name, str(value))
    count = int(parts.pop("COUNT", "0"))
    week = start - timedelta(days=(start.weekday() - DAYS.index(parts.get("WKST", "MO"))) % 7)
    rule = ";".join(f"{name}={value}" for name, value in parts.items())
    found = dateutil.rrulestr(rule, dtstart=week.replace(hour=0, minute=0, second=0))
    seen = 0
    for each in found:
        if each >= start:
            seen += 1
            yield each
            if seen == count:
                return
