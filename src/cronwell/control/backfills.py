"""What a user can do with backfills, in verbs: see what one would do, start it, watch it, hold it, end it."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from pydantic import BaseModel

from cronwell import durations, errors, telemetry
from cronwell.config import Settings
from cronwell.control.backfill_views import BackfillPlan, BackfillView, Order, pace, view_of
from cronwell.control.definitions import check_payload
from cronwell.control.drafts import read_id
from cronwell.control.executions import UNSET
from cronwell.control.idempotency import Answered, RequestKey, once
from cronwell.control.jobs import Jobs
from cronwell.control.naming import check_given
from cronwell.control.paging import read_cursor, write_cursor
from cronwell.control.views import Page
from cronwell.model import backfill as model
from cronwell.model import instants
from cronwell.model.backfill import MOST_SLOTS, MOST_SPANS, Span
from cronwell.model.identity import RANDOM_BITS, new_job_id
from cronwell.model.job import JobSpec, check_json
from cronwell.model.planning import load_plan
from cronwell.runtime.clock import Clock
from cronwell.store.port import Backfill, BackfillState, ByDefinition, Job, Revision, Store, Transaction

DEFAULT_RATE = 10.0
MOST_AT_ONCE = 1000
COUNT_PART = 1000
LONGEST_COUNT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A backfill as it is asked for."""

    begin: datetime
    end: datetime | None = None
    order: Order = "oldest"
    rate: str | float = DEFAULT_RATE
    concurrency: int = 1
    definition: ByDefinition = "current"
    payload: Any = UNSET
    note: str | None = None


class Backfills:
    """The verbs. One instance serves a process."""

    def __init__(self, store: Store, clock: Clock, settings: Settings, jobs: Jobs) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._jobs = jobs

    async def preview(self, tenant_id: int, reference: str, asked: Asked) -> BackfillPlan:
        """Say what a backfill would do."""
        job = await self._jobs.find(tenant_id, reference)
        new, first, last = await self._prepare(job, asked)
        already = await self._store.count_backfilled(
            tenant_id, job.id, new.from_slot, new.to_slot, MOST_SLOTS
        )
        most = pace(new)
        return BackfillPlan(
            from_=new.from_slot,
            to=new.to_slot,
            job_id=job.id,
            job=job.name,
            count=new.slots,
            first=first,
            last=last,
            already=already,
            load_per_minute=round(min(new.slots, most * 60), 3),
            takes=durations.write(timedelta(seconds=round(new.slots / most))),
            warnings=await self._warn(job, new, asked),
        )

    async def start(
        self, tenant_id: int, reference: str, asked: Asked, key: RequestKey | None = None
    ) -> Answered:
        """Begin a backfill; schedulers stage its executions from now on."""
        job = await self._jobs.find(tenant_id, reference)
        new, _, _ = await self._prepare(job, asked)
        if new.slots == 0:
            raise errors.Invalid.field(
                "from",
                f"there is no slot from {instants.write(new.from_slot)} up to {instants.write(new.to_slot)}",
                accepted="a range with slots of the job's schedule"
                + (
                    "; `definition` current has those before it was made too"
                    if asked.definition == "then"
                    else ""
                ),
            )
        warnings = await self._warn(job, new, asked)

        async def act(transaction: Transaction) -> tuple[int, BaseModel]:
            locked = await transaction.lock_job(tenant_id, job.id)
            if locked is None or locked.state == "deleted":
                raise errors.NotFound(f"job {job.name!r} is deleted")
            await transaction.insert_backfill(new)
            return 201, view_of(new, self._clock.now(), warnings)

        answered = await once(self._store, self._clock, tenant_id, key, act)
        if not answered.is_replay:
            telemetry.job_changed(
                "is backfilled", job=str(job.id), name=job.name, slots=new.slots, note=new.note
            )
        return answered

    async def get(self, tenant_id: int, backfill_id: str) -> BackfillView:
        """One backfill."""
        found = read_id(backfill_id)
        backfill = None if found is None else await self._store.get_backfill(tenant_id, found)
        if backfill is None:
            raise errors.NotFound(f"there is no backfill {backfill_id!r}")
        return view_of(backfill, self._clock.now())

    async def page(
        self,
        tenant_id: int,
        *,
        reference: str | None,
        state: str | None = None,
        cursor: str | None,
        limit: int,
    ) -> Page[BackfillView]:
        """Backfills, newest first: of a job, or of all."""
        job_id = None if reference is None else (await self._jobs.find(tenant_id, reference)).id
        place = read_cursor(cursor, 1)
        after = None if place is None else read_id(place[0])
        if place is not None and after is None:
            raise errors.Invalid.field("cursor", "is not a cursor of this list")
        found = await self._store.list_backfills(tenant_id, job_id, state, after, limit + 1)
        page, more = found[:limit], len(found) > limit
        following = write_cursor(str(page[-1].id)) if more else None
        now = self._clock.now()
        return Page(items=[view_of(each, now) for each in page], next_cursor=following)

    async def pause(self, tenant_id: int, backfill_id: str) -> BackfillView:
        """Stage no further slots until it is resumed; what is staged goes on."""
        return await self._set_state(tenant_id, backfill_id, "paused", from_states=("running",))

    async def resume(self, tenant_id: int, backfill_id: str) -> BackfillView:
        """Go on with the slots that are left."""
        return await self._set_state(tenant_id, backfill_id, "running", from_states=("paused",))

    async def cancel(self, tenant_id: int, backfill_id: str) -> BackfillView:
        """End it: what has not begun is taken back, what runs may finish."""
        return await self._set_state(tenant_id, backfill_id, "cancelled", from_states=("running", "paused"))

    async def _set_state(
        self, tenant_id: int, backfill_id: str, state: BackfillState, *, from_states: Sequence[str]
    ) -> BackfillView:
        await self.get(tenant_id, backfill_id)
        async with self._store.transaction() as transaction:
            locked = await transaction.lock_backfill(tenant_id, UUID(backfill_id))
            if locked is None:
                raise errors.NotFound(f"there is no backfill {backfill_id!r}")
            now = self._clock.now()
            if locked.state != state:
                if locked.state not in from_states:
                    raise errors.IllegalState(
                        f"backfill {backfill_id} is {locked.state}, not {' or '.join(from_states)}"
                    )
                locked = dataclasses.replace(locked, state=state, updated_at=now)
                if state == "cancelled":
                    locked = await cancelled(transaction, locked, now)
                await transaction.put_backfill(locked)
        telemetry.job_changed(f"backfill is {state}", job=str(locked.job_id), name=locked.job_name)
        return await self.get(tenant_id, backfill_id)

    async def _prepare(self, job: Job, asked: Asked) -> tuple[Backfill, datetime | None, datetime | None]:
        """Check what is asked for and count its slots: the backfill that it makes, its first and its last slot."""
        now = self._clock.now()
        if job.state == "deleted":
            raise errors.NotFound(f"job {job.name!r} is deleted")
        rate = _checked(asked, self._settings)
        check_given(asked.payload, job.spec)
        begin, end = asked.begin, asked.end or now
        _check_range(begin, end, now, self._settings.retention.executions)
        spans = await self._spans(job, begin, end, asked.definition)
        count, first, last = await _count(spans)
        new = Backfill(
            tenant_id=job.tenant_id,
            id=new_job_id(now, secrets.randbits(RANDOM_BITS)),
            job_id=job.id,
            state="running",
            from_slot=begin,
            to_slot=end,
            definition=asked.definition,
            is_newest_first=asked.order == "newest",
            rate=rate,
            concurrency=asked.concurrency,
            spans=model.write(spans),
            slots=count,
            reached=None,
            next_ready_at=now,
            staged=0,
            passed_over=0,
            succeeded=0,
            failed=0,
            unfinished=(),
            payload=None if asked.payload is UNSET else orjson.dumps(asked.payload).decode(),
            note=asked.note,
            created_at=now,
            updated_at=now,
            finished_at=None,
            job_name=job.name,
            job_state=job.state,
            job_revision=job.revision,
            job_pool=job.pool,
            job_group=JobSpec.model_validate_json(job.spec).group_limit,
        )
        return new, first, last

    async def _spans(self, job: Job, begin: datetime, end: datetime, definition: ByDefinition) -> list[Span]:
        if definition == "current":
            plan = job.plan
            if plan is None and job.state == "finished":
                plan = await self._store.last_plan(job.tenant_id, job.id)
            if plan is None:
                raise errors.IllegalState(
                    f"job {job.name!r} has no schedule, so it has no slots to backfill; trigger it"
                )
            schedule = load_plan(plan).schedule
            if schedule.delay is not None:
                raise errors.IllegalState(
                    f"the slots of job {job.name!r} come so long after each execution has finished, so none of "
                    "the past is known; trigger it"
                )
            return [Span(schedule, begin, end)]
        revisions = await self._store.revisions_over(job.tenant_id, job.id, begin, end, MOST_SPANS + 1)
        if len(revisions) > MOST_SPANS:
            raise errors.Invalid.field(
                "from",
                f"the job had more than {MOST_SPANS} definitions in that time",
                accepted='a shorter range, or "definition": "current"',
            )
        return [span for each in revisions if (span := _span_of(each, begin, end)) is not None]

    async def _warn(self, job: Job, new: Backfill, asked: Asked) -> list[str]:
        found: list[str] = []
        if job.state == "paused":
            found.append("the job is paused; a backfill of it runs all the same")
        if asked.definition == "then" and new.from_slot < job.created_at:
            found.append(f"the job was made at {instants.write(job.created_at)}; it had no slots before that")
        workers = await self._store.list_workers(self._clock.now())
        if not any(worker.state == "active" and job.pool in worker.pools for worker in workers):
            found.append(f"no worker serves the pool {job.pool!r} at present; executions wait until one does")
        others = [
            str(each.id)
            for each in await self._store.list_backfills(job.tenant_id, job.id, None, None, 100)
            if each.state in ("running", "paused")
            and each.from_slot < new.to_slot
            and each.to_slot > new.from_slot
        ]
        if others:
            found.append(f"backfill {others[0]} covers a part of the range too; each slot is run once")
        return found


async def cancelled(transaction: Transaction, locked: Backfill, now: datetime) -> Backfill:
    """Take back what a backfill has staged and nobody has begun; it is over once the rest has ended."""
    taken_back = await transaction.withdraw(locked.tenant_id, locked.job_id, locked.unfinished, now)
    left = tuple(slot for slot in locked.unfinished if slot not in taken_back)
    return dataclasses.replace(
        locked,
        state="cancelled",
        staged=locked.staged - len(taken_back),
        unfinished=left,
        updated_at=now,
        finished_at=None if left else now,
    )


def _checked(asked: Asked, settings: Settings) -> float:
    """Refuse what cannot be kept; the rate, as executions a second."""
    if asked.payload is not UNSET:
        try:
            check_json(asked.payload)
        except ValueError as error:
            raise errors.Invalid.field("payload", str(error)) from None
        check_payload(asked.payload, settings)
    try:
        return model.read_rate(asked.rate)
    except ValueError as error:
        raise errors.Invalid.field("rate", str(error), accepted=model.RATE_ACCEPTED) from None


def _check_range(begin: datetime, end: datetime, now: datetime, kept: timedelta) -> None:
    oldest = model.oldest_kept(now, kept)
    if end > now:
        raise errors.Invalid.field(
            "to", f"lies in the future (now is {instants.write(now)})", accepted="a time up to now"
        )
    if begin >= end:
        raise errors.Invalid.field(
            "from", f"is not before `to`, {instants.write(end)}", accepted="a time before `to`"
        )
    if begin < oldest:
        raise errors.Invalid.field(
            "from",
            f"history is kept for {durations.write(kept)}, so what was run for an older slot could not be told",
            accepted=f"a time from {instants.write(oldest)} on, or a longer CRONWELL_RETENTION_EXECUTIONS",
        )


def _span_of(revision: Revision, begin: datetime, end: datetime) -> Span | None:
    """The part of a range in which a definition held; None where it had no slots that are known."""
    if revision.plan is None:
        return None
    schedule = load_plan(revision.plan).schedule
    begin, end = model.held(revision.valid_from, revision.valid_to, begin, end)
    return (
        None if schedule.delay is not None or begin >= end else Span(schedule, begin, end, revision.revision)
    )


async def _count(spans: Sequence[Span]) -> tuple[int, datetime | None, datetime | None]:
    """How many slots there are, the first and the last. Raises Invalid where there are too many, in bounded time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LONGEST_COUNT_SECONDS
    parts = model.parts(spans, COUNT_PART)
    count = 0
    first = last = None
    # A part at a time on a thread: no slot is so dear that the event loop would miss us, but all of them are.
    while (part := await asyncio.to_thread(next, parts, None)) is not None:
        count += len(part)
        first, last = first or part[0].slot, part[-1].slot
        if count > MOST_SLOTS or loop.time() > deadline:
            raise errors.Invalid.field(
                "from",
                f"there are more than {min(count, MOST_SLOTS)} slots in that range",
                accepted=f"a range of up to {MOST_SLOTS} slots; ask for a longer one in parts",
            )
    return count, first, last
