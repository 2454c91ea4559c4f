"""Run the jobs that follow others, once what they follow has ended.

An execution whose job has dependents is marked as followed from the moment that it is staged. What is followed and has ended is
the list of work: in one transaction each dependent is judged by what has become of its upstreams at the slot, gets its
execution (to run, or skipped with the reason) and the mark is taken away. Whatever fails, all of it rolls back and the marks
are still there; and a dependent has one execution for a slot by the primary key, whoever judges it how often. So a scheduler
may die at any point, and two may do this at once, and nothing is lost or run twice.

A dependent that waits for further upstreams is noted in `waiting_slots` and looked at again now and then: an upstream whose
schedule passes the slot by ends nothing that could be noticed, and some waits have a timeout.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from uuid import UUID

from cronwell import telemetry
from cronwell.bus.port import Bus, work_in
from cronwell.config import SchedulerSettings
from cronwell.control.following import follow_all
from cronwell.control.sight import Sight, look
from cronwell.model.dependencies import TIMEOUT, Judged, Rule, is_revivable, judge
from cronwell.model.execution import ExecutionKey, Kind
from cronwell.model.job import JobSpec
from cronwell.model.planning import PRIORITIES
from cronwell.runtime.clock import Clock
from cronwell.store.port import Dependent, JobPlace, NewExecution, Revised, SlotPlace, Store, Transaction

BATCH = 500
SOONEST_LOOK, LATEST_LOOK = timedelta(seconds=1), timedelta(minutes=1)
COUNT_EVERY = 5.0
# What becomes ready later than this is found by a worker that looks by itself.
SOON = timedelta(seconds=1)
OUTRUN = timedelta(seconds=2)
"""Longer than a claim takes."""
REVIVED = "upstream_ended"
"""The reason of an execution that was skipped, and runs because its upstreams have ended otherwise after all."""


class Chaining:
    """Implements `Chore`."""

    name = "chaining"
    every = timedelta(milliseconds=200)

    def __init__(self, store: Store, bus: Bus, clock: Clock, settings: SchedulerSettings) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._stuck_after = settings.stuck_after
        self._counted = 0.0

    async def run_once(self) -> int:
        """Judge what there is to judge, and return how many slots of dependents were."""
        total = 0
        while await self._store.any_to_judge(self._clock.now()):
            async with self._store.transaction() as transaction:
                if not await transaction.may_judge():
                    break
                now = self._clock.now()
                ended = await transaction.lock_followed(BATCH)
                due = await transaction.waiting_due(now, BATCH)
                round_ = await _judge_all(transaction, ended, due, now)
            if round_.pools:
                await self._bus.publish({work_in(pool) for pool in round_.pools})
            if round_.judged:
                telemetry.dependents_judged(
                    run=len(round_.run), skipped=len(round_.skipped), waiting=len(round_.waiting)
                )
            total += round_.judged
            if not ended and not due:
                # What there is somebody else holds for a moment.
                break
        await self._count()
        return total

    async def _count(self) -> None:
        """Tell how much waits, and of each that is stuck once."""
        if time.monotonic() < self._counted + COUNT_EVERY:
            return
        self._counted = time.monotonic()
        now = self._clock.now()
        since = now - self._stuck_after
        count = await self._store.count_waiting(since)
        telemetry.dependents_waiting(
            waiting=count.waiting,
            oldest=max(timedelta(), now - (count.oldest or now)),
            stuck=count.stuck,
        )
        for tenant_id, job_id in await self._store.unfollowed(BATCH):
            await self._follow(tenant_id, job_id)
        if count.stuck:
            for each in await self._store.tell_stuck(since):
                telemetry.dependent_stuck(job=each.name, slot=each.slot, waited=now - each.since)

    async def _follow(self, tenant_id: int, job_id: UUID) -> None:
        """Have a job followed that others follow, and whose plan was made by somebody who did not know."""
        async with self._store.transaction() as transaction:
            await follow_all(transaction, tenant_id, {job_id})


@dataclass(slots=True)
class _Round:
    """What one transaction decided."""

    run: list[NewExecution] = field(default_factory=list)
    skipped: list[tuple[NewExecution, str]] = field(default_factory=list)
    revised: list[Revised] = field(default_factory=list)
    waiting: list[tuple[SlotPlace, datetime, datetime]] = field(default_factory=list)
    decided: list[SlotPlace] = field(default_factory=list)
    pools: set[str] = field(default_factory=set)

    @property
    def judged(self) -> int:
        return len(self.decided) + len(self.waiting)


async def _judge_all(
    transaction: Transaction,
    ended: Sequence[tuple[int, ExecutionKey]],
    due: Sequence[SlotPlace],
    now: datetime,
) -> _Round:
    """Judge the dependents of what has ended, and those that are due for another look."""
    done = _Round()
    if not ended and not due:
        return done
    places = sorted({*due, *await _places_below(transaction, ended)})
    jobs = sorted({(tenant_id, job_id) for tenant_id, job_id, _ in places})
    dependents = {(each.tenant_id, each.id): each for each in await transaction.share_dependents(jobs)}
    sight = await look(transaction, places)
    since = await transaction.waiting_since(places)
    for place in places:
        dependent = dependents.get((place[0], place[1]))
        try:
            rule = None if dependent is None else _spec(dependent.spec).rule
        except ValueError as error:
            # One whose definition cannot be read must not keep the others from running.
            telemetry.dependent_unread(job=str(place[1]), error=error)
            done.waiting.append((place, since.get(place, now), now + LATEST_LOOK))
            continue
        if dependent is None or rule is None or dependent.state == "deleted":
            done.decided.append(place)
        else:
            _decide(done, sight, place, dependent, rule, since.get(place), now)
    await _write(transaction, done, now)
    await transaction.clear_followed(ended)
    return done


async def _places_below(
    transaction: Transaction, ended: Sequence[tuple[int, ExecutionKey]]
) -> list[SlotPlace]:
    slots: dict[JobPlace, list[datetime]] = {}
    for tenant_id, key in ended:
        slots.setdefault((tenant_id, key.job_id), []).append(key.slot)
    return [
        (tenant_id, dependent_id, slot)
        for tenant_id, upstream_id, dependent_id in await transaction.dependents_of(sorted(slots))
        for slot in slots[tenant_id, upstream_id]
    ]


def _decide(
    done: _Round,
    sight: Sight,
    place: SlotPlace,
    dependent: Dependent,
    rule: Rule,
    since: datetime | None,
    now: datetime,
) -> None:
    own = sight.own(place)
    if own is not None and not is_revivable(own.state, own.reason):
        done.decided.append(place)
        return
    upstreams = sight.of(place)
    judged = judge(rule.mode, rule.delay, upstreams)
    if judged.waits:
        # Anew from now on, where it waits for something that is run again.
        first = min((seen.ended_at for _, seen in upstreams if seen.ended_at is not None), default=now)
        # Not before its slot: one that is skipped by an override has ended a day ahead.
        began = since or max(now if own is not None else first, place[2])
        if rule.timeout is None or now < began + rule.timeout:
            done.waiting.append((place, began, _look_at(began, rule, now)))
            return
        judged = Judged(reason=TIMEOUT)
    done.decided.append(place)
    if own is not None:
        _revise(done, place, dependent, own.reason, judged)
        return
    new = _execution(place, dependent, judged.ready_at or now)
    if judged.reason is not None:
        done.skipped.append((new, judged.reason))
    elif dependent.state == "paused":
        done.skipped.append((new, "paused"))
    else:
        done.run.append(new)
        if new.ready_at <= now + SOON:
            done.pools.add(new.pool)


def _revise(done: _Round, place: SlotPlace, dependent: Dependent, was: str | None, judged: Judged) -> None:
    """Change an execution that was skipped for its upstreams' sake, where it is judged otherwise now."""
    reason = judged.reason or ("paused" if dependent.state == "paused" else REVIVED)
    ready_at = judged.ready_at if reason == REVIVED else None
    if reason != was:
        spec = _spec(dependent.spec)
        done.revised.append(
            Revised(
                place,
                ready_at,
                reason,
                dependent.revision,
                spec.pool,
                dependent.is_followed,
                spec.group_limit,
            )
        )
        if ready_at is not None:
            done.pools.add(spec.pool)


async def _put_off(transaction: Transaction, done: _Round, now: datetime) -> None:
    """Have what comes after later slots of its job wait until no claim is under way that does not see it."""
    places = [_place(new) for new in done.run if new.running_limit is not None]
    places += [each.place for each in done.revised if each.ready_at is not None]
    late = await transaction.outrun(places) if places else set()
    if late:
        soonest = now + OUTRUN
        done.run = [
            replace(new, ready_at=max(new.ready_at, soonest)) if _place(new) in late else new
            for new in done.run
        ]
        done.revised = [
            replace(each, ready_at=max(each.ready_at, soonest))
            if each.ready_at is not None and each.place in late
            else each
            for each in done.revised
        ]


async def _write(transaction: Transaction, done: _Round, now: datetime) -> None:
    await _put_off(transaction, done, now)
    new = [*done.run, *(each for each, _ in done.skipped)]
    if new:
        await transaction.insert_executions(new)
    if done.skipped:
        reasons = {_place(each): reason for each, reason in done.skipped}
        await transaction.skip_unmet(reasons, now)
    if done.revised:
        await transaction.revise_unmet(done.revised, now)
    if done.waiting:
        await transaction.keep_waiting(done.waiting)
    if done.decided:
        await transaction.end_waiting(done.decided)


def _execution(place: SlotPlace, dependent: Dependent, ready_at: datetime) -> NewExecution:
    tenant_id, job_id, slot = place
    spec = _spec(dependent.spec)
    return NewExecution(
        tenant_id=tenant_id,
        key=ExecutionKey(job_id, Kind.DEPENDENCY, slot),
        ready_at=ready_at,
        revision=dependent.revision,
        priority=PRIORITIES[spec.priority],
        running_limit=spec.running_limit,
        pool=spec.pool,
        payload=None,
        reason=None,
        queueing=spec.queueing,
        group=spec.group_limit,
        is_followed=dependent.is_followed,
    )


def _place(new: NewExecution) -> SlotPlace:
    return new.tenant_id, new.key.job_id, new.key.slot


def _look_at(since: datetime, rule: Rule, now: datetime) -> datetime:
    """When to look again at what waits: after half as long as it has waited, and when its time is over."""
    again = max(since, now + min(max((now - since) / 2, SOONEST_LOOK), LATEST_LOOK))
    return again if rule.timeout is None else min(again, since + rule.timeout)


@lru_cache(maxsize=10_000)
def _spec(text: str) -> JobSpec:
    return JobSpec.model_validate_json(text)
