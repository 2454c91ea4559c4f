"""Jobs whose next slots move under the rules of zones that are installed now: which they are, and what is done about it.

`rezoning` says what a change means for one job; here the cursors are gone through, in windows of their keys, as no index
keeps the few apart that go by another release.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from cronwell import errors
from cronwell.config import SchedulerSettings
from cronwell.control import rezoning
from cronwell.control.jobs import Jobs
from cronwell.control.paging import read_cursor, write_cursor
from cronwell.control.views import Moment, View
from cronwell.model import zones
from cronwell.runtime.clock import Clock
from cronwell.store.port import Cursor, Standing, Store

Action = Literal["apply", "hold"]
Key = tuple[int, UUID]

WINDOW = 5000
"""Cursors that are gone through at once."""
BATCH = 200
"""Cursors that are changed in one transaction."""
BUDGET = timedelta(seconds=5)
"""After so long the answer says where to go on."""
RESTS = 4
"""A walk over everything rests so many times as long as it looked, where it found nothing."""

_FIRST = UUID(int=0)
_LAST = UUID(int=(1 << 128) - 1)
_LAST_TENANT = (1 << 31) - 1


class Shift(View):
    """A job whose next slot moves."""

    job_id: UUID
    job: str
    timezone: str
    tzdata: str | None
    """The release of the rules by which its next slot was found."""
    next_slot: Moment
    """As it is now: staged, or the first that is to be."""
    local: str
    """The same, on the clock of the zone by the rules installed."""
    moves_to: Moment | None
    """Where the rules installed have it; null where they have no further slot."""
    moves_to_local: str | None
    staged: int
    """How many slots are staged ahead already and would be taken back."""


class Impact(View):
    """What the rules installed would move."""

    tzdata: str
    """The release that is installed."""
    setting: str
    """What schedulers do by themselves: `apply`, `hold` or `ask`."""
    stale: int
    """Jobs among those looked at whose next slot was found by another release."""
    moved: int
    """How many of them have another next slot by the rules installed."""
    items: list[Shift]
    next_cursor: str | None = None
    """Leads to the next jobs; null where these were the last."""


class Settled(View):
    """What was decided about."""

    tzdata: str
    changed: int
    """Jobs whose slots were moved, or are held."""
    unchanged: int
    """Jobs whose slots are the same by the rules installed."""
    next_cursor: str | None = None
    """There is more: send it as `cursor`."""


@dataclass(slots=True)
class _Counts:
    changed: int = 0
    unchanged: int = 0


class Tzdata:
    """The verbs. One instance serves a process."""

    def __init__(self, store: Store, clock: Clock, settings: SchedulerSettings, jobs: Jobs) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._jobs = jobs

    async def impact(self, tenant_id: int, *, cursor: str | None, limit: int) -> Impact:
        """List jobs whose next slots move, by id. Nothing is changed."""
        items: list[Shift] = []
        stale = 0
        place: UUID | None = None
        deadline = time.monotonic() + BUDGET.total_seconds()
        async for window, end in self._windows(*_span(tenant_id, cursor)):
            now = self._clock.now()
            zoned = [_key(each) for each in window if _is_zoned(each)]
            standings = await self._store.standings(zoned, now, rezoning.BACK) if zoned else []
            stale += len(window)
            for standing in standings:
                news = rezoning.found_anew(standing, now)
                if news is not None:
                    items.append(_shift(standing, news))
            if len(items) > limit:
                items = items[:limit]
                place = items[-1].job_id
                break
            if time.monotonic() > deadline and end != (tenant_id, _LAST):
                place = end[1]
                break
        return Impact(
            tzdata=zones.version(),
            setting=self._settings.tzdata,
            stale=stale,
            moved=len(items),
            items=items,
            next_cursor=None if place is None else write_cursor(str(place)),
        )

    async def settle(
        self, tenant_id: int, action: Action, *, jobs: Sequence[str] | None = None, cursor: str | None = None
    ) -> Settled:
        """Move the next slots of these jobs, or of all, to where the rules installed have them; or hold them."""
        counts = _Counts()
        if jobs is not None:
            found = {(await self._jobs.find(tenant_id, each)).id for each in jobs}
            await self._settle([(tenant_id, job_id) for job_id in sorted(found)], action, counts)
            return Settled(tzdata=zones.version(), changed=counts.changed, unchanged=counts.unchanged)
        place: UUID | None = None
        deadline = time.monotonic() + BUDGET.total_seconds()
        async for window, end in self._windows(*_span(tenant_id, cursor)):
            await self._settle_window(window, action, counts)
            if time.monotonic() > deadline and end != (tenant_id, _LAST):
                place = end[1]
                break
        return Settled(
            tzdata=zones.version(),
            changed=counts.changed,
            unchanged=counts.unchanged,
            next_cursor=None if place is None else write_cursor(str(place)),
        )

    async def settle_all(self, rest: Callable[[float], Awaitable[object]] = asyncio.sleep) -> int:
        """Do what the setting says about all jobs of all tenants; how many next slots move, or would.

        What does not move is marked as looked at in any case. What newer rules have found is left alone. Among millions of
        jobs with nothing to do the walk rests in between: whoever reads or stages meanwhile would wait for its pages.
        """
        action: Action | None = None
        if self._settings.tzdata != "ask":
            action = "hold" if self._settings.tzdata == "hold" else "apply"
        counts = _Counts()
        last = (_LAST_TENANT, _LAST)
        began = time.perf_counter()
        async for window, end in self._windows((0, _FIRST), last):
            await self._settle_window([c for c in window if not rezoning.is_newer(c)], action, counts)
            if not window and end != last:
                await rest(RESTS * (time.perf_counter() - began))
            began = time.perf_counter()
        return counts.changed

    async def _windows(self, after: Key, upto: Key) -> AsyncIterator[tuple[list[Cursor], Key]]:
        """The cursors that go by another release, a window at a time, each with the last key that was looked at."""
        while after < upto:
            end = await self._store.window_end(after, upto, WINDOW) or upto
            yield await self._store.stale_cursors(after, end, rezoning.settled()), end
            after = end

    async def _settle_window(self, window: Sequence[Cursor], action: Action | None, counts: _Counts) -> None:
        plain = [each for each in window if _is_zoned(each) is False]
        if plain:
            async with self._store.transaction() as transaction:
                counts.unchanged += await transaction.mark_tzdata(plain, zones.version())
        await self._settle([_key(each) for each in window if _is_zoned(each)], action, counts)

    async def _settle(self, keys: Sequence[Key], action: Action | None, counts: _Counts) -> None:
        for start in range(0, len(keys), BATCH):
            async with self._store.transaction() as transaction:
                batch = keys[start : start + BATCH]
                await transaction.lock_cursors(batch)
                now = self._clock.now()
                standings = await transaction.standings(batch, now, rezoning.BACK)
                same: list[Cursor] = []
                moved: list[Standing] = []
                for each in standings:
                    if rezoning.found_anew(each, now) is None:
                        same.append(each.cursor)
                    else:
                        moved.append(each)
                if same:
                    await transaction.mark_tzdata(same, zones.version())
                if action == "hold":
                    await transaction.mark_tzdata([each.cursor for each in moved], rezoning.held())
                elif action == "apply" and moved:
                    moves = [
                        await rezoning.apply(transaction, each, now=now, settings=self._settings)
                        for each in moved
                    ]
                    await transaction.stage(moves, now)
            counts.unchanged += len(same)
            counts.changed += len(moved)


def _shift(standing: Standing, news: Sequence[datetime]) -> Shift:
    cursor = standing.cursor
    schedule = rezoning.schedule_of(cursor)
    olds = [*standing.ahead, cursor.next_slot]
    # The first that differs: those before it stay.
    place = next((n for n, (old, new) in enumerate(zip(olds, news, strict=False)) if old != new), len(news))
    there = news[place] if place < len(news) else None
    return Shift(
        job_id=cursor.job_id,
        job=standing.name,
        timezone=schedule.timezone,
        tzdata=(cursor.tzdata or "").partition(" ")[0] or None,
        next_slot=olds[place],
        local=olds[place].astimezone(schedule.zone).isoformat(),
        moves_to=there,
        moves_to_local=None if there is None else there.astimezone(schedule.zone).isoformat(),
        staged=len(standing.ahead),
    )


def _is_zoned(cursor: Cursor) -> bool | None:
    """Whether rules of a zone can move a job's slots; None where its plan cannot be read, which staging sets aside."""
    try:
        return rezoning.schedule_of(cursor).is_zoned
    except (errors.Invalid, ValueError, KeyError, TypeError):
        return None


def _key(cursor: Cursor) -> Key:
    return cursor.tenant_id, cursor.job_id


def _span(tenant_id: int, cursor: str | None) -> tuple[Key, Key]:
    """From behind a place to the end of a tenant's keys."""
    place = read_cursor(cursor, 1)
    try:
        after = _FIRST if place is None else UUID(place[0])
    except ValueError:
        raise errors.Invalid.field("cursor", "is not a cursor of this list") from None
    return (tenant_id, after), (tenant_id, _LAST)
