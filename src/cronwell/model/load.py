"""How often a schedule fires in each minute to come, without walking through all of its slots where they are many."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

from cronwell.model import window as windows
from cronwell.model.kinds import FixedDelay, FixedRate
from cronwell.model.schedule import Schedule, previous

MINUTE = timedelta(minutes=1)
WALKED = 2000
"""A schedule with more slots than this is taken to fire alike in each of the minutes in which it fires at all."""

_TICK = timedelta(microseconds=1)


def fires(
    schedule: Schedule, now: datetime, start: datetime, minutes: int, runs_left: int | None = None
) -> list[float]:
    """Count the starts after `now` in each minute from `start` on; those of a window are spread evenly over it.

    `every … after finish` is counted as if executions took no time, and one ended now.
    """
    kind = schedule.kinds[0]
    if isinstance(kind, FixedDelay):
        return _at_rate(FixedRate(kind.every, now), schedule, now, start, minutes)
    is_plain = len(schedule.kinds) == 1 and not schedule.excepts and schedule.filter is None
    if isinstance(kind, FixedRate) and is_plain and schedule.window is None and runs_left is None:
        return _at_rate(kind, schedule, now, start, minutes)
    return _walked(schedule, now, start, minutes, runs_left)


def _at_rate(
    kind: FixedRate, schedule: Schedule, now: datetime, start: datetime, minutes: int
) -> list[float]:
    first, last = max(schedule.start or now, now + _TICK), schedule.end

    def before(moment: datetime) -> int:
        """The number of the first slot that is not before a moment."""
        moment = max(moment, first)
        if last is not None:
            moment = min(moment, last + _TICK)
        return -((kind.anchor - moment) // kind.every)

    edges = [before(start + minute * MINUTE) for minute in range(minutes + 1)]
    return [float(max(0, after - at)) for at, after in pairwise(edges)]


def _walked(
    schedule: Schedule, now: datetime, start: datetime, minutes: int, runs_left: int | None
) -> list[float]:
    counts = [0.0] * minutes
    end = start + minutes * MINUTE
    # The window of the slot before may reach into the first minutes, and no further: it ends before the next slot.
    slot = None if schedule.window is None else previous(schedule, now)
    slot = slot or schedule.next_after(now)
    walked = 0
    while slot is not None and slot < end and walked != runs_left:
        following = schedule.next_after(slot)
        _add(counts, slot - start, schedule, following, slot)
        walked += 1
        if walked == WALKED:
            _probe(schedule, counts, start, slot)
            break
        slot = following
    return counts


def _add(
    counts: list[float], at: timedelta, schedule: Schedule, following: datetime | None, slot: datetime
) -> None:
    length = timedelta()
    if schedule.window is not None:
        length = windows.span(schedule.window, None if following is None else following - slot)
    if length <= _TICK:
        if at >= timedelta():
            counts[at // MINUTE] += 1
        return
    for minute in range(max(0, at // MINUTE), min(len(counts), (at + length) // MINUTE + 1)):
        covered = min(at + length, (minute + 1) * MINUTE) - max(at, minute * MINUTE)
        counts[minute] += max(0.0, covered / length)


def _probe(schedule: Schedule, counts: list[float], start: datetime, slot: datetime) -> None:
    """Fill the minutes after the one of `slot`: each in which there is a slot has as many as the fullest so far."""
    fullest = max(counts)
    minute = (slot - start) // MINUTE
    counts[minute] = fullest
    while True:
        found = schedule.next_after(start + (minute + 1) * MINUTE - _TICK)
        if found is None or (minute := (found - start) // MINUTE) >= len(counts):
            return
        counts[minute] = max(counts[minute], fullest)
