"""A recurrence rule in words: `FREQ=MONTHLY;BYDAY=1MO;BYHOUR=9` is "Every month on the first Monday at 09:00"."""

from __future__ import annotations

import calendar
from datetime import datetime

from cronwell.model.rrule import Freq, Rule, Weekday
from cronwell.model.words import join, ordinal

_MOST_TIMES = 6
"""So many times of day are listed; a rule with more is told as it is written."""

_PLACES = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", -1: "last", -2: "second to last"}
_WORKING = (0, 1, 2, 3, 4)
_EVERY_DAY = (0, 1, 2, 3, 4, 5, 6)


def describe(rule: Rule, start: datetime) -> str:
    """Say when a rule fires, without its zone; a rule that does not go well into words is told as it is written."""
    when = _days(rule, start) if rule.freq.is_of_days else _beat(rule, start)
    if when is None:
        return rule.text
    return f"{_every(rule)}{when}" + (f", {rule.count} times in all" if rule.count is not None else "")


def _every(rule: Rule) -> str:
    return f"Every {rule.freq.unit}" if rule.interval == 1 else f"Every {rule.interval} {rule.freq.unit}s"


def _beat(rule: Rule, start: datetime) -> str | None:
    if rule.hours or (rule.freq is Freq.MINUTELY and rule.minutes):
        return None
    since = f", starting {start:%Y-%m-%d %H:%M}" if rule.interval > 1 else ""
    if rule.freq is Freq.SECONDLY:
        return since
    if (rule.seconds or (start.second,)) != (0,):
        return None
    if rule.freq is Freq.MINUTELY:
        return since
    minutes = rule.minutes or (start.minute,)
    if minutes == (0,):
        return since
    return f" at minute{'s' if len(minutes) > 1 else ''} {join([str(minute) for minute in minutes])}{since}"


def _days(rule: Rule, start: datetime) -> str | None:
    times = _times(rule, start)
    if times is None or rule.weeks or rule.year_days:
        return None
    months = join([calendar.month_name[month] for month in rule.months]) if rule.months else ""
    if rule.positions:
        which = _picked(rule)
    elif rule.freq is Freq.YEARLY and not rule.has_days:
        months = months or calendar.month_name[start.month]
        which = f"the {ordinal(start.day)}"
    elif rule.freq is Freq.MONTHLY and not rule.has_days:
        which = f"the {ordinal(start.day)}"
    elif rule.freq is Freq.WEEKLY and not rule.has_days:
        which = calendar.day_name[start.weekday()]
    else:
        which = _chosen(rule)
    if which is None:
        return None
    on = f" on {which}" if which else ""
    counts_in_month = which.startswith("the ")
    of = f" {'of' if counts_in_month else 'in'} {months}" if months else ""
    since = f", starting {start:%Y-%m-%d}" if rule.interval > 1 else ""
    return f"{on}{of} at {times}{since}"


def _chosen(rule: Rule) -> str | None:
    """Say BYMONTHDAY or BYDAY; None for both, and for what counts within a year."""
    if rule.month_days and rule.weekdays:
        return None
    if rule.month_days:
        if rule.freq is Freq.YEARLY and not rule.months:
            return None
        return f"the {join([_month_day(day) for day in rule.month_days])}"
    if not rule.weekdays:
        return ""
    has_count = any(each.nth for each in rule.weekdays)
    if has_count:
        if rule.freq is Freq.YEARLY and not rule.months:
            return None
        named = [_nth(each) for each in rule.weekdays]
        return None if None in named else join([name for name in named if name])
    return _weekdays(tuple(each.day for each in rule.weekdays))


def _picked(rule: Rule) -> str | None:
    """Say BYSETPOS where it picks one kind of day of each month at one time of day."""
    days = tuple(each.day for each in rule.weekdays if not each.nth)
    is_plain = len(days) == len(rule.weekdays) > 0 and not rule.month_days
    has_one_time = all(len(values) <= 1 for values in (rule.hours, rule.minutes, rule.seconds))
    if rule.freq is not Freq.MONTHLY or not is_plain or not has_one_time:
        return None
    places = [_PLACES.get(at) or (f"{ordinal(at)}" if at > 0 else None) for at in rule.positions]
    if None in places:
        return None
    if days == _WORKING:
        noun = "weekday (Monday to Friday)"
    elif days == _EVERY_DAY:
        noun = "day"
    elif len(days) == 1:
        noun = calendar.day_name[days[0]]
    else:
        noun = f"{join([calendar.day_name[day] for day in days], 'or')}"
    return f"the {join([place for place in places if place])} {noun}"


def _weekdays(days: tuple[int, ...]) -> str:
    if days == _EVERY_DAY:
        return "every day"
    if days == _WORKING:
        return "Monday to Friday"
    return join([calendar.day_name[day] for day in days])


def _nth(weekday: Weekday) -> str | None:
    name = calendar.day_name[weekday.day]
    if not weekday.nth:
        return f"every {name}"
    place = _PLACES.get(weekday.nth)
    return f"the {place} {name}" if place else None


def _month_day(day: int) -> str:
    if day > 0:
        return ordinal(day)
    return "last day" if day == -1 else f"{ordinal(-day)} to last day"


def _times(rule: Rule, start: datetime) -> str | None:
    hours = rule.hours or (start.hour,)
    minutes = rule.minutes or (start.minute,)
    seconds = rule.seconds or (start.second,)
    if len(hours) * len(minutes) * len(seconds) > _MOST_TIMES:
        return None
    shown = "{:02d}:{:02d}" if seconds == (0,) else "{:02d}:{:02d}:{:02d}"
    return join(
        [shown.format(hour, minute, second) for hour in hours for minute in minutes for second in seconds]
    )
