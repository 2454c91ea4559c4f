"""A schedule: which slots a job has, in a form that can be stored, shared and asked for the next one.

The canonical text is the identity of a schedule. Jobs with the same text have the same slots, so a herd's next
slot is computed once, whatever the number of its jobs (`next_slot` is cached by text and time).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from cronwell import errors
from cronwell.model import cron, instants, reading, zones
from cronwell.model import window as windows
from cronwell.model.instants import EARLIEST, HORIZON
from cronwell.model.kinds import CronTimes, FixedRate, Kind, Once
from cronwell.model.window import Window

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a job fires: the slots of its kind that lie in [start, end]."""

    kind: Kind
    timezone: str = "UTC"
    window: Window | None = None
    start: datetime | None = None
    end: datetime | None = None
    _text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_text", _write(self))

    def canonical(self) -> str:
        """Return the compact, stable JSON text that is stored with each job; `load` reads it back."""
        return self._text

    def next_after(self, t: datetime) -> datetime | None:
        """Return the first slot strictly after `t`, in UTC; None when there is none before the year 2101."""
        if t.tzinfo is None:
            raise ValueError("a time without a zone is not a moment")
        if t >= HORIZON:
            return None
        slot = self.kind.next_after(max(t, (self.start or EARLIEST) - _MICROSECOND))
        return None if slot is None or (self.end is not None and slot > self.end) else slot

    @property
    def is_one_off(self) -> bool:
        """Whether it has a single slot: `at`, or `in` once resolved."""
        return isinstance(self.kind, Once)


def parse(
    raw: str | Mapping[str, object], *, timezone: str | None, window: str | None, now: datetime
) -> Schedule:
    """Read what a user wrote. Raises errors.Invalid; so does a schedule with no slot after `now`.

    `timezone` and `window` fill in what `raw` leaves out. `in`, and `every` without an anchor, are resolved against
    `now`: to keep their slots, store the canonical text and do not parse the same words again later.
    """
    draft = reading.read(raw, timezone=timezone, window=window, now=now)
    schedule = Schedule(draft.kind, draft.timezone, draft.window, draft.start, draft.end)
    if schedule.next_after(now) is None:
        limit = schedule.end or HORIZON
        since = max(now, schedule.start or now)
        raise errors.Invalid.field(
            draft.path,
            f"it never fires: it has no slot after {instants.write(since)} and up to {instants.write(limit)}",
        )
    return schedule


@lru_cache(maxsize=16_384)
def load(text: str) -> Schedule:
    """Read a canonical text back. Raises errors.Invalid when it is none, or names a zone that is gone."""
    try:
        return _read(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise errors.Invalid.field(
            "schedule", f"{text[:200]!r} is not a stored schedule: {error!r}"
        ) from error


@lru_cache(maxsize=65_536)
def next_slot(text: str, t: datetime) -> datetime | None:
    """Return `load(text).next_after(t)`; a herd that shares the text and the time computes it once."""
    return load(text).next_after(t)


def slots(schedule: Schedule, after: datetime, until: datetime | None, limit: int) -> list[datetime]:
    """Return the slots in (after, until], oldest first, at most `limit` of them."""
    found: list[datetime] = []
    while len(found) < limit:
        slot = schedule.next_after(found[-1] if found else after)
        if slot is None or (until is not None and slot > until):
            break
        found.append(slot)
    return found


def effective_at(schedule: Schedule, job_id: UUID, slot: datetime) -> datetime:
    """Return when this job starts for `slot`: at its own stable place in the window, before the next slot."""
    if schedule.window is None:
        return slot
    return slot + windows.offset(job_id, _span(schedule.canonical(), slot))


@lru_cache(maxsize=65_536)
def _span(text: str, slot: datetime) -> timedelta:
    """Return the part of the window that is usable after `slot`, the same for all jobs that share the text."""
    schedule = load(text)
    assert schedule.window is not None, "asked only where there is a window"
    # The kind's own next slot: the window of the last slot before `end` is as long as that of any other.
    following = schedule.kind.next_after(slot)
    return windows.span(schedule.window, None if following is None else following - slot)


def _write(schedule: Schedule) -> str:
    kind = schedule.kind
    members: dict[str, str | int]
    if isinstance(kind, CronTimes):
        members = {"cron": kind.expression.text}
    elif isinstance(kind, FixedRate):
        members = {"every": kind.every // _MICROSECOND, "anchor": instants.write(kind.anchor)}
    else:
        members = {"at": instants.write(kind.at)}
    members["timezone"] = schedule.timezone
    if schedule.window is not None:
        members["window"] = windows.write(schedule.window)
    if schedule.start is not None:
        members["start"] = instants.write(schedule.start)
    if schedule.end is not None:
        members["end"] = instants.write(schedule.end)
    return json.dumps(members, separators=(",", ":"), sort_keys=True)


def _read(members: dict[str, Any]) -> Schedule:
    kind: Kind
    if "cron" in members:
        kind = CronTimes(cron.parse(members["cron"]), zones.find(members["timezone"]))
    elif "every" in members:
        kind = FixedRate(members["every"] * _MICROSECOND, instants.parse(members["anchor"]))
    else:
        kind = Once(instants.parse(members["at"]))
    return Schedule(
        kind,
        members["timezone"],
        windows.parse(members["window"]) if "window" in members else None,
        instants.parse(members["start"]) if "start" in members else None,
        instants.parse(members["end"]) if "end" in members else None,
    )
