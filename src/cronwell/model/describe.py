"""What a schedule means in words, and what about it may surprise its author."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from cronwell import durations
from cronwell.model import instants, window, zones
from cronwell.model.cron import Expression, MonthEnd
from cronwell.model.kinds import CronTimes, FixedRate, Once
from cronwell.model.schedule import Schedule, slots
from cronwell.model.wallclock import compiled
from cronwell.model.words import in_words
from cronwell.model.zones import Transition

_SECOND = timedelta(seconds=1)
_RARE = timedelta(days=367)
_LOOKED_AHEAD = timedelta(days=400)
"""Long enough to meet each of a year's clock changes once."""


def describe(schedule: Schedule) -> str:
    """Say in one sentence when a schedule fires: "At 03:00 every day, America/Los_Angeles"."""
    kind = schedule.kind
    if isinstance(kind, CronTimes):
        text = f"{in_words(kind.expression)}, {schedule.timezone}"
    elif isinstance(kind, FixedRate):
        text = f"Every {durations.write(kind.every)}, counted from {instants.write(kind.anchor)}"
    else:
        local = kind.at.astimezone(zones.find(schedule.timezone))
        text = f"Once, at {local.replace(tzinfo=None).isoformat(' ')}, {schedule.timezone}"
    if schedule.window is not None:
        over = window.write(schedule.window)
        share = " of the time to the next slot" if isinstance(schedule.window, window.Share) else ""
        text += f"; spread over {over}{share}"
    if schedule.start is not None:
        text += f"; from {instants.write(schedule.start)}"
    if schedule.end is not None:
        text += f"; until {instants.write(schedule.end)}"
    return text


def warnings(schedule: Schedule, now: datetime) -> list[str]:
    """List what may surprise: each a sentence with what to write instead. None of it keeps the schedule from running."""
    kind = schedule.kind
    found = list(_of_slots(schedule, now))
    if isinstance(kind, CronTimes):
        found += _of_fields(kind.expression)
        if schedule.window is None:
            found += _of_crowds(kind.expression)
        found += _of_clock_changes(kind, schedule.timezone, now)
    elif isinstance(kind, FixedRate) and kind.anchor > now and schedule.start is None:
        found.append(
            f"the anchor {instants.write(kind.anchor)} sets the phase only, and slots before it fire too; "
            "add `start` to begin there"
        )
    elif isinstance(kind, Once):
        local = kind.at.astimezone(zones.find(schedule.timezone))
        if zones.is_repeated(local):
            which = "second" if local.fold else "first"
            found.append(
                f"{local:%H:%M} comes twice on {local:%Y-%m-%d} in {schedule.timezone}; this is the {which} one"
            )
    return found


def _of_slots(schedule: Schedule, now: datetime) -> Iterator[str]:
    upcoming = slots(schedule, now, None, 2)
    if not upcoming:
        yield f"it has no slot after {instants.write(now)}"
        return
    if schedule.is_one_off:
        return
    begin = max(now, schedule.start or now)
    if upcoming[0] - begin > _RARE or (len(upcoming) == 2 and upcoming[1] - upcoming[0] > _RARE):
        dates = " and ".join(f"{slot:%Y-%m-%d}" for slot in upcoming)
        yield f"it fires rarely: the next slots are on {dates}"
    if len(upcoming) < 2:
        return
    gap = upcoming[1] - upcoming[0]
    if gap <= _SECOND:
        yield "it fires every second; make sure that this is meant"
    if isinstance(schedule.window, timedelta) and schedule.window > gap:
        yield (
            f"the window {durations.write(schedule.window)} is longer than the {durations.write(gap)} between slots; "
            "only the part before the next slot is used"
        )


def _of_fields(expression: Expression) -> Iterator[str]:
    units = (
        ("second", "minute", expression.seconds, 60),
        ("minute", "hour", expression.minutes, 60),
        ("hour", "day", expression.hours, 24),
    )
    for unit, whole, field, size in units:
        for span in field.spans:
            if span.is_star and span.step >= size:
                yield f"*/{span.step} in the {unit} field is the same as 0: it starts anew each {whole}"
            elif span.is_star and size % span.step:
                yield (
                    f"*/{span.step} in the {unit} field starts anew each {whole}, so its last step is shorter; "
                    f'for an even rhythm write "every {span.step}{unit[0]}"'
                )
    if not expression.needs_both_days:
        yield (
            "day of month and day of week are both given, so it fires on days that match either of them; "
            "write * in one of them to go by the other alone"
        )
        return
    days, months = expression.days, expression.months.values
    first = min(days.values, default=0)
    lacking = {2, 4, 6, 9, 11} if first == 31 else {2}
    has_end = any(isinstance(term, MonthEnd) for term in days.terms)
    if first > 28 and not has_end and len(months) > 1 and lacking & set(months):
        yield f"it is left out in months that have no day {first}; L is the last day of every month"


def _of_crowds(expression: Expression) -> Iterator[str]:
    if expression.minutes.values == [0] and expression.seconds.values == [0]:
        yield (
            "it fires on the full hour, when most jobs do; unless it must, choose another minute "
            'or give a `window` such as "5m"'
        )


def _of_clock_changes(kind: CronTimes, zone_name: str, now: datetime) -> Iterator[str]:
    """Tell of each coming gap and fold that changes how often the schedule fires that day, once per sort."""
    expression = kind.expression
    if expression.hours.is_any:
        # Whoever fires in every hour loses or gains an hour with everybody else.
        return
    told: set[bool] = set()
    for change in zones.transitions(kind.zone, now, now + _LOOKED_AHEAD):
        if change.is_gap in told or (expression.has_fixed_times and not change.is_gap):
            continue
        earlier, later = sorted((change.before, change.after))
        begin = zones.wall_at(change, kind.zone, earlier)
        end = zones.wall_at(change, kind.zone, later)
        hit = compiled(expression).next_after(begin - _SECOND)
        if hit is None or hit >= end:
            continue
        told.add(change.is_gap)
        yield _at_change(
            expression, change, f"{hit:%H:%M}", f"{end:%H:%M}", f"{begin:%Y-%m-%d} in {zone_name}"
        )


def _at_change(expression: Expression, change: Transition, hit: str, end: str, where: str) -> str:
    if change.is_gap and expression.has_fixed_times:
        return f"{hit} does not exist on {where}, where the clock jumps over it; it fires at {end} instead"
    advice = ""
    if expression.has_seconds and not (
        expression.minutes.starts_with_star or expression.hours.starts_with_star
    ):
        advice = "; written with five fields it would fire exactly once"
    if change.is_gap:
        return (
            f"{hit} does not exist on {where}, where the clock jumps over it; that slot is left out{advice}"
        )
    return f"{hit} comes twice on {where}, where the clock is put back; it fires both times{advice}"
