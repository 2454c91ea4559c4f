"""New jobs on their way into the store, with their first slots, the calendars that they follow and the secrets that they name."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from urllib.parse import quote
from uuid import UUID

from cronwell import errors
from cronwell.config import SchedulerSettings
from cronwell.control.calendars import Known
from cronwell.control.definitions import Definition
from cronwell.control.drafts import give_way, new_job
from cronwell.control.following import check_new, link_new
from cronwell.control.naming import note_named, unknown_secrets
from cronwell.control.scheduling import first_move
from cronwell.model.identity import RANDOM_BITS, new_job_id
from cronwell.model.schedule import Schedule
from cronwell.store.port import Cursor, Move, NewJob, Transaction


async def insert(
    transaction: Transaction,
    tenant_id: int,
    definitions: Sequence[Definition],
    known: Known,
    *,
    now: datetime,
    settings: SchedulerSettings,
) -> list[tuple[NewJob, Move | None] | errors.UserError]:
    """Add jobs, each of which is there afterwards or has its name taken, or names or follows what is not there; raises
    QuotaExceeded where they are too many."""
    if unknown := await unknown_secrets(transaction, tenant_id, definitions):
        rest = [each for place, each in enumerate(definitions) if place not in unknown]
        made = iter(await insert(transaction, tenant_id, rest, known, now=now, settings=settings))
        return [unknown[place] if place in unknown else next(made) for place in range(len(definitions))]
    refused, definitions = await check_new(transaction, tenant_id, definitions)
    prepared: list[tuple[NewJob, Move | None]] = []
    good: list[Definition] = []
    for place, definition in enumerate(definitions):
        await give_way(place)
        if place in refused:
            continue
        good.append(definition)
        job_id = new_job_id(now, secrets.randbits(RANDOM_BITS))
        move = None
        if definition.plan is not None:
            plan = definition.plan
            cursor = Cursor(tenant_id, job_id, 1, now, plan.canonical(), plan.schedule.max_runs)
            move = first_move(cursor, now=now, settings=settings)
        prepared.append((new_job(tenant_id, job_id, definition, move, now), move))
    added = await transaction.insert_jobs([job for job, _ in prepared], now)
    await transaction.count_jobs(tenant_id, len(added))
    await transaction.record([move for job, move in prepared if move is not None and job.id in added], now)
    await _note_uses(
        transaction,
        tenant_id,
        {
            job.id: definition.plan.schedule
            for (job, _), definition in zip(prepared, good, strict=True)
            if job.id in added and definition.plan is not None and definition.plan.schedule.filter is not None
        },
        known,
    )
    named = {
        job.id: definition
        for (job, _), definition in zip(prepared, good, strict=True)
        if definition.named and job.id in added
    }
    await note_named(transaction, tenant_id, named)
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
            f"PUT /v1/jobs/name:{quote(job.name, safe='')}"
        )
        for job, move in prepared
    )
    return [refused[place] if place in refused else next(made) for place in range(len(definitions))]


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
