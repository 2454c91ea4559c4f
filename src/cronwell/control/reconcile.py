"""Expected = accounted: each slot that a definition gave a job in a past range of time has its verdict.

What is expected is worked out anew: each definition of a job, in the time in which it held, has its slots, by the rules of
the zones that are installed now. What is accounted for is in the store: a scheduled execution in any state, or a range of
slots that were not run. A slot that is expected and not accounted for is *missing*, which must not be; an execution that no
definition explains is *extra*, which may be: it was begun before an edit, say, or held where older rules of its zone had
placed it. `every … after finish` has no slots that could be told beforehand and is left out.

A job that runs so many times at most is expected to have run up to its last execution, and not beyond.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day
from typing import Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from cronwell import errors
from cronwell.control.paging import read_cursor, write_cursor
from cronwell.control.views import Moment, View
from cronwell.model import instants
from cronwell.model.planning import load_plan
from cronwell.model.schedule import Schedule, slots
from cronwell.runtime.clock import Clock
from cronwell.store.port import Accountable, Revision, Store

LONGEST = timedelta(days=1)
"""Of one question; a longer range is asked for in parts."""
USUAL = timedelta(hours=1)
JOBS_AT_ONCE = 500
SLOTS_AT_ONCE = 50_000
"""Jobs are compared together until they have so many slots, so that memory stays in bounds."""
MOST_TOLD = 1000
BUDGET = timedelta(seconds=5)
"""After so long the answer says where to go on."""

_TICK = timedelta(microseconds=1)


class Difference(View):
    """A slot where what was expected and what was accounted for differ."""

    kind: Literal["missing", "extra"]
    job_id: UUID
    job: str
    slot: Moment


class Reconciliation(View):
    """What was expected of some jobs in a range of time, and what was accounted for."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, serialize_by_alias=True)

    from_: Moment = Field(serialization_alias="from")
    to: Moment
    shard: int | None
    """None for all of them."""
    jobs: int
    """How many were looked at for this answer."""
    expected: int
    """Slots that their definitions had."""
    accounted: int
    """How many of those have a verdict."""
    missing: int
    """How many have none."""
    extra: int
    """Scheduled executions that no definition explains."""
    unreadable: int
    """Jobs whose slots cannot be computed."""
    differences: list[Difference]
    """At most 1,000 of them; the numbers above count all."""
    next_cursor: str | None = None
    """Leads to the next jobs; null where these were the last."""


class Reconcile:
    """The verb. One instance serves a process."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def reconcile(
        self,
        tenant_id: int,
        *,
        since: datetime | None = None,
        before: datetime | None = None,
        shard: int | None = None,
        cursor: str | None = None,
    ) -> Reconciliation:
        """Compare what was expected in [since, before) with what was accounted for; by default, of the last hour."""
        since, before = await self._range(since, before)
        after = _read_place(cursor)
        tally = _Tally(since, before)
        deadline = time.monotonic() + BUDGET.total_seconds()
        while True:
            jobs = await self._store.accountable_jobs(
                tenant_id, since, before, shard=shard, after=after, limit=JOBS_AT_ONCE
            )
            await self._compare(tenant_id, jobs, tally)
            if len(jobs) < JOBS_AT_ONCE:
                return tally.told(shard, None)
            after = jobs[-1].job_id
            if time.monotonic() > deadline:
                return tally.told(shard, write_cursor(str(after)))

    async def _range(self, since: datetime | None, before: datetime | None) -> tuple[datetime, datetime]:
        now = self._clock.now()
        before = before or (now if since is None else min(now, since + USUAL))
        is_usual = since is None
        since = since or before - USUAL
        if before > now:
            raise errors.Invalid.field(
                "to", "lies in the future", accepted=f"a time up to now, {instants.write(now)}"
            )
        if since >= before:
            raise errors.Invalid.field("from", "is not before `to`", accepted="a time before `to`")
        if before - since > LONGEST:
            raise errors.Invalid.field(
                "from", "is more than a day before `to`", accepted="a range of up to 24 hours; ask in parts"
            )
        days = await self._store.days()
        oldest = datetime.combine(min(days), time_of_day(), UTC) if days else None
        if is_usual and oldest is not None and oldest < before:
            # A history that begins within the last hour is told whole, as that of a new installation after midnight.
            since = max(since, oldest)
        if oldest is not None and since < oldest:
            raise errors.Invalid.field(
                "from",
                "lies before the history that is kept",
                accepted=f"a time from {instants.write(oldest)} on",
            )
        return since, before

    async def _compare(self, tenant_id: int, jobs: Sequence[Accountable], tally: _Tally) -> None:
        capped = [job.job_id for job in jobs if _is_capped(job)]
        last = await self._store.last_slots(tenant_id, capped) if capped else {}
        place = 0
        while place < len(jobs):
            accounts = await asyncio.to_thread(tally.work_out, jobs, place, last)
            ids = [account.job.job_id for account in accounts]
            rows = await self._store.slots_between(tenant_id, ids, tally.since, tally.before)
            skips = await self._store.skips_between(tenant_id, ids, tally.since, tally.before)
            for account in accounts:
                job_id = account.job.job_id
                tally.add(account, rows.get(job_id, []), skips.get(job_id, []))
            place += len(accounts)


@dataclass(slots=True)
class _Account:
    """What is expected of one job."""

    job: Accountable
    expected: list[datetime] = field(default_factory=list)
    explained: set[datetime] = field(default_factory=set)
    """What may have an execution: also what a pause keeps from being expected."""
    unknown: list[tuple[datetime, datetime | None]] = field(default_factory=list)
    """Times of which nothing can be said: of definitions whose slots nobody knows beforehand."""
    is_unreadable: bool = False


class _Tally:
    """What has been compared so far; it belongs to one question."""

    def __init__(self, since: datetime, before: datetime) -> None:
        self.since = since
        self.before = before
        self._slots: dict[str, list[datetime]] = {}
        self._kept = 0
        self._jobs = self._expected = self._missing = self._extra = self._unreadable = 0
        self._differences: list[Difference] = []

    def work_out(self, jobs: Sequence[Accountable], place: int, last: dict[UUID, datetime]) -> list[_Account]:
        """What is expected of the jobs from a place on: of one at least, and of more while they have few slots."""
        accounts: list[_Account] = []
        count = 0
        for job in jobs[place:]:
            account = self._account(job, last.get(job.job_id))
            accounts.append(account)
            count += len(account.explained)
            if count >= SLOTS_AT_ONCE:
                break
        return accounts

    def add(
        self, account: _Account, rows: Sequence[datetime], skips: Sequence[tuple[datetime, datetime]]
    ) -> None:
        """Compare one job with what the store has of it."""
        had = set(rows)
        missing = [
            slot
            for slot in account.expected
            if slot not in had and not any(first <= slot <= final for first, final in skips)
        ]
        extra = [slot for slot in rows if slot not in account.explained and not _is_unknown(account, slot)]
        self._jobs += 1
        self._expected += len(account.expected)
        self._missing += len(missing)
        self._extra += len(extra)
        self._unreadable += account.is_unreadable
        self._differences += [_difference("missing", account.job, slot) for slot in self._room(missing)]
        self._differences += [_difference("extra", account.job, slot) for slot in self._room(extra)]

    def told(self, shard: int | None, next_cursor: str | None) -> Reconciliation:
        return Reconciliation(
            from_=self.since,
            to=self.before,
            shard=shard,
            jobs=self._jobs,
            expected=self._expected,
            accounted=self._expected - self._missing,
            missing=self._missing,
            extra=self._extra,
            unreadable=self._unreadable,
            differences=self._differences,
            next_cursor=next_cursor,
        )

    def _room(self, found: list[datetime]) -> list[datetime]:
        return found[: MOST_TOLD - len(self._differences)]

    def _account(self, job: Accountable, last: datetime | None) -> _Account:
        account = _Account(job)
        if not job.revisions or job.revisions[0].valid_from > job.created_at:
            # Replaced before definitions were kept with their times.
            account.unknown.append((job.created_at, job.revisions[0].valid_from if job.revisions else None))
        for revision in job.revisions:
            if revision.plan is None:
                continue
            schedule = _read_schedule(revision.plan)
            if schedule is None or schedule.delay is not None:
                account.is_unreadable |= schedule is None
                account.unknown.append((revision.valid_from, revision.valid_to))
                continue
            held = _within(self._of(schedule), revision)
            account.explained.update(held)
            if schedule.max_runs is not None and (revision.valid_to is not None or job.is_over):
                held = [] if last is None else held[: bisect_right(held, last)]
            if revision.valid_to is None and job.paused_at is not None:
                held = held[: bisect_right(held, job.paused_at)]
            account.expected += held
        return account

    def _of(self, schedule: Schedule) -> list[datetime]:
        """All slots of a schedule in the range; a herd that shares it has them worked out once."""
        text = schedule.canonical()
        found = self._slots.get(text)
        if found is None:
            if self._kept > SLOTS_AT_ONCE:
                self._slots.clear()
                self._kept = 0
            most = LONGEST // timedelta(seconds=1) + 1
            found = self._slots[text] = slots(schedule, self.since - _TICK, self.before - _TICK, most)
            self._kept += len(found) + 1
        return found


def _read_schedule(plan: str) -> Schedule | None:
    """None where the plan cannot be read, of which the scheduler tells the job's owner."""
    try:
        return load_plan(plan).schedule
    except (errors.Invalid, ValueError, KeyError, TypeError):
        return None


def _within(found: list[datetime], revision: Revision) -> list[datetime]:
    """The slots of a definition while it held: after it was made, and up to the moment that it was replaced."""
    end = len(found) if revision.valid_to is None else bisect_right(found, revision.valid_to)
    return found[bisect_right(found, revision.valid_from) : end]


def _is_unknown(account: _Account, slot: datetime) -> bool:
    return any(first <= slot and (end is None or slot <= end) for first, end in account.unknown)


def _is_capped(job: Accountable) -> bool:
    """Whether the time of a job's last run decides what is expected. No text inside a plan can look like this member."""
    return any(
        revision.plan is not None
        and '"max_runs":' in revision.plan
        and (revision.valid_to is not None or job.is_over)
        for revision in job.revisions
    )


def _difference(kind: Literal["missing", "extra"], job: Accountable, slot: datetime) -> Difference:
    return Difference(kind=kind, job_id=job.job_id, job=job.name, slot=slot)


def _read_place(cursor: str | None) -> UUID | None:
    place = read_cursor(cursor, 1)
    if place is None:
        return None
    try:
        return UUID(place[0])
    except ValueError:
        raise errors.Invalid.field("cursor", "is not a cursor of this list") from None
