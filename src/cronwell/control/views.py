"""What users are shown of jobs and executions; the HTTP interface and the command line answer with these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

import orjson
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema

from cronwell.control.prospects import next_fire_at, why_idle
from cronwell.model import zones
from cronwell.model.describe import ClockChange
from cronwell.model.execution import Kind, Result, State
from cronwell.model.job import JobSpec
from cronwell.store.port import Attempt, Execution, Job, Override


def write_time(at: datetime) -> str:
    """A moment in UTC, as RFC 3339 with as many decimals as it needs."""
    text = at.astimezone(UTC).isoformat(timespec="microseconds" if at.microsecond else "seconds")
    return text.replace("+00:00", "Z")


Moment = Annotated[
    datetime,
    PlainSerializer(write_time, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
T = TypeVar("T")


class View(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Page(View, Generic[T]):
    """One page of a list; `next_cursor` leads to the next one."""

    items: list[T]
    next_cursor: str | None = None


class PauseView(View):
    since: Moment
    until: Moment | None = None
    note: str | None = None


class AttemptView(View):
    attempt: int
    fence: int
    result: Result
    worker: UUID | None
    claimed_at: Moment | None
    started_at: Moment | None
    finished_at: Moment | None
    error: str | None
    error_kind: str | None
    output: str | None
    output_truncated: bool = False


class TimelineEntry(View):
    at: Moment
    event: str


class ExecutionView(View):
    id: str
    """The same on every attempt: it follows from job, kind and slot."""
    job_id: UUID
    job: str
    """The job's name."""
    kind: Kind
    slot: Moment
    """The nominal instant that it is for."""
    ready_at: Moment
    """When it may start: the slot, its place in the window, or the time of the next attempt."""
    state: State
    reason: str | None
    """Why the slot was skipped or the execution cancelled, or what asked for it."""
    attempt: int
    """The attempts begun so far; a redrive counts anew."""
    fence: int
    """Grows with each claim; a result with a lower one is refused."""
    revision: int
    """Of the job's definition."""
    priority: Literal["high", "normal", "low"]
    pool: str
    worker: UUID | None
    """Who has it, or had it last."""
    claimed_at: Moment | None
    started_at: Moment | None
    """When the latest attempt started."""
    finished_at: Moment | None
    lateness_ms: float | None
    """How long after `ready_at` the latest attempt started; null while the next one is waited for."""
    cancel_requested_at: Moment | None
    output: str | None
    output_truncated: bool
    error: str | None
    error_kind: str | None
    """A short stable word for the error."""
    progress: Any = None
    """What a handler, or a callback, last told of it."""
    callback_until: Moment | None = None
    """It waits for its callback, and is timed out then unless more is heard of it."""
    held_by: str | None = None
    """The target that cannot take it now: it waits until `ready_at`, and has used up no attempt."""


class ExecutionDetail(ExecutionView):
    payload: Any = None
    checkpoint: Any = None
    """What its next attempt gets, or would get, of the attempts before."""
    override: OverrideMark | None = None
    """What somebody decided about its slot."""
    waits_for: str | None = None
    """Why it has not started although it is due, where that is not for a free worker."""
    attempts: list[AttemptView] = Field(default_factory=list)
    timeline: list[TimelineEntry] = Field(default_factory=list)


class ClockChangeView(View):
    """A coming change of the zone's clock, and what the schedule does there."""

    at: Moment
    kind: Literal["gap", "fold"]
    local_before: str
    """What the clock would have shown at that instant."""
    local_after: str
    """What it shows."""
    effect: str


class JobView(JobSpec):
    """A job: its definition as it was given, with defaults filled in, and where it stands."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: UUID
    state: Literal["active", "paused", "finished", "deleted"]
    revision: int
    next_fire_at: Moment | None
    """When it starts next, window included; null where nothing is ahead."""
    pause: PauseView | None = None
    created_at: Moment
    updated_at: Moment
    deleted_at: Moment | None = None
    warnings: list[str] = Field(default_factory=list)
    """What is allowed but may not be meant, told when a job is created or edited; and why a job waits that has a schedule
    and no further slot, told always."""
    clock_changes: list[ClockChangeView] = Field(default_factory=list)
    """The next two changes of the clock in the schedule's zone, and what it does there. Told like warnings."""


class JobDetail(JobView):
    latest_executions: list[ExecutionView] = Field(default_factory=list)


class JobStatus(View):
    id: UUID
    name: str
    state: str
    status: State | None
    """The state of the latest execution that has begun or ended."""
    last_run: Moment | None
    next_run: Moment | None
    retry_count: int
    last_execution: ExecutionView | None = None
    note: str | None = None
    """Why it waits, where it has a schedule and no further slot."""


class OverrideMark(View):
    """What somebody decided about a slot, in short."""

    action: Literal["skip", "move", "payload"]
    to: Moment | None = None
    """Where a slot is moved to."""
    note: str | None = None
    author: str | None = None


class UpcomingSlot(View):
    slot: Moment
    local: str
    """The slot in the schedule's zone."""
    effective_at: Moment
    """When the job starts: the slot, its place in the window, or where an override moves it to."""
    note: str | None = None
    override: OverrideMark | None = None


class Upcoming(View):
    job_id: UUID
    timezone: str
    items: list[UpcomingSlot]
    note: str | None = None
    """Why there are fewer than were asked for, where a calendar leaves no more."""


class Preview(View):
    slots: list[UpcomingSlot]
    description: str
    warnings: list[str]
    clock_changes: list[ClockChangeView] = Field(default_factory=list)
    """The next two changes of the zone's clock."""


def job_view(job: Job, remarks: Remarks | None = None) -> JobView:
    view = JobView.model_validate(_job_fields(job))
    return view if remarks is None else remarks.added_to(view)


@dataclass(frozen=True, slots=True)
class Remarks:
    """What to tell whoever has just written a definition."""

    warnings: Sequence[str] = ()
    clock_changes: Sequence[ClockChange] = ()

    def added_to(self, view: JobView) -> JobView:
        return view.model_copy(
            update={
                "warnings": [*view.warnings, *self.warnings],
                "clock_changes": [change_view(each) for each in self.clock_changes],
            }
        )


def change_view(change: ClockChange) -> ClockChangeView:
    zone = zones.find(change.timezone)
    return ClockChangeView(
        at=change.at,
        kind=change.kind,
        local_before=(change.at + change.before).replace(tzinfo=None).isoformat(timespec="minutes"),
        local_after=change.at.astimezone(zone).replace(tzinfo=None).isoformat(timespec="minutes"),
        effect=change.effect,
    )


def job_detail(job: Job, latest: list[Execution]) -> JobDetail:
    return JobDetail.model_validate(
        _job_fields(job) | {"latest_executions": [execution_view(each) for each in latest]}
    )


def execution_view(execution: Execution) -> ExecutionView:
    return ExecutionView(**_execution_fields(execution))


def override_mark(override: Override) -> OverrideMark:
    return OverrideMark.model_validate(
        {
            "action": override.action,
            "to": override.ready_at,
            "note": override.note,
            "author": override.author,
        }
    )


def execution_detail(
    execution: Execution, attempts: list[Attempt], override: Override | None = None
) -> ExecutionDetail:
    return ExecutionDetail(
        **_execution_fields(execution),
        override=None if override is None else override_mark(override),
        payload=None if execution.payload is None else orjson.loads(execution.payload),
        checkpoint=None if execution.checkpoint is None else orjson.loads(execution.checkpoint),
        attempts=[_attempt_view(each) for each in attempts] + _last_attempt(execution, attempts),
        timeline=_timeline(execution, attempts),
    )


def _job_fields(job: Job) -> dict[str, Any]:
    pause = None
    if job.state == "paused" and job.paused_at is not None:
        pause = PauseView(since=job.paused_at, until=job.paused_until, note=job.pause_note)
    spec: dict[str, Any] = orjson.loads(job.spec)
    why = why_idle(job)
    return spec | {
        "id": job.id,
        "state": job.state,
        "revision": job.revision,
        "next_fire_at": next_fire_at(job),
        "pause": pause,
        "warnings": [] if why is None else [why],
        "created_at": job.created_at,
        "updated_at": job.updated_at,
        "deleted_at": job.deleted_at,
    }


def _execution_fields(execution: Execution) -> dict[str, Any]:
    lateness = None
    if execution.started_at is not None and _is_start_of_latest(execution, execution.started_at):
        lateness = round((execution.started_at - execution.ready_at) / timedelta(milliseconds=1), 3)
    return {
        "id": str(execution.key),
        "job_id": execution.key.job_id,
        "job": execution.job_name,
        "kind": execution.key.kind,
        "slot": execution.key.slot,
        "ready_at": execution.ready_at,
        "state": execution.state,
        "reason": execution.reason,
        "attempt": execution.attempt,
        "fence": execution.fence,
        "revision": execution.revision,
        "priority": ("high", "normal", "low")[execution.priority],
        "pool": execution.pool,
        "worker": execution.worker,
        "claimed_at": execution.claimed_at,
        "started_at": execution.started_at,
        "finished_at": execution.finished_at,
        "lateness_ms": lateness,
        "cancel_requested_at": execution.cancel_requested_at,
        "output": execution.output,
        "output_truncated": execution.output_truncated,
        "error": execution.error,
        "error_kind": execution.error_kind,
        "progress": None if execution.progress is None else orjson.loads(execution.progress),
        "callback_until": execution.callback_until,
        "held_by": execution.held_by if execution.is_held else None,
    }


def _is_start_of_latest(execution: Execution, started_at: datetime) -> bool:
    """Whether it started for its `ready_at`. Where a retry is waited for, or was given up, that is the retry's."""
    return execution.state in (State.RUNNING, State.SUCCEEDED) or started_at >= execution.ready_at


def _attempt_view(attempt: Attempt) -> AttemptView:
    return AttemptView(
        attempt=attempt.attempt,
        fence=attempt.fence,
        result=attempt.result,
        worker=attempt.worker,
        claimed_at=attempt.claimed_at,
        started_at=attempt.started_at,
        finished_at=attempt.finished_at,
        error=attempt.error,
        error_kind=attempt.error_kind,
        output=attempt.output,
        output_truncated=attempt.output_truncated,
    )


def _last_attempt(execution: Execution, attempts: list[Attempt]) -> list[AttemptView]:
    """The attempt that succeeded leaves no row of its own; it is told from the execution."""
    if execution.state is not State.SUCCEEDED or any(each.fence == execution.fence for each in attempts):
        return []
    return [
        AttemptView(
            attempt=execution.attempt,
            fence=execution.fence,
            result=Result.SUCCEEDED,
            worker=execution.worker,
            claimed_at=execution.claimed_at,
            started_at=execution.started_at,
            finished_at=execution.finished_at,
            error=None,
            error_kind=None,
            output=execution.output,
            output_truncated=execution.output_truncated,
        )
    ]


def _timeline(execution: Execution, attempts: list[Attempt]) -> list[TimelineEntry]:
    events: list[tuple[datetime, str]] = [(execution.key.slot, f"{execution.key.kind} slot")]
    for each in attempts:
        if each.started_at is not None:
            events.append((each.started_at, f"attempt {each.attempt} started"))
        events.append((each.finished_at, f"attempt {each.attempt} {each.result}"))
    seen = {each.fence for each in attempts}
    if execution.fence not in seen:
        if execution.claimed_at is not None:
            events.append((execution.claimed_at, "claimed"))
        if execution.started_at is not None:
            events.append((execution.started_at, f"attempt {execution.attempt} started"))
    if execution.cancel_requested_at is not None:
        events.append((execution.cancel_requested_at, "cancel requested"))
    if execution.state in (State.PENDING, State.RETRYING):
        events.append((execution.ready_at, "ready for the next attempt" if attempts else "ready"))
    elif execution.finished_at is not None:
        why = f" ({execution.reason})" if execution.reason else ""
        events.append((execution.finished_at, f"{execution.state}{why}"))
    return [TimelineEntry(at=at, event=event) for at, event in sorted(events, key=lambda each: each[0])]
