"""A schedule: which slots a job has, in a form that can be stored, shared and asked for the next one.

The canonical text is the identity of a schedule. Jobs with the same text have the same slots, so a herd's next
slot is computed once, whatever the number of its jobs (`next_slot` is cached by text and time).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice, takewhile
from uuid import UUID

from cronwell import errors
from cronwell.model import cron, instants, kinds, reading, stored, zones
from cronwell.model import window as windows
from cronwell.model.calendars import Calendar
from cronwell.model.filters import Filter
from cronwell.model.instants import EARLIEST, HORIZON
from cronwell.model.kinds import CronTimes, FixedDelay, Instants, Kind, RuleTimes
from cronwell.model.specs import shorthand
from cronwell.model.walk import walk
from cronwell.model.window import Window

DENSEST_SHIFTED = 48
"""Slots a day of a schedule that is shifted to open days, at most."""

_MICROSECOND = timedelta(microseconds=1)
_DAY = timedelta(days=1)
_WALKED = timedelta(minutes=1)
"""A time in which looking for a schedule's last slot tries one after the other."""

_NO_GAP = (HORIZON, HORIZON)
_MOST_GAPS = 16_384
_gaps: dict[str, tuple[datetime, datetime]] = {}
"""By canonical text: a time that was asked for, and the first slot after it."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a job fires: the instants of its kinds in [start, end], without those of `excepts` and those that its
    calendars leave out or move. At most `max_runs` of them are run; that is counted where they are staged."""

    kinds: tuple[Kind, ...]
    timezone: str = "UTC"
    window: Window | None = None
    start: datetime | None = None
    end: datetime | None = None
    excepts: tuple[Kind, ...] = ()
    filter: Filter | None = None
    max_runs: int | None = None
    _text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_text", stored.write(self))

    def canonical(self) -> str:
        """Return the compact, stable JSON text that is stored with each job; `load` reads it back."""
        return self._text

    def next_after(self, t: datetime) -> datetime | None:
        """Return the first slot strictly after `t`, in UTC; None when there is none before the year 2101."""
        if t.tzinfo is None:
            raise ValueError("a time without a zone is not a moment")
        if t >= HORIZON:
            return None
        if len(self.kinds) > 1 or self.excepts or self.filter is not None:
            return next(walk(self, t), None)
        # By far the most, and asked by the thousand.
        slot = self.kinds[0].next_after(max(t, (self.start or EARLIEST) - _MICROSECOND))
        if slot is None or slot >= HORIZON or (self.end is not None and slot > self.end):
            return None
        return slot

    def has(self, moment: datetime) -> bool:
        """Whether a moment is a slot. That of a schedule which waits for each execution's end is known to nobody."""
        return self.delay is None and self.next_after(moment - _MICROSECOND) == moment

    @property
    def zone(self) -> tzinfo:
        return zones.find(self.timezone)

    @property
    def is_one_off(self) -> bool:
        """Whether it has a single slot: one `at`, or `in` once resolved."""
        [*rest, kind] = self.kinds
        return not rest and isinstance(kind, Instants) and len(kind.at) == 1

    @property
    def has_moments(self) -> bool:
        """Whether it has slots that were named one by one."""
        return any(isinstance(kind, Instants) for kind in self.kinds)

    @property
    def delay(self) -> timedelta | None:
        """For `every … after finish`: how long after the end of an execution the next slot comes."""
        return self.kinds[0].every if isinstance(self.kinds[0], FixedDelay) else None

    @property
    def is_zoned(self) -> bool:
        """Whether a change of a zone's rules can move its slots."""
        by_face = [kind for kind in (*self.kinds, *self.excepts) if isinstance(kind, CronTimes | RuleTimes)]
        return any(kind.zone is not UTC for kind in by_face) or (
            self.filter is not None and self.zone is not UTC
        )

    def refusal(self, moment: datetime) -> tuple[str, str] | None:
        """Where a moment is one of the kinds' but not a slot: the reason, as a word and as a sentence."""
        if not any(kinds.has(kind, moment) for kind in self.kinds):
            return None
        if any(kinds.has(kind, moment) for kind in self.excepts):
            return "except", "the schedule excepts it"
        why = None if self.filter is None else self.filter.refusal(moment.astimezone(self.zone))
        return None if why is None else ("calendar", why)


def parse(
    raw: str | Mapping[str, object],
    *,
    timezone: str | None,
    window: str | None,
    now: datetime,
    seed: str = "",
    calendars: Mapping[str, Calendar] | None = None,
) -> Schedule:
    """Read what a user wrote. Raises errors.Invalid; so does a schedule with no slot after `now`.

    `timezone` and `window` fill in what `raw` leaves out; `seed` is what an `H` is a hash of; `calendars` are those
    that may be named. `in`, and `every` without an anchor, are resolved against `now`: to keep their slots, store the
    canonical text and do not parse the same words again later.
    """
    schedule, path = (shared(raw, timezone, window) if isinstance(raw, str) else None) or _drawn(
        reading.read(raw, timezone=timezone, window=window, now=now, seed=seed, calendars=calendars or {})
    )
    first = first_after(schedule, now)
    if first is None:
        limit = schedule.end or HORIZON
        since = max(now, schedule.start or now)
        span = f"no slot after {instants.write(since)} and up to {instants.write(limit)}"
        if replace(schedule, filter=None).next_after(now) is not None:
            raise errors.Invalid.field(path, f"it never fires: its calendars leave it {span}")
        raise errors.Invalid.field(path, f"it never fires: it has {span}")
    if schedule.filter is not None and schedule.filter.shift is not None:
        _check_density(schedule, first)
    return schedule


@lru_cache(maxsize=16_384)
def shared(text: str, timezone: str | None, window: str | None) -> tuple[Schedule, str] | None:
    """Read an expression that means the same whoever has it and whenever, once for all who have it; None for others.

    With it comes the field that says when it fires.
    """
    if "cron" not in shorthand(text, "") or cron.has_hash(text):
        return None
    return _drawn(reading.read(text, timezone=timezone, window=window, now=EARLIEST, seed="", calendars={}))


def _drawn(draft: reading.Draft) -> tuple[Schedule, str]:
    """The schedule of a draft, and the field that says when it fires."""
    schedule = Schedule(
        kinds=draft.kinds,
        timezone=draft.timezone,
        window=draft.window,
        start=draft.start,
        end=draft.end,
        excepts=draft.excepts,
        filter=draft.filter,
        max_runs=draft.max_runs,
    )
    return schedule, draft.path


def _check_density(schedule: Schedule, first: datetime) -> None:
    plain = Schedule(schedule.kinds, schedule.timezone)
    if len(slots(plain, first - _DAY, first, DENSEST_SHIFTED + 1)) > DENSEST_SHIFTED:
        raise errors.Invalid.field(
            "schedule.shift",
            f"it has more than {DENSEST_SHIFTED} slots a day, too many to be moved to another day",
            accepted="a schedule with fewer slots; or no shift, so that slots on closed days are left out",
        )


@lru_cache(maxsize=16_384)
def load(text: str) -> Schedule:
    """Read a canonical text back. Raises errors.Invalid when it is none, or names a zone that is gone."""
    try:
        return Schedule(**stored.read(json.loads(text)))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise errors.Invalid.field(
            "schedule", f"{text[:200]!r} is not a stored schedule: {error!r}"
        ) from error


@lru_cache(maxsize=65_536)
def next_slot(text: str, t: datetime) -> datetime | None:
    """Return `load(text).next_after(t)`; a herd that shares the text and the time computes it once."""
    return load(text).next_after(t)


def first_after(schedule: Schedule, t: datetime) -> datetime | None:
    """Return `schedule.next_after(t)`; asked again from the same gap between two slots, by any time, it is known."""
    text = schedule.canonical()
    since, slot = _gaps.get(text, _NO_GAP)
    if since <= t < slot:
        return slot
    found = schedule.next_after(t)
    if found is not None:
        if len(_gaps) >= _MOST_GAPS:
            _gaps.clear()
        _gaps[text] = (t, found)
    return found


def slots(schedule: Schedule, after: datetime, until: datetime | None, limit: int) -> list[datetime]:
    """Return the slots in (after, until], oldest first, at most `limit` of them."""
    if after >= HORIZON:
        return []
    found = islice(walk(schedule, after), limit)
    return list(found if until is None else takewhile(lambda slot: slot <= until, found))


def previous(schedule: Schedule, t: datetime) -> datetime | None:
    """Return the last slot strictly before `t`; None when there is none since 1970."""
    span = timedelta(minutes=1)
    t = until = min(t, HORIZON)
    while True:
        begin = max(t - span, EARLIEST) - _MICROSECOND
        slot = next(walk(schedule, begin, until), None)
        if slot is not None:
            break
        if begin < EARLIEST:
            return None
        until = begin + _MICROSECOND
        span *= 4
    # It may lie decades before the last one, where the schedule has ended: a walk from there would take minutes, and more.
    while until - slot > _WALKED:
        middle = slot + (until - slot) / 2
        closer = next(walk(schedule, middle, until), None)
        if closer is None:
            until = middle + _MICROSECOND
        else:
            slot = closer
    for later in walk(schedule, slot, until):
        slot = later
    return slot


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
    # Regardless of `end`: the window of the last slot before it is as long as that of any other.
    endless = schedule if schedule.end is None else _endless(text)
    following = endless.next_after(slot)
    return windows.span(schedule.window, None if following is None else following - slot)


@lru_cache(maxsize=4096)
def _endless(text: str) -> Schedule:
    return Schedule(**stored.read(json.loads(text)) | {"end": None})
