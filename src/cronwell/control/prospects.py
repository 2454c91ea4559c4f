"""When a job fires next, or why it does not."""

from __future__ import annotations

from datetime import datetime

from cronwell.model.job import JobSpec
from cronwell.model.planning import load_plan
from cronwell.model.schedule import effective_at
from cronwell.model.waiting import why_waiting
from cronwell.store.port import Job


def next_fire_at(job: Job) -> datetime | None:
    """When the job fires next: a staged slot, or the first that is not staged yet; overrides are minded."""
    if job.next_slot is None or job.plan is None:
        return job.staged_at
    schedule = load_plan(job.plan).schedule
    decided = dict(job.decided)
    times = [to for slot, to in decided.items() if to is not None and schedule.has(slot)]
    slot: datetime | None = job.next_slot
    while slot is not None and slot in decided:
        slot = schedule.next_after(slot)
    if slot is not None:
        times.append(effective_at(schedule, job.id, slot))
    if job.staged_at is not None:
        times.append(job.staged_at)
    return min(times, default=None)


def follows(job: Job) -> str | None:
    """For a job that follows others: which, in words."""
    if job.plan is not None or (rule := JobSpec.model_validate_json(job.spec).rule) is None:
        return None
    names = [each.job if each.on == "succeeded" else f"{each.job} ({each.on})" for each in rule.upstreams]
    return f"it follows {', '.join(names)}: it runs once for each slot of {rule.mode} of them"


def why_idle(job: Job) -> str | None:
    """For a job that waits for its calendars, which leave it no further slot: which they are."""
    if job.held_until is None or job.plan is None or job.state != "active":
        return None
    return why_waiting(load_plan(job.plan).schedule, job.held_until)
