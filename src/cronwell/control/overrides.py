"""What a user can do about one coming slot of a job: skip it, move it, give it another payload, or let it be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any, Literal

import orjson

from cronwell import durations, errors, telemetry
from cronwell.bus.port import Bus, work_in
from cronwell.config import Settings
from cronwell.control.definitions import check_payload
from cronwell.control.jobs import Jobs
from cronwell.control.naming import check_given
from cronwell.control.overriding import (
    AHEAD,
    LONGEST_MOVE,
    MOST_COUNTED,
    fitting,
    lay_over_slot,
    restage,
)
from cronwell.control.paging import read_cursor, write_cursor
from cronwell.control.views import Moment, Page, View
from cronwell.model import instants, zones
from cronwell.model.execution import ExecutionKey, Kind, State
from cronwell.model.job import check_json
from cronwell.model.planning import load_plan
from cronwell.model.schedule import Schedule, previous
from cronwell.runtime.clock import Clock
from cronwell.store.port import Job, Move, Override, Store, Transaction, WaitingOverride

Action = Literal["skip", "move", "payload"]

MOST_AHEAD = 1000
"""Overrides of one job's coming slots. Who wants more wants another schedule."""
BATCH = 1000

# A slot that is not written yet, that nobody has begun, or that an override has skipped may be decided about.
_OPEN = (None, State.PENDING, State.SKIPPED)
_HAS_IT = {
    State.RUNNING: "a worker has it already; cancel its execution instead",
    State.RETRYING: "it has begun already and waits for its next attempt; cancel its execution instead",
    State.CANCELLED: "its execution is cancelled",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to become of a slot."""

    action: Action
    to: datetime | None = None
    payload: str | None = None
    """As JSON text; None where none is given."""
    note: str | None = None
    author: str | None = None
    expires_at: datetime | None = None


class OverrideView(View):
    """What somebody decided about one slot of a job."""

    slot: Moment
    local: str
    """The slot in the schedule's zone."""
    action: Action
    to: Moment | None = None
    """Where the slot is moved to."""
    payload: Any = None
    note: str | None = None
    author: str | None = None
    expires_at: Moment | None = None
    created_at: Moment
    applied_at: Moment | None = None
    """When it was written over the slot, a day ahead at the earliest."""
    state: Literal["waiting", "applied", "expired", "not_a_slot", "missed"]
    """`not_a_slot`: the job's schedule has the slot no more, or ends before it; `expired` and `missed`: it was not
    applied in its time."""


class Overrides:
    """The verbs. One instance serves a process."""

    def __init__(self, store: Store, bus: Bus, clock: Clock, settings: Settings, jobs: Jobs) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._settings = settings
        self._jobs = jobs

    async def zone(self, tenant_id: int, reference: str) -> tzinfo:
        """The zone in which a wall-clock time of a job is meant: that of its schedule."""
        job = await self._jobs.find(tenant_id, reference)
        return zones.find("UTC" if job.plan is None else load_plan(job.plan).schedule.timezone)

    async def put(self, tenant_id: int, reference: str, slot: datetime, decision: Decision) -> OverrideView:
        """Decide about a coming slot, in place of what was decided before. A slot that a worker has is refused."""
        self._check(slot, decision)
        job = await self._jobs.find(tenant_id, reference)
        if decision.payload is not None:
            check_given(orjson.loads(decision.payload), job.spec)
        async with self._store.transaction() as transaction:
            locked = await _locked(transaction, job)
            now = self._clock.now()
            schedule = _coming(locked, slot, now)
            if (others := await transaction.overrides_after(tenant_id, job.id, now, now)) and (
                len(others) >= MOST_AHEAD and all(each.slot != slot for each in others)
            ):
                raise errors.IllegalState(
                    f"job {job.name!r} has {len(others)} overrides ahead, and no more are kept; "
                    "remove some, or change its schedule"
                )
            override = Override(
                tenant_id=tenant_id,
                job_id=job.id,
                slot=slot,
                action=decision.action,
                ready_at=decision.to,
                payload=decision.payload,
                note=decision.note,
                author=decision.author,
                expires_at=decision.expires_at,
                created_at=now,
            )
            await transaction.put_override(override)
            move = await self._write(transaction, locked, slot, override, now)
        telemetry.job_changed(
            "slot overridden",
            job=str(job.id),
            name=job.name,
            slot=instants.write(slot),
            action=decision.action,
            author=decision.author,
            note=decision.note,
        )
        await self._announce(move)
        kept = await self._store.get_override(tenant_id, job.id, slot)
        return override_view(kept or override, schedule, is_reached=True, now=now)

    async def page(
        self, tenant_id: int, reference: str, *, cursor: str | None, limit: int
    ) -> Page[OverrideView]:
        """The overrides of a job, the latest slot first; also those whose slot is over, until retention takes them."""
        place = read_cursor(cursor, 1)
        try:
            before = None if place is None else instants.parse(place[0])
        except ValueError:
            raise errors.Invalid.field("cursor", "is not a cursor of this list") from None
        job = await self._jobs.find(tenant_id, reference)
        now = self._clock.now()
        found = await self._store.list_overrides(tenant_id, job.id, before, limit + 1)
        page, more = found[:limit], len(found) > limit
        schedule = None if job.plan is None else load_plan(job.plan).schedule
        reached = await self._reached(job, schedule, now)
        return Page(
            items=[override_view(each, schedule, is_reached=each.slot in reached, now=now) for each in page],
            next_cursor=write_cursor(instants.write(page[-1].slot)) if more else None,
        )

    async def remove(self, tenant_id: int, reference: str, slot: datetime) -> None:
        """Let a slot be what it would have been. One that has begun or is over is refused."""
        job = await self._jobs.find(tenant_id, reference)
        async with self._store.transaction() as transaction:
            locked = await _locked(transaction, job)
            now = self._clock.now()
            if not await transaction.drop_override(tenant_id, job.id, slot):
                raise errors.NotFound(f"the slot {instants.write(slot)} of job {job.name!r} has no override")
            if slot <= now:
                raise errors.IllegalState(
                    f"the slot {instants.write(slot)} has passed: what was decided about it stays in the history; "
                    f"an execution that was moved can be cancelled: {_key(job, slot)}"
                )
            if locked.state == "finished":
                raise errors.IllegalState(
                    f"job {locked.name!r} is finished, so the slot cannot be put back; edit its schedule instead"
                )
            move = await self._write(transaction, locked, slot, None, now)
        telemetry.job_changed("override removed", job=str(job.id), name=job.name, slot=instants.write(slot))
        await self._announce(move)

    async def apply_waiting(self) -> int:
        """Write the overrides that have come near over their slots; how many jobs that were."""
        applied = 0
        last: WaitingOverride | None = None
        while True:
            now = self._clock.now()
            waiting = await self._store.overrides_waiting(now, now + AHEAD, LONGEST_MOVE, last, BATCH)
            jobs = {
                (each.tenant_id, each.job_id)
                for each in waiting
                if load_plan(each.plan).schedule.has(each.slot)
            }
            for tenant_id, job_id in sorted(jobs):
                async with self._store.transaction() as transaction:
                    locked = await transaction.lock_job(tenant_id, job_id)
                    if locked is not None:
                        applied += await self._apply(transaction, locked)
            if len(waiting) < BATCH:
                return applied
            last = waiting[-1]

    async def _apply(self, transaction: Transaction, job: Job) -> bool:
        now = self._clock.now()
        if job.state != "active" or job.plan is None:
            return False
        overrides = await transaction.overrides_after(job.tenant_id, job.id, now, now)
        near = [each for each in overrides if each.applied_at is None and each.due_at <= now + AHEAD]
        if job.runs_left is None:
            for each in near:
                await lay_over_slot(transaction, job, each.slot, each, now)
            return bool(near)
        runs_left = job.runs_left + await transaction.count_ahead(job.tenant_id, job.id, now, job.next_slot)
        fit = fitting(load_plan(job.plan).schedule, overrides, after=now, runs_left=runs_left)
        if not any(each in fit for each in near):
            return False
        await restage(transaction, job, now=now, settings=self._settings.scheduler)
        return True

    async def _write(
        self, transaction: Transaction, job: Job, slot: datetime, override: Override | None, now: datetime
    ) -> Move | None:
        """Write a slot anew after a decision; refuses one that a worker has or that has ended."""
        runs_left, move = job.runs_left, None
        if job.runs_left is not None and job.state == "active":
            state = await transaction.slot_state(job.tenant_id, job.id, slot)
            if state in _OPEN:
                runs_left, move = await restage(transaction, job, now=now, settings=self._settings.scheduler)
                state = await transaction.slot_state(job.tenant_id, job.id, slot)
            state = None if state in _OPEN else state
        else:
            state, move = await lay_over_slot(transaction, job, slot, override, now)
        if override is not None and runs_left is not None:
            await self._check_reached(transaction, job, slot, runs_left, now)
        if state is not None:
            why = _HAS_IT.get(state, f"it has {state} already")
            raise errors.IllegalState(
                f"the slot {instants.write(slot)} cannot be changed: {why} ({_key(job, slot)})"
            )
        return move

    async def _check_reached(
        self, transaction: Transaction, job: Job, slot: datetime, runs_left: int, now: datetime
    ) -> None:
        """Refuse a slot that a job will not come to, because it will have run as often as it may."""
        assert job.plan is not None, "a job without a schedule has no slots"
        overrides = await transaction.overrides_after(job.tenant_id, job.id, now, now)
        fit = fitting(load_plan(job.plan).schedule, overrides, after=now, runs_left=runs_left)
        if all(each.slot != slot for each in fit):
            raise errors.Invalid.field(
                "slot",
                f"the job will have run as often as it may (max_runs) before {instants.write(slot)}, "
                f"or the slot is more than {MOST_COUNTED} slots ahead",
                accepted="a slot that the job will reach",
            )

    async def _reached(self, job: Job, schedule: Schedule | None, now: datetime) -> set[datetime]:
        """The slots ahead, of those with overrides, that the job has and will reach."""
        if schedule is None:
            return set()
        ahead = await self._store.overrides_of(job.tenant_id, job.id, now, now)
        runs_left = job.runs_left
        if runs_left is not None and job.state == "active" and ahead:
            async with self._store.transaction() as transaction:
                runs_left += await transaction.count_ahead(job.tenant_id, job.id, now, job.next_slot)
        return {each.slot for each in fitting(schedule, ahead, after=now, runs_left=runs_left)}

    def _check(self, slot: datetime, decision: Decision) -> None:
        now = self._clock.now()
        if decision.to is not None and decision.to <= now:
            raise errors.Invalid.field(
                "to", f"lies in the past (now is {instants.write(now)})", accepted="a time in the future"
            )
        if decision.to is not None and abs(decision.to - slot) > LONGEST_MOVE:
            raise errors.Invalid.field(
                "to",
                f"is more than {LONGEST_MOVE.days} days away from the slot",
                accepted="a nearer time; or skip the slot, and make a job for that one time",
            )
        if decision.expires_at is not None and decision.expires_at <= now:
            raise errors.Invalid.field(
                "expires_at",
                f"lies in the past (now is {instants.write(now)})",
                accepted="a time in the future, or none",
            )
        if decision.payload is not None:
            check_payload(orjson.loads(decision.payload), self._settings)

    async def _announce(self, move: Move | None) -> None:
        """Tell workers of what is due before they would look by themselves."""
        soon = self._clock.now() + self._settings.worker.pre_claim + timedelta(seconds=1)
        if move is not None and any(each.ready_at <= soon for each in move.planned):
            await self._bus.publish([work_in(move.pool)])


def override_view(
    override: Override, schedule: Schedule | None, *, is_reached: bool, now: datetime
) -> OverrideView:
    """An override as it is shown. `is_reached`: the schedule has the slot, and the job will come to it."""
    local = override.slot if schedule is None else override.slot.astimezone(schedule.zone)
    state = "waiting"
    if has_expired(override, now):
        state = "expired"
    elif override.slot > now and not is_reached:
        state = "not_a_slot"
    elif override.applied_at is not None:
        state = "applied"
    elif override.slot <= now:
        state = "missed"
    return OverrideView.model_validate(
        {
            "slot": override.slot,
            "local": local.isoformat(),
            "action": override.action,
            "to": override.ready_at,
            "payload": None if override.payload is None else orjson.loads(override.payload),
            "note": override.note,
            "author": override.author,
            "expires_at": override.expires_at,
            "created_at": override.created_at,
            "applied_at": override.applied_at,
            "state": state,
        }
    )


def has_expired(override: Override, now: datetime) -> bool:
    """Whether its time was over before it was applied."""
    return override.applied_at is None and override.expires_at is not None and override.expires_at <= now


def read_decision(fields: Mapping[str, Any], to: datetime | None, expires_at: datetime | None) -> Decision:
    """Make a decision of what was asked, where its parts go together. `fields` has only what was given."""
    action: Action = fields["action"]
    if action == "move" and to is None:
        raise errors.Invalid.field(
            "to", "is missing: where is the slot moved to?", accepted=instants.ACCEPTED
        )
    if action != "move" and to is not None:
        raise errors.Invalid.field("to", f"means nothing with {action!r}", accepted='"action": "move"')
    payload = None
    if "payload" in fields:
        if action == "skip":
            raise errors.Invalid.field(
                "payload", "means nothing with 'skip'", accepted='"action": "payload" or "move"'
            )
        try:
            check_json(fields["payload"])
        except ValueError as error:
            raise errors.Invalid.field("payload", str(error)) from None
        payload = orjson.dumps(fields["payload"]).decode()
    elif action == "payload":
        raise errors.Invalid.field("payload", "is missing", accepted="any JSON; null is one")
    return Decision(action, to, payload, fields.get("note"), fields.get("author"), expires_at)


async def _locked(transaction: Transaction, job: Job) -> Job:
    locked = await transaction.lock_job(job.tenant_id, job.id)
    if locked is None or locked.state == "deleted":
        raise errors.NotFound(f"job {job.name!r} is deleted")
    return locked


def _coming(job: Job, slot: datetime, now: datetime) -> Schedule:
    """The schedule of a job that has this slot ahead; else an error with the nearest slots."""
    if job.state == "finished":
        raise errors.IllegalState(f"job {job.name!r} is finished: it has no further slot")
    if job.plan is None:
        raise errors.Invalid.field("slot", f"job {job.name!r} has no schedule, so it has no slots")
    schedule = load_plan(job.plan).schedule
    if schedule.delay is not None:
        raise errors.Invalid.field(
            "slot",
            f"the job's slots come {durations.write(schedule.delay)} after each execution has finished, "
            "so none is known ahead; pause the job instead",
        )
    if slot > now and schedule.has(slot):
        return schedule
    following = schedule.next_after(max(slot, now))
    before = previous(schedule, slot) if slot > now else None
    near = [at for at in (before, following) if at is not None and at > now]
    where = " and ".join(instants.write(at) for at in near)
    what = "has passed" if slot <= now else "is not a slot of the job"
    raise errors.Invalid.field(
        "slot",
        f"{instants.write(slot)} {what}",
        accepted=f"a coming slot; the nearest: {where}" if near else "a coming slot; the job has none",
    )


def _key(job: Job, slot: datetime) -> str:
    return str(ExecutionKey(job.id, Kind.SCHEDULED, slot))
