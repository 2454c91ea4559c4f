"""The oracle: which slots a schedule has, by arithmetic that shares nothing with the product's.

Cron slots come from the walker, which steps through every second and looks at the clock. The forms of a schedule that
the rig uses are read here, by hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from tests.model.walker import walk
from tests.support.rules import zone as made_zone

_made: dict[str, tzinfo] = {}
_IN = re.compile(r"in (\d+)s")


def slots(spec: Mapping[str, Any], after: datetime, until: datetime) -> list[datetime]:
    """Every slot of a job's definition in (after, until]; none for a job that is only triggered."""
    schedule = spec.get("schedule")
    match schedule:
        case None:
            return []
        case str() if schedule.startswith("at "):
            return _between([datetime.fromisoformat(schedule[3:])], after, until)
        case str() if _IN.fullmatch(schedule):
            return []
        case str():
            return _cron(schedule, str(spec.get("timezone") or "UTC"), after, until)
        case {"at": str() as at}:
            return _between([datetime.fromisoformat(at)], after, until)
        case {"cron": str() as text}:
            zone = schedule.get("timezone") or spec.get("timezone") or "UTC"
            return _cron(text, str(zone), after, until)
    raise AssertionError(f"the oracle cannot read {schedule!r}")


def go_by(rules: Mapping[str, str]) -> None:
    """Let some zones keep rules of the rig's own, given as POSIX TZ texts; all others keep theirs."""
    _made.clear()
    _made.update({name: made_zone(name, posix) for name, posix in rules.items()})
    _hour.cache_clear()


def delay(spec: Mapping[str, Any]) -> timedelta | None:
    """For a schedule such as `in 5s`: how long after its creation the job's one slot comes."""
    schedule = spec.get("schedule")
    found = _IN.fullmatch(schedule) if isinstance(schedule, str) else None
    return timedelta(seconds=int(found[1])) if found else None


def at(seconds: float) -> datetime:
    """A moment of the rig as a datetime."""
    return datetime.fromtimestamp(seconds, UTC)


def _between(moments: list[datetime], after: datetime, until: datetime) -> list[datetime]:
    return [moment.astimezone(UTC) for moment in moments if after < moment <= until]


def _cron(text: str, zone: str, after: datetime, until: datetime) -> list[datetime]:
    """Hour by hour, so that a herd that shares an expression is walked once."""
    found: list[datetime] = []
    hour = after.replace(minute=0, second=0, microsecond=0)
    while hour <= until:
        found += _hour(text, zone, hour)
        hour += timedelta(hours=1)
    return [moment for moment in found if after < moment <= until]


@lru_cache(maxsize=4096)
def _hour(text: str, zone: str, hour: datetime) -> tuple[datetime, ...]:
    before = hour - timedelta(microseconds=1)
    return tuple(
        walk(
            text,
            _made.get(zone) or ZoneInfo(zone),
            before,
            hour + timedelta(hours=1) - timedelta(microseconds=1),
        )
    )
