"""A second opinion on the whole dialect: does a date and time match an expression? Read from the text, value by value.

It shares no code with `cronwell.model`, and never computes a next time: it only looks at one date at a time.
"""

from __future__ import annotations

import calendar
from datetime import date, datetime, timedelta

_NAMES = {
    name: n
    for n, name in enumerate(
        ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"], 1
    )
}
_DAYS = {name: n for n, name in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"])}


def matches(text: str, at: datetime, days: str = "or") -> bool:
    """Whether the clock's face `at` (its zone is not looked at) is one of the expression's."""
    fields = text.upper().split()
    if len(fields) == 5:
        fields = ["0", *fields]
    if len(fields) == 6:
        fields.append("*")
    second, minute, hour, day, month, weekday, year = fields
    return (
        _has(second, at.second, 0, 59)
        and _has(minute, at.minute, 0, 59)
        and _has(hour, at.hour, 0, 23)
        and _has(month, at.month, 1, 12)
        and _has(year, at.year, 1970, 2100)
        and _day(day, weekday, at.date(), days)
    )


def _day(day: str, weekday: str, at: date, days: str) -> bool:
    by_day = any(_is_day(term, at) for term in day.split(","))
    by_weekday = any(_is_weekday(term, at) for term in weekday.split(","))
    if days == "and" or day[0] in "*?" or weekday[0] in "*?":
        return by_day and by_weekday
    return by_day or by_weekday


def _is_day(term: str, at: date) -> bool:
    last = calendar.monthrange(at.year, at.month)[1]
    if term.startswith("L"):
        before = term.removesuffix("W")[2:]
        wanted = last - int(before or 0)
    elif term.endswith("W"):
        wanted = int(term[:-1])
    else:
        return _has(term, at.day, 1, 31)
    if not 1 <= wanted <= last:
        return False
    aim = at.replace(day=wanted)
    if not term.endswith("W"):
        return at == aim
    near = [aim + timedelta(days=n) for n in (0, -1, 1, -2, 2)]
    return at == next(each for each in near if each.month == at.month and each.weekday() < 5)


def _is_weekday(term: str, at: date) -> bool:
    today = at.isoweekday() % 7
    if "#" in term:
        name, nth = term.split("#")
        return _number(name) % 7 == today and (at.day - 1) // 7 + 1 == int(nth)
    if term.endswith("L"):
        return _number(term[:-1]) % 7 == today and (at + timedelta(days=7)).month != at.month
    return _has(term, today, 0, 6) or (today == 0 and _has(term, 7, 0, 7))


def _has(field: str, value: int, low: int, high: int) -> bool:
    return any(_in(term, value, low, high) for term in field.split(","))


def _in(term: str, value: int, low: int, high: int) -> bool:
    body, _, step = term.partition("/")
    if body in "*?":
        first, last = low, high
    else:
        begin, dash, end = body.partition("-")
        first = _number(begin)
        last = _number(end) if dash else high if step else first
        if high == 6 and last == 0 and first:
            last = 7
        if high == 6 and first == 7 and last < 7:
            first = 0
    size = high - low + 1
    steps = 0
    at = first
    while True:
        if at == value and steps % int(step or 1) == 0:
            return True
        if at == last:
            return False
        at += 1
        steps += 1
        if at > high and last < first:
            at -= size
        elif at > max(high, last):
            return False


def _number(text: str) -> int:
    return _NAMES.get(text, _DAYS.get(text, -1)) if text.isalpha() else int(text)
