"""New jobs on their way into the store, with their first slots, the calendars that they follow and the secrets that they name."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote
from uuid import UUID

from cronwell import errors
from cronwell.config import SchedulerSettings
from cronwell.control.calendars import Known
from cronwell.control.definitions import Definition
from cronwell.control.drafts import Turn, new_job, resting_job
from cronwell.control.following import check_new, link_new
from cronwell.control.naming import note_named, unknown_secrets
from cronwell.control.scheduling import first_move, rests_until
from cronwell.model.identity import RANDOM_BYTES, new_job_ids
from cronwell.model.schedule import Schedule
from cronwell.runtime.clock import Clock
from cronwell.store.port import Cursor, Move, NewJob, Transaction

MOST_BYTES = 4 * 1024 * 1024
"""About so much of definitions goes in a transaction of several jobs: it is in memory several times until it is written."""


@dataclass(frozen=True, slots=True)
class Created:
    """How one job of a batch fared: it is there, or there is an error."""

    job_id: UUID | None = None
    name: str = ""
    next_fire_at: datetime | None = None
    error: errors.UserError | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """Jobs of a batch on their way into the store."""

    good: Sequence[tuple[int, Definition]]
    """With their places."""
    results: Sequence[Created | None]
    """By place: what is wrong with the others."""
    known: Known


Placed = tuple[NewJob, Move | None] | errors.UserError
"""A job that was added, and what is staged of it; or why it was not."""

Begin = Callable[[], AbstractAsyncContextManager[Transaction]]
"""Begins a transaction."""


async def add(
    begin: Begin,
    clock: Clock,
    settings: SchedulerSettings,
    tenant_id: int,
    definitions: Sequence[Definition],
    known: Known,
) -> tuple[datetime, list[Placed]]:
    """Add jobs in one transaction, and tell when; those for which the tenant's quota has no room are refused."""
    try:
        async with begin() as transaction:
            now = clock.now()
            return now, await insert(transaction, tenant_id, definitions, known, now=now, settings=settings)
    except errors.QuotaExceeded as full:
        # Those whose names are taken need no room, and are to be told so.
        fitting = [each for each in definitions if each.spec.name not in full.names]
        if not fitting:
            return clock.now(), [full] * len(definitions)
        now, made = await add(begin, clock, settings, tenant_id, fitting, known)
        rest = iter(made)
        return now, [full if each.spec.name in full.names else next(rest) for each in definitions]


async def insert(
    transaction: Transaction,
    tenant_id: int,
    definitions: Sequence[Definition],
    known: Known,
    *,
    now: datetime,
    settings: SchedulerSettings,
) -> list[Placed]:
    """Add jobs, each of which is there afterwards or has its name taken, or names or follows what is not there; raises
    QuotaExceeded where they are too many."""
    if unknown := await unknown_secrets(transaction, tenant_id, definitions):
        rest = [each for place, each in enumerate(definitions) if place not in unknown]
        made = iter(await insert(transaction, tenant_id, rest, known, now=now, settings=settings))
        return [unknown[place] if place in unknown else next(made) for place in range(len(definitions))]
    refused, definitions = await check_new(transaction, tenant_id, definitions)
    good = (
        [each for place, each in enumerate(definitions) if place not in refused] if refused else definitions
    )
    prepared: list[tuple[NewJob, Move | None]] = []
    ids = new_job_ids(now, secrets.token_bytes(RANDOM_BYTES * len(good)))
    turn = Turn()
    for job_id, definition in zip(ids, good, strict=True):
        await turn.give_way()
        prepared.append(_first_step(tenant_id, job_id, definition, now, settings))
    added = await transaction.insert_jobs([job for job, _ in prepared], now)
    try:
        await transaction.count_jobs(tenant_id, len(added))
    except errors.QuotaExceeded as full:
        full.names = frozenset([job.name for job, _ in prepared if job.id in added][full.room :])
        raise
    await transaction.record([move for job, move in prepared if move is not None and job.id in added], now)
    await _note_uses(
        transaction,
        tenant_id,
        {
            job.id: definition.plan.schedule
            for (job, _), definition in zip(prepared, good, strict=True)
            if definition.plan is not None and definition.plan.schedule.filter is not None and job.id in added
        },
        known,
    )
    named = {
        job.id: definition
        for (job, _), definition in zip(prepared, good, strict=True)
        if definition.named and job.id in added
    }
    await note_named(transaction, tenant_id, named)
    if any(definition.spec.after is not None for definition in good):
        await link_new(
            transaction,
            tenant_id,
            {job.id: each for (job, _), each in zip(prepared, good, strict=True) if job.id in added},
        )
    made = iter(
        (job, move)
        if job.id in added
        else errors.NameTaken(
            f"another job is named {job.name!r}; change that one with "
            f"PUT /v1/jobs/name:{quote(job.name, safe='')} or `cronwell job edit {shlex.quote(job.name)}`"
        )
        for job, move in prepared
    )
    return [refused[place] if place in refused else next(made) for place in range(len(definitions))]


def _first_step(
    tenant_id: int, job_id: UUID, definition: Definition, now: datetime, settings: SchedulerSettings
) -> tuple[NewJob, Move | None]:
    """A job to be added, and what is staged of it at once, if anything is."""
    plan, judged_at = definition.plan, definition.judged_at
    if plan is None:
        return new_job(tenant_id, job_id, definition, None, now), None
    if (until := rests_until(plan, now=now, settings=settings, judged_at=judged_at)) is not None:
        return resting_job(tenant_id, job_id, definition, plan, until), None
    cursor = Cursor(tenant_id, job_id, 1, now, plan.canonical(), plan.schedule.max_runs)
    move = first_move(cursor, now=now, settings=settings, judged_at=judged_at)
    return new_job(tenant_id, job_id, definition, move, now), move


async def _note_uses(
    transaction: Transaction, tenant_id: int, schedules: Mapping[UUID, Schedule], known: Known
) -> None:
    """Note which calendars jobs follow, so that a change of one reaches them."""
    if not schedules:
        return
    uses = [use for job_id, schedule in schedules.items() for use in known.uses(job_id, schedule)]
    there = await transaction.note_uses(tenant_id, list(schedules), uses)
    for use in uses:
        if use.calendar not in there:
            raise errors.Conflict(f"the calendar {use.calendar!r} was deleted in this moment")
