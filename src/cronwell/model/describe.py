"""What a schedule means in words, and what about it may surprise its author."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Literal

from cronwell import durations
from cronwell.model import instants, recurrence, window, zones
from cronwell.model.cron import Expression
from cronwell.model.cronfields import MonthEnd, NearestWeekday
from cronwell.model.filters import Named
from cronwell.model.kinds import CronTimes, FixedDelay, FixedRate, Instants, Kind, RuleTimes
from cronwell.model.schedule import Schedule, slots
from cronwell.model.words import in_words, join
from cronwell.model.zones import Transition

_SECOND = timedelta(seconds=1)
_RARE = timedelta(days=367)
_LOOKED_AHEAD = timedelta(days=400)
"""Long enough to meet each of a year's clock changes once."""
_MOST_TOLD = 5
"""So many instants, or specs, are told one by one."""


def describe(schedule: Schedule) -> str:
    """Say in one sentence when a schedule fires: "At 03:00 every day, America/Los_Angeles"."""
    text = _of_kinds(schedule.kinds, schedule.timezone)
    if schedule.excepts:
        text += f"; except: {_of_kinds(schedule.excepts, schedule.timezone)}"
    if schedule.filter is not None:
        if schedule.filter.exclude:
            text += f"; not in {_named(schedule.filter.exclude)}"
        if schedule.filter.only:
            text += f"; only in {_named(schedule.filter.only)}"
        if schedule.filter.shift is not None:
            text += f", moved to the {schedule.filter.shift} open day instead"
    if schedule.window is not None:
        over = window.write(schedule.window)
        share = " of the time to the next slot" if isinstance(schedule.window, window.Share) else ""
        text += f"; spread over {over}{share}"
    if schedule.start is not None:
        text += f"; from {instants.write(schedule.start)}"
    if schedule.end is not None:
        text += f"; until {instants.write(schedule.end)}"
    if schedule.max_runs is not None:
        text += f"; {schedule.max_runs:,} {'time' if schedule.max_runs == 1 else 'times'} at most"
    return text


def _named(calendars: tuple[Named, ...]) -> str:
    return join([each.name for each in calendars])


def _of_kinds(kinds: tuple[Kind, ...], timezone: str) -> str:
    told = [_of_kind(kind, timezone) for kind in kinds[:_MOST_TOLD]]
    rest = len(kinds) - len(told)
    return "; and ".join(told) + (f"; and {rest} more" if rest else "")


def _of_kind(kind: Kind, timezone: str) -> str:
    if isinstance(kind, CronTimes):
        return f"{in_words(kind.expression)}, {kind.timezone}"
    if isinstance(kind, RuleTimes):
        return f"{recurrence.in_words(kind.faces)}, {kind.timezone}"
    if isinstance(kind, FixedRate):
        return f"Every {durations.write(kind.every)}, counted from {instants.write(kind.anchor)}"
    if isinstance(kind, FixedDelay):
        return f"{durations.write(kind.every)} after each execution has finished"
    zone = zones.find(timezone)
    told = [at.astimezone(zone).replace(tzinfo=None).isoformat(" ") for at in kind.at[:_MOST_TOLD]]
    if len(kind.at) > _MOST_TOLD:
        told.append(f"{len(kind.at) - _MOST_TOLD} more")
    times = "Once" if len(kind.at) == 1 else f"{len(kind.at)} times"
    return f"{times}, at {join(told)}, {timezone}"


def warnings(schedule: Schedule, now: datetime) -> list[str]:
    """List what may surprise: each a sentence with what to write instead. None of it keeps the schedule from running."""
    found = list(_of_slots(schedule, now))
    for kind in schedule.kinds:
        if isinstance(kind, CronTimes):
            found += _of_fields(kind.expression)
            if schedule.window is None:
                found += _of_crowds(kind.expression)
        if isinstance(kind, CronTimes | RuleTimes):
            found += _of_clock_changes(kind, now)
        elif isinstance(kind, FixedRate) and kind.anchor > now and schedule.start is None:
            found.append(
                f"the anchor {instants.write(kind.anchor)} sets the phase only, and slots before it fire too; "
                "add `start` to begin there"
            )
        elif isinstance(kind, Instants):
            found += _of_instants(kind, schedule.timezone)
    return list(dict.fromkeys(found))


def _of_instants(kind: Instants, timezone: str) -> Iterator[str]:
    for at in kind.at[:_MOST_TOLD]:
        local = at.astimezone(zones.find(timezone))
        if zones.is_repeated(local):
            which = "second" if local.fold else "first"
            yield f"{local:%H:%M} comes twice on {local:%Y-%m-%d} in {timezone}; this is the {which} one"


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
            'write * in one of them to go by the other alone, or add "days": "and" for days that match both'
        )
        return
    days, months = expression.days, expression.months.values
    first = min(days.values, default=0)
    lacking = {2, 4, 6, 9, 11} if first == 31 else {2}
    has_end = any(isinstance(term, MonthEnd | NearestWeekday) for term in days.terms)
    if first > 28 and not has_end and len(months) > 1 and lacking & set(months):
        yield f"it is left out in months that have no day {first}; L is the last day of every month"


def _of_crowds(expression: Expression) -> Iterator[str]:
    if expression.minutes.values == [0] and expression.seconds.values == [0]:
        rest = expression.text.split()[2 if expression.has_seconds else 1 :]
        yield (
            "it fires on the full hour, when most jobs do; unless it must, let the job's name choose the minute "
            f'with "{" ".join(["H", *rest])}", or give a `window` such as "5m"'
        )


def _of_clock_changes(kind: CronTimes | RuleTimes, now: datetime) -> Iterator[str]:
    """Tell of each coming gap and fold that changes how often the schedule fires that day, once per sort."""
    if isinstance(kind, CronTimes) and kind.expression.hours.is_any:
        # Whoever fires in every hour loses or gains an hour with everybody else.
        return
    told: set[bool] = set()
    for change in zones.transitions(kind.zone, now, now + _LOOKED_AHEAD):
        if change.is_gap in told or (kind.rule.fold == "first" and not change.is_gap):
            continue
        effect = effect_of(kind, change)
        if effect is not None:
            told.add(change.is_gap)
            yield effect


def effect_of(kind: CronTimes | RuleTimes, change: Transition) -> str | None:
    """Say what happens to the first time that a change of the clock removes or repeats; None where it hits none."""
    earlier, later = sorted((change.before, change.after))
    begin = zones.wall_at(change, kind.zone, earlier)
    end = zones.wall_at(change, kind.zone, later)
    hit = kind.faces.next_after(begin - _SECOND)
    if hit is None or hit >= end:
        return None
    where = f"{begin:%Y-%m-%d} in {kind.timezone}"
    if change.is_gap:
        missing = f"{hit:%H:%M} does not exist on {where}, where the clock jumps over it; "
        if kind.rule.gap == "first_after":
            return missing + f"it fires at {end:%H:%M} instead"
        if kind.rule.gap == "shift":
            shifted = (hit.replace(tzinfo=None) + (later - earlier)).strftime("%H:%M")
            return missing + f"it fires at {shifted} instead"
        return missing + f"that slot is left out{_advice(kind)}"
    twice = f"{hit:%H:%M} comes twice on {where}, where the clock is put back; "
    if kind.rule.fold == "both":
        return twice + f"it fires both times{_advice(kind)}"
    return twice + f"it fires the {kind.rule.fold} time"


def _advice(kind: CronTimes | RuleTimes) -> str:
    if not isinstance(kind, CronTimes) or kind.rule != kind.default_rule:
        return ""
    expression = kind.expression
    starred = expression.minutes.starts_with_star or expression.hours.starts_with_star
    return (
        "; written with five fields it would fire exactly once"
        if expression.has_seconds and not starred
        else ""
    )


@dataclass(frozen=True, slots=True)
class ClockChange:
    """A coming change of a zone's clock, and what it does to a schedule."""

    at: datetime
    timezone: str
    kind: Literal["gap", "fold"]
    before: timedelta
    after: timedelta
    effect: str


def clock_changes(schedule: Schedule, now: datetime, count: int = 2) -> list[ClockChange]:
    """The next changes of the schedule's own zone, each with what this schedule does there."""
    zone = schedule.zone
    walled = [
        kind for kind in schedule.kinds if isinstance(kind, CronTimes | RuleTimes) and kind.zone is zone
    ]
    found: list[ClockChange] = []
    for change in islice(zones.transitions(zone, now, now + _LOOKED_AHEAD), count):
        effects = [effect for kind in walled if (effect := effect_of(kind, change)) is not None]
        found.append(
            ClockChange(
                at=change.at,
                timezone=schedule.timezone,
                kind="gap" if change.is_gap else "fold",
                before=change.before,
                after=change.after,
                effect="; ".join(effects) if effects else "no slot is touched",
            )
        )
    return found
