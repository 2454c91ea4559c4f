"""Definitions on their way into the store: merged, made into rows, and shown before they are read back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from cronwell import errors
from cronwell.control.definitions import Definition
from cronwell.model.planning import Plan
from cronwell.model.schedule import effective_at
from cronwell.store.port import Job, Move, NewJob


def merge(raw: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `changes` into `raw` as RFC 7396 says."""
    merged = dict(raw)
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            below = merged.get(name)
            merged[name] = merge(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[name] = value
    return merged


def priority_of(definition: Definition) -> int:
    return ("high", "normal", "low").index(definition.spec.priority)


def read_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def new_job(tenant_id: int, job_id: UUID, definition: Definition, move: Move | None, now: datetime) -> NewJob:
    spec, plan = definition.spec, definition.plan
    return NewJob(
        tenant_id=tenant_id,
        id=job_id,
        name=spec.name,
        pool=spec.pool,
        target_kind=spec.target.kind,
        tags=definition.tags,
        spec=definition.text,
        plan=None if plan is None else plan.canonical(),
        next_slot=None if move is None else move.next_slot,
        runs_left=None if move is None else move.runs_left,
        awaits=move is not None and move.awaits,
        held_until=None if move is None else move.held_until(now),
    )


def resting_job(tenant_id: int, job_id: UUID, definition: Definition, plan: Plan, until: datetime) -> NewJob:
    """A new job of which nothing is staged yet: its first slot lies far ahead."""
    spec = definition.spec
    return NewJob(
        tenant_id,
        job_id,
        spec.name,
        spec.pool,
        spec.target.kind,
        definition.tags,
        definition.text,
        plan.canonical(),
        until,
        plan.schedule.max_runs,
    )


def first_fire_at(job: NewJob, plan: Plan | None, move: Move | None) -> datetime | None:
    """When a job that was just added fires next, as `prospects.next_fire_at` would tell once it is read."""
    times = [] if move is None else [each.ready_at for each in move.planned]
    if plan is not None and job.next_slot is not None and not job.awaits:
        times.append(effective_at(plan.schedule, job.id, job.next_slot))
    return min(times, default=None)


def as_stored(job: NewJob, move: Move | None, now: datetime) -> Job:
    """The job as a read would find it, just after it was added."""
    ahead = [each.ready_at for each in move.planned] if move is not None else []
    return Job(
        tenant_id=job.tenant_id,
        id=job.id,
        name=job.name,
        state="active",
        revision=1,
        pool=job.pool,
        target_kind=job.target_kind,
        spec=job.spec,
        pause_note=None,
        paused_at=None,
        paused_until=None,
        created_at=now,
        updated_at=now,
        deleted_at=None,
        next_slot=None if job.awaits else job.next_slot,
        plan=job.plan,
        staged_at=min(ahead, default=None),
        runs_left=job.runs_left,
        defined_at=now,
        held_until=job.held_until,
    )


class Turn:
    """One's time on the event loop, of which others want theirs: most jobs are judged in 20 µs, some in 500 ms."""

    LENGTH = 0.005

    def __init__(self) -> None:
        self._ends = time.monotonic() + self.LENGTH

    async def give_way(self) -> None:
        """Let others have their turn, when one's own is over."""
        if time.monotonic() >= self._ends:
            await asyncio.sleep(0)
            self._ends = time.monotonic() + self.LENGTH


def check_revision(job: Job, revision: int | None) -> None:
    if revision is not None and revision != job.revision:
        raise errors.RevisionMismatch(
            f"If-Match says revision {revision}, but the job is at {job.revision}; read it again first"
        )
