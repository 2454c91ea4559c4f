"""Backfill: which past slots of a job are to be run, by which definition, and how fast. Pure; time is an argument.

What was asked for is kept as *spans*: stretches of time, one after the other, each with the schedule whose slots lie in
it and the revision of the job that they are run by. They are made once, when the backfill is asked for, so what is run
is what was counted, whatever becomes of the job meanwhile.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache

from cronwell.model import instants
from cronwell.model import schedule as schedules
from cronwell.model.schedule import Schedule

MOST_SLOTS = 100_000
"""Slots of one backfill. A longer range is asked for in parts."""
MOST_SPANS = 1000
FASTEST = 1000.0
SLOWEST = 1 / 3600
RATE_ACCEPTED = (
    'executions a second as a number, or a text such as "10/s", "100/m", "30/h"; from 1/h to 1000/s'
)

_TICK = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*/\s*([smh])", re.ASCII)
_PER = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class Span:
    """The slots of a schedule from `begin` on and before `end`."""

    schedule: Schedule
    begin: datetime
    end: datetime
    revision: int | None = None
    """The definition to run them by; None for the one that the job has when they are staged."""


@dataclass(frozen=True, slots=True)
class PastSlot:
    slot: datetime
    revision: int | None


def write(spans: Sequence[Span]) -> str:
    """Write spans; `load(write(x)) == x`."""
    return json.dumps(
        [
            {
                "schedule": json.loads(span.schedule.canonical()),
                "begin": instants.write(span.begin),
                "end": instants.write(span.end),
                "revision": span.revision,
            }
            for span in spans
        ],
        separators=(",", ":"),
        sort_keys=True,
    )


@lru_cache(maxsize=256)
def load(text: str) -> tuple[Span, ...]:
    """Read spans back."""
    return tuple(
        Span(
            schedule=schedules.load(json.dumps(each["schedule"], separators=(",", ":"), sort_keys=True)),
            begin=instants.parse(each["begin"]),
            end=instants.parse(each["end"]),
            revision=each["revision"],
        )
        for each in json.loads(text)
    )


def held(
    valid_from: datetime, valid_to: datetime | None, begin: datetime, end: datetime
) -> tuple[datetime, datetime]:
    """The part of [begin, end) in which a definition gave the slots; empty where its end is not after its begin.

    An edit settles the slots up to its own instant by the old definition, and the new one has those after it.
    """
    return max(begin, valid_from + _TICK), end if valid_to is None else min(end, valid_to + _TICK)


def following(
    spans: Sequence[Span], reached: datetime | None, *, is_newest_first: bool, limit: int
) -> list[PastSlot]:
    """The slots that come after `reached` in the order of the backfill, at most `limit` of them."""
    found: list[PastSlot] = []
    for span in reversed(spans) if is_newest_first else spans:
        wanted = limit - len(found)
        if wanted <= 0:
            break
        if reached is not None and (span.begin >= reached if is_newest_first else span.end <= reached):
            continue
        if is_newest_first:
            end = span.end if reached is None else min(span.end, reached)
            slots = _last(span.schedule, span.begin, end, wanted)
        else:
            after = span.begin - _TICK if reached is None else max(span.begin - _TICK, reached)
            slots = schedules.slots(span.schedule, after, span.end - _TICK, wanted)
        found += [PastSlot(slot, span.revision) for slot in slots]
    return found


def parts(spans: Sequence[Span], size: int) -> Iterator[list[PastSlot]]:
    """All slots, oldest first, so many at a time: a caller may stop where there are too many."""
    reached = None
    while part := following(spans, reached, is_newest_first=False, limit=size):
        yield part
        reached = part[-1].slot


def oldest_kept(now: datetime, kept: timedelta) -> datetime:
    """The first moment of the oldest day that retention keeps: nothing before it is staged, and nothing after it dropped."""
    return datetime.combine((now - kept).astimezone(UTC).date(), time(), UTC)


def starts(
    next_ready_at: datetime, rate: float, *, now: datetime, until: datetime, most: int
) -> list[datetime]:
    """When the next executions may start, up to a time: never closer to each other than the rate says.

    Time that was not used is not made up for, so that nothing comes as a burst after a pause.
    """
    first = max(next_ready_at, now)
    found: list[datetime] = []
    while len(found) < most and (at := first + len(found) * _SECOND / rate) <= until:
        found.append(at)
    return found


def read_rate(given: str | float) -> float:
    """Read a rate as executions a second. Raises ValueError with what is accepted."""
    if isinstance(given, str):
        match = _RATE.fullmatch(given.strip())
        if match is None:
            raise ValueError(f"{given[:40]!r} is not a rate; write {RATE_ACCEPTED}")
        rate = float(match[1]) / _PER[match[2]]
    else:
        rate = float(given)
    # A hair's breadth: an hour's 3600th part is not a whole number of anything.
    if not SLOWEST * 0.999 <= rate <= FASTEST:
        raise ValueError(f"{given} is too slow or too fast; write {RATE_ACCEPTED}")
    return rate


def write_rate(rate: float) -> str:
    """Write a rate in the first unit in which it is a whole number; where there is none, to six digits."""
    for unit, seconds in _PER.items():
        count = round(rate * seconds)
        if count and math.isclose(rate * seconds, count, rel_tol=1e-9):
            return f"{count}/{unit}"
    return f"{rate:.6g}/s" if rate >= 1 else f"{rate * 3600:.6g}/h"


def _last(schedule: Schedule, begin: datetime, end: datetime, count: int) -> list[datetime]:
    """The last `count` slots from `begin` on and before `end`, newest first: looked for further and further back."""
    found: list[datetime] = []
    width = max(count, 60) * _SECOND
    while end > begin and len(found) < count:
        start = max(begin, end - width)
        found += reversed(schedules.slots(schedule, start - _TICK, end - _TICK, MOST_SLOTS + 1))
        end = start
        width *= 2
    return found[:count]
