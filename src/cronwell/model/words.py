"""A cron expression in words: `0 9 * * MON-FRI` is "At 09:00 on Monday through Friday"."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cronwell.model.cron import Expression
from cronwell.model.cronfields import LAST, Field, MonthEnd, NearestWeekday, NthWeekday, Span, Term

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "",
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_MOST_TIMES = 6
"""So many times of day are listed one by one; more are told field by field."""


def in_words(expression: Expression) -> str:
    """Say when an expression fires, without its zone."""
    time, names_times = _time(expression)
    date = _date(expression)
    if not date and names_times:
        date = "every day"
    text = f"{time} {date}".strip()
    if not expression.years.is_any:
        text += f" in {join([_range(term, str) for term in expression.years.terms])}"
    return text[0].upper() + text[1:]


def ordinal(number: int) -> str:
    """Write 1 as 1st, 22 as 22nd, 13 as 13th."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def join(parts: Sequence[str], last: str = "and") -> str:
    """Write a list as people do: `a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def _time(expression: Expression) -> tuple[str, bool]:
    """Say the time of day, and whether it names times (and so wants to hear on which days)."""
    seconds, minutes, hours = expression.seconds.values, expression.minutes.values, expression.hours.values
    on_the_minute = seconds == [0]
    if len(seconds) * len(minutes) * len(hours) <= _MOST_TIMES:
        times = [_clock(h, m, None if on_the_minute else s) for h in hours for m in minutes for s in seconds]
        return "at " + join(times), True
    parts: list[str] = []
    if not on_the_minute:
        parts.append(_unit(expression.seconds, "second", 60))
    if expression.minutes.is_any and not on_the_minute:
        # A rhythm of seconds runs on by itself; a single second needs its minute, and both then need no hour.
        text = parts[0] if _is_rhythm(parts[0]) else f"{parts[0]} of every minute"
        return text + _hours(expression.hours, is_rhythm=True), False
    parts.append(_unit(expression.minutes, "minute", 60))
    return ", ".join(parts) + _hours(expression.hours, _is_rhythm(parts[-1])), False


def _hours(field: Field, is_rhythm: bool) -> str:
    """Say in which hours, after a rhythm (`every 5 minutes`) or a place within the hour (`at minute 5`)."""
    if field.is_any:
        return "" if is_rhythm else " of every hour"
    span = field.spans[0]
    is_block = len(field.spans) == 1 and (span.step == 1 or len(span.values) == 1)
    if is_rhythm and is_block:
        return f" from {span.first:02d}:00 through {span.values[-1]:02d}:59"
    if len(field.spans) == 1 and not is_block:
        whole = span.is_star and 24 % span.step == 0
        reach = "" if whole else f" from hour {span.first} through {span.values[-1]}"
        return f" of every {ordinal(span.step)} hour{reach}"
    return f" of {_listed(field, 'hour')}"


def _unit(field: Field, unit: str, size: int) -> str:
    """Say seconds or minutes: `every 5 minutes`, `at minutes 10 and 40`."""
    if field.is_any:
        return f"every {unit}"
    span = field.spans[0]
    if len(field.spans) == 1 and span.step > 1 and len(span.values) > 1:
        if span.first == 0 and span.last == size - 1 and size % span.step == 0:
            return f"every {span.step} {unit}s"
        return f"every {span.step} {unit}s from {unit} {span.first} through {span.values[-1]}"
    return f"at {_listed(field, unit)}"


def _listed(field: Field, unit: str) -> str:
    items = [_range(term, str) for term in field.terms]
    return f"{unit}{'s' if len(field.values) > 1 else ''} {join(items)}"


def _is_rhythm(text: str) -> bool:
    """Whether it runs on from one hour into the next, so that no hour need be told."""
    return text.startswith("every") and " from " not in text


def _date(expression: Expression) -> str:
    days, weekdays, months = expression.days, expression.weekdays, expression.months
    in_months = "" if months.is_any else join([_range(term, _MONTHS.__getitem__) for term in months.terms])
    if days.is_any and weekdays.is_any:
        return f"every day in {in_months}" if in_months else ""
    of_months = f"of {in_months or 'every month'}"
    if weekdays.is_any:
        return f"on {_days(days)} {of_months}"
    has_count = any(isinstance(term, NthWeekday) for term in weekdays.terms)
    by_weekday = join([_weekday(term) for term in weekdays.terms])
    if days.is_any:
        if has_count:
            return f"on {by_weekday} {of_months}"
        return f"on {by_weekday}" + (f" in {in_months}" if in_months else "")
    if expression.needs_both_days:
        return f"on {_days(days)} {of_months} when that is {by_weekday}"
    return f"on {_days(days)} {of_months}, and also on {by_weekday}" + (
        f" in {in_months}" if in_months else ""
    )


def _days(field: Field) -> str:
    items = [_range(term, ordinal) for term in field.terms]
    return join(
        [
            item.replace(" from ", " day from the ") if item.startswith("every") else f"the {item}"
            for item in items
        ]
    )


def _weekday(term: Term) -> str:
    if isinstance(term, NthWeekday):
        count = "last" if term.nth == LAST else ordinal(term.nth)
        return f"the {count} {_WEEKDAYS[term.weekday]}"
    return _range(term, _WEEKDAYS.__getitem__)


def _range(term: Term, name: Callable[[int], str]) -> str:
    if isinstance(term, NearestWeekday):
        return f"day from Monday to Friday nearest to the {ordinal(term.day)}"
    if isinstance(term, MonthEnd):
        return _month_end(term)
    assert isinstance(term, Span), "a counted weekday is told by its own words"
    values = term.values
    if len(values) == 1:
        return name(values[0])
    if term.step == 1:
        return f"{name(term.first)} through {name(term.last)}"
    if len(values) <= _MOST_TIMES:
        return join([name(value) for value in values])
    return f"every {ordinal(term.step)} from {name(term.first)} through {name(values[-1])}"


def _month_end(term: MonthEnd) -> str:
    if not term.before:
        return "last day from Monday to Friday" if term.on_weekday else "last day"
    place = f"day {term.before} {'day' if term.before == 1 else 'days'} before the last"
    return f"day from Monday to Friday nearest to the {place}" if term.on_weekday else place


def _clock(hour: int, minute: int, second: int | None) -> str:
    return f"{hour:02d}:{minute:02d}" + ("" if second is None else f":{second:02d}")
