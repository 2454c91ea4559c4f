"""What users are shown of backfills."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import orjson
from pydantic import ConfigDict, Field

from cronwell.control.views import Moment, View
from cronwell.model import backfill as model
from cronwell.store.port import Backfill, BackfillState, ByDefinition

Order = Literal["oldest", "newest"]

STEP = timedelta(milliseconds=500)
"""How often backfills are moved on; what ends in between makes room for the next at the next step."""

# A stuck one would else be told to end in a year that has no digits.
_LONGEST_ETA = timedelta(days=3650)


class _Ranged(View):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, serialize_by_alias=True)

    from_: Moment = Field(serialization_alias="from")
    to: Moment
    """The first moment that is no part of it."""


class BackfillPlan(_Ranged):
    """What a backfill would do; nothing is stored."""

    job_id: UUID
    job: str
    """The job's name."""
    count: int
    """Slots in the range."""
    first: Moment | None
    last: Moment | None
    already: int
    """Slots that have an execution of a backfill already; they are not run again."""
    load_per_minute: float
    """Executions that it adds to each minute while it runs, at most."""
    takes: str
    """How long it takes at the least."""
    warnings: list[str]


class BackfillView(_Ranged):
    """A backfill and how far it has come."""

    id: UUID
    job_id: UUID
    job: str
    """The job's name."""
    state: BackfillState
    definition: ByDefinition
    """By which definition of the job slots are run: the one of their time, or the current one."""
    order: Order
    rate: str
    """Executions that start in a second, minute or hour, at most."""
    concurrency: int
    """Executions that are unfinished at once, at most."""
    slots: int
    """Slots in the range."""
    staged: int
    """Slots that have got an execution from it."""
    passed_over: int
    """Slots that it does not run: they were backfilled before, or their day is past retention by now."""
    succeeded: int
    failed: int
    cancelled: int
    """Executions that were cancelled, or skipped because the job was deleted."""
    unfinished: int
    """Executions that wait or run."""
    remaining: int
    """Slots that it has not come to."""
    reached: Moment | None
    """The latest slot that it has come to."""
    eta: Moment | None
    """When it ends, at the pace so far; null unless it is running."""
    payload: Any = None
    note: str | None
    created_at: Moment
    updated_at: Moment
    finished_at: Moment | None
    """When its last execution had ended."""
    warnings: list[str] = Field(default_factory=list)
    """What is allowed but may not be meant. Told when it is started."""


def view_of(backfill: Backfill, now: datetime, warnings: Sequence[str] = ()) -> BackfillView:
    """A backfill as users are shown it."""
    handled = backfill.staged + backfill.passed_over
    is_over = backfill.state in ("finished", "cancelled")
    remaining = 0 if backfill.state == "finished" else max(0, backfill.slots - handled)
    return BackfillView(
        from_=backfill.from_slot,
        to=backfill.to_slot,
        id=backfill.id,
        job_id=backfill.job_id,
        job=backfill.job_name,
        state=backfill.state,
        definition=backfill.definition,
        order="newest" if backfill.is_newest_first else "oldest",
        rate=model.write_rate(backfill.rate),
        concurrency=backfill.concurrency,
        slots=backfill.slots,
        staged=backfill.staged,
        passed_over=backfill.passed_over,
        succeeded=backfill.succeeded,
        failed=backfill.failed,
        cancelled=backfill.staged - backfill.succeeded - backfill.failed - len(backfill.unfinished),
        unfinished=len(backfill.unfinished),
        remaining=remaining,
        reached=backfill.reached,
        eta=None if is_over or backfill.state == "paused" else _eta(backfill, remaining, now),
        payload=None if backfill.payload is None else orjson.loads(backfill.payload),
        note=backfill.note,
        created_at=backfill.created_at,
        updated_at=backfill.updated_at,
        finished_at=backfill.finished_at,
        warnings=list(warnings),
    )


def _eta(backfill: Backfill, remaining: int, now: datetime) -> datetime:
    """When it ends if it goes on as it has gone, and no sooner than its limits let it."""
    ended = backfill.staged - len(backfill.unfinished)
    each_seconds = 1 / pace(backfill)
    if ended:
        each_seconds = max(each_seconds, (now - backfill.created_at).total_seconds() / ended)
    left_seconds = (remaining + len(backfill.unfinished)) * each_seconds
    return now + min(timedelta(seconds=round(min(left_seconds, 1e9))), _LONGEST_ETA)


def pace(backfill: Backfill) -> float:
    """Executions a second at the most, by its rate and by how often it is moved on."""
    return min(backfill.rate, backfill.concurrency / STEP.total_seconds())
