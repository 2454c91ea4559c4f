"""What a user can do with calendars, and how jobs come to know them."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

import orjson
from pydantic import Field

from cronwell import errors, telemetry
from cronwell.control.paging import read_cursor, write_cursor
from cronwell.control.views import Moment, Page, View
from cronwell.model import calendars, zones
from cronwell.model.calendars import Calendar
from cronwell.model.reading import calendar_names
from cronwell.model.schedule import Schedule
from cronwell.runtime.clock import Clock
from cronwell.store.port import CalendarUse, KeptCalendar, Store

COUNTED = 10_000
"""Jobs that follow a calendar are counted up to this many."""
NAMED = 5
"""So many of the jobs that keep a calendar from being changed are named."""
PERIODS = 10


class Period(View):
    """A stretch of time that a calendar contains."""

    begins: str
    ends: str | None
    """Null where it does not end before the year 2101."""
    why: str


class CalendarView(View):
    """A named set of times that schedules stay away from, or keep to."""

    name: str
    revision: int
    content: dict[str, Any]
    created_at: Moment
    updated_at: Moment


class CalendarDetail(CalendarView):
    jobs: int
    """How many jobs follow it, counted up to 10,000."""
    timezone: str
    coming: list[Period] = Field(default_factory=list)
    """What it contains next, by that zone's clock."""


@dataclass(frozen=True, slots=True)
class Known:
    """Calendars that schedules may name, with the revisions that they are of."""

    calendars: Mapping[str, Calendar]
    revisions: Mapping[str, int]

    def uses(self, job_id: UUID, schedule: Schedule) -> list[CalendarUse]:
        """What to note of a job that has this schedule."""
        if schedule.filter is None:
            return []
        return [CalendarUse(name, job_id, self.revisions.get(name, 0)) for name in schedule.filter.names]


NONE_KNOWN = Known({}, {})


class Calendars:
    """The verbs. One instance serves a process."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def put(
        self, tenant_id: int, name: str, raw: Mapping[str, Any], *, revision: int | None = None
    ) -> tuple[CalendarView, bool]:
        """Keep a calendar under a name; True where it is new. The jobs that follow it are planned anew soon after."""
        # In a thread: the first one with holidays loads their library, which takes a few tenths of a second.
        calendar = await asyncio.to_thread(calendars.parse, raw)
        if not calendar.has_only_days:
            await self._refuse_shifts(tenant_id, name)
        content = orjson.dumps(raw, option=orjson.OPT_SORT_KEYS).decode()
        if revision is not None and not await self._store.get_calendars(tenant_id, [name]):
            raise errors.RevisionMismatch(
                f"If-Match says revision {revision}, but there is no calendar {name!r}"
            )
        kept = await self._store.put_calendar(tenant_id, name, content, self._clock.now(), revision=revision)
        try:
            found = await self._find(tenant_id, name)
        except errors.NotFound:
            raise errors.Conflict(
                f"the calendar {name!r} was deleted in this moment; send it again"
            ) from None
        if kept is None and revision is not None and found.revision != revision:
            raise errors.RevisionMismatch(
                f"If-Match says revision {revision}, but the calendar is at {found.revision}; read it again first"
            )
        if kept is not None:
            telemetry.calendar_changed(name, revision=kept)
        return _view(found), kept == 1

    async def get(self, tenant_id: int, name: str, *, timezone: str) -> CalendarDetail:
        """One calendar, how many jobs follow it, and what it contains next."""
        zone = zones.find(timezone)
        kept = await self._find(tenant_id, name)
        now = self._clock.now()
        calendar = await asyncio.to_thread(calendars.load, kept.content)
        return CalendarDetail(
            **_view(kept).model_dump(),
            jobs=await self._store.calendar_users(tenant_id, name, COUNTED),
            timezone=timezone,
            coming=await asyncio.to_thread(_coming, calendar, now.astimezone(zone)),
        )

    async def page(self, tenant_id: int, *, cursor: str | None, limit: int) -> Page[CalendarView]:
        """Calendars by name."""
        place = read_cursor(cursor, 1)
        found = await self._store.list_calendars(tenant_id, None if place is None else place[0], limit + 1)
        shown = found[:limit]
        following = write_cursor(shown[-1].name) if len(found) > limit else None
        return Page(items=[_view(each) for each in shown], next_cursor=following)

    async def delete(self, tenant_id: int, name: str) -> None:
        """Forget a calendar that no job follows."""
        if await self._store.drop_calendar(tenant_id, name):
            telemetry.calendar_changed(name, revision=0)
            return
        await self._find(tenant_id, name)
        users = await self._store.calendar_users(tenant_id, name, COUNTED)
        raise errors.IllegalState(
            f"{users} job(s) follow the calendar {name!r}; give them another schedule first"
        )

    async def known(self, tenant_id: int, raws: Iterable[Mapping[str, Any]]) -> Known:
        """The calendars that these definitions name; those that are not there are left out."""
        names = {name for raw in raws for name in calendar_names(raw.get("schedule"))}
        return await self.named(tenant_id, sorted(names))

    async def named(self, tenant_id: int, names: Sequence[str]) -> Known:
        if not names:
            return NONE_KNOWN
        found = await self._store.get_calendars(tenant_id, names)
        loaded = await asyncio.to_thread(_load, found, self._clock.now().date())
        if len(found) < len(names):
            # For the advice: a name that is nearly right.
            listed = await self._store.list_calendars(tenant_id, None, 1000)
            missing = [name for name in names if name not in loaded]
            near = {
                match
                for name in missing
                for match in difflib.get_close_matches(name, [each.name for each in listed], 1, 0.5)
            }
            found += [each for each in listed if each.name in near and each.name not in loaded]
            loaded |= {each.name: calendars.load(each.content) for each in found if each.name in near}
        return Known(loaded, {each.name: each.revision for each in found})

    async def _refuse_shifts(self, tenant_id: int, name: str) -> None:
        """Refuse hours and windows to a calendar to whose open days jobs move slots: a day would be open in parts."""
        jobs = await self._store.shifting_users(tenant_id, name, NAMED + 1)
        if jobs:
            shown = ", ".join(jobs[:NAMED]) + (" and others" if len(jobs) > NAMED else "")
            raise errors.IllegalState(
                f"jobs shift by the calendar {name!r} ({shown}), so it takes whole days; put hours and windows into "
                "another calendar, or take `shift` from these jobs first"
            )

    async def _find(self, tenant_id: int, name: str) -> KeptCalendar:
        found = await self._store.get_calendars(tenant_id, [name])
        if not found:
            raise errors.NotFound(f"there is no calendar {name!r}")
        return found[0]


def _load(kept: Sequence[KeptCalendar], today: date) -> dict[str, Calendar]:
    """Read calendars. The first question about one loads the holidays of its countries, so it is asked here."""
    loaded = {each.name: calendars.load(each.content) for each in kept}
    for calendar in loaded.values():
        calendar.has_day(today)
    return loaded


def _view(kept: KeptCalendar) -> CalendarView:
    return CalendarView(
        name=kept.name,
        revision=kept.revision,
        content=orjson.loads(kept.content),
        created_at=kept.created_at,
        updated_at=kept.updated_at,
    )


def _coming(calendar: Calendar, wall: datetime) -> list[Period]:
    """The next stretches that a calendar contains."""
    found: list[Period] = []
    at: datetime | None = wall
    for _ in range(PERIODS * 20):
        if at is None or len(found) == PERIODS:
            break
        why = calendar.why(at)
        change = calendar.next_change(at)
        if why is not None:
            begins, ends = (
                None if each is None else each.isoformat(timespec="minutes") for each in (at, change)
            )
            if found and found[-1].ends == begins and found[-1].why == why:
                found[-1] = found[-1].model_copy(update={"ends": ends})
            else:
                found.append(Period(begins=begins or "", ends=ends, why=why))
        at = change
    return found
