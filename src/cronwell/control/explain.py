"""What became of one instant of a job, and why: in a word, in a sentence, and in fields."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import Any, Literal

from pydantic import Field

from cronwell import durations, errors
from cronwell.control.hosts import why_held
from cronwell.control.jobs import Jobs
from cronwell.control.overrides import has_expired
from cronwell.control.prospects import why_idle
from cronwell.control.upstreams import WHY_UNMET, UpstreamView, told_waiting, upstreams_at
from cronwell.control.views import (
    ExecutionView,
    Moment,
    OverrideMark,
    View,
    execution_view,
    override_mark,
)
from cronwell.control.waits import why_not_started
from cronwell.model import instants, zones
from cronwell.model.describe import describe, effect_of
from cronwell.model.execution import ExecutionKey, Kind, State
from cronwell.model.job import JobSpec
from cronwell.model.kinds import CronTimes, RuleTimes
from cronwell.model.planning import load_plan
from cronwell.model.schedule import Schedule, previous
from cronwell.runtime.clock import Clock
from cronwell.store.port import Execution, Job, Override, Store

Verdict = Literal[
    "executed", "running", "staged", "waiting", "skipped", "cancelled", "planned", "not_a_slot", "no_record"
]

_TICK = timedelta(microseconds=1)
_SOON = timedelta(milliseconds=250)
_WHY_SKIPPED = {
    **WHY_UNMET,
    "overlap": "an earlier execution of the job was not finished",
    "catch_up": "it was missed, and the job's catch-up policy does not run it",
    "paused": "the job was paused",
    "deleted": "the job was deleted",
    "rearmed": "the job had lost its next slot, and was armed anew when that was found",
    "override": "an override says so",
    "tzdata": "the rules of its zone changed, and the slot beside it was held where the older ones had placed it",
}


class Explanation(View):
    """What became of one instant of a job."""

    job_id: str
    at: Moment
    local: str
    """The instant in the schedule's zone."""
    verdict: Verdict
    reason: str | None = None
    """A short stable word: `overlap`, `catch_up`, `paused`, `calendar`, `except`, `dst_gap`, `ended`, …"""
    sentence: str
    schedule: str | None = None
    """The schedule that held then, in words."""
    revision: int | None = None
    lateness_ms: float | None = None
    ran_ms: float | None = None
    execution: ExecutionView | None = None
    override: OverrideMark | None = None
    """What somebody decided about the slot."""
    upstreams: list[UpstreamView] = Field(default_factory=list)
    """What has become of the jobs that it follows, at the same slot."""
    others: list[ExecutionView] = Field(default_factory=list)
    """Executions of other kinds with the same slot: triggers and backfills."""
    previous_slot: Moment | None = None
    next_slot: Moment | None = None


class Explain:
    """The verb. One instance serves a process."""

    def __init__(self, store: Store, clock: Clock, jobs: Jobs) -> None:
        self._store = store
        self._clock = clock
        self._jobs = jobs

    async def explain(self, tenant_id: int, reference: str, text: str) -> Explanation:
        """Say what became of an instant: RFC 3339, or a wall-clock time in the zone of the job's schedule."""
        job = await self._jobs.find(tenant_id, reference)
        now = self._clock.now()
        present = None if job.plan is None else load_plan(job.plan).schedule
        zone = zones.find("UTC" if present is None else present.timezone)
        at = _read(text, zone, present)
        if isinstance(at, str):
            return self._in_gap(job, text, zone, at, present)
        rule = JobSpec.model_validate_json(job.spec).rule
        key = ExecutionKey(job.id, Kind.SCHEDULED if rule is None else Kind.DEPENDENCY, at)
        execution = await self._store.get_execution(tenant_id, key)
        others = [
            other
            for kind in Kind
            if kind is not key.kind
            and (other := await self._store.get_execution(tenant_id, ExecutionKey(job.id, kind, at)))
            is not None
        ]
        override = await self._store.get_override(tenant_id, job.id, at)
        revision = await self._store.revision_at(tenant_id, job.id, at)
        schedule = None
        if revision is not None and revision.plan is not None:
            schedule = load_plan(revision.plan).schedule
        shown = schedule or present
        upstreams = [] if rule is None else await upstreams_at(self._store, job, at)
        facts: dict[str, Any] = {
            "job_id": str(job.id),
            "at": at,
            "local": at.astimezone(zone if shown is None else shown.zone).isoformat(),
            "schedule": None if schedule is None else describe(schedule),
            "revision": None if revision is None else revision.revision,
            "override": None if override is None else override_mark(override),
            "upstreams": upstreams,
            "others": [execution_view(each) for each in others],
            **_neighbours(shown, at),
        }
        if (
            execution is None
            and len(others) == 1
            and (schedule is None or schedule.next_after(at - _TICK) != at)
        ):
            # Who names the instant of a trigger or a backfill means that.
            execution = others[0]
        if execution is not None:
            told = _of_execution(execution, now) | await why_held(self._store, execution)
            told = _with_override(told, override)
            if execution.state is State.SKIPPED and (
                refused := [each for each in upstreams if not each.is_satisfied]
            ):
                named = ", ".join(f"{each.job} {each.state}" for each in refused)
                told["sentence"] = f"{told['sentence'].removesuffix('.')} ({named})."
            if (wait := await why_not_started(self._store, execution, now)) is not None:
                told["sentence"] = told["sentence"].replace(" for a worker", "") + f" {wait}"
            return Explanation(**facts | told)
        if rule is not None and job.deleted_at is None:
            return Explanation(**facts | told_waiting(upstreams, at))
        verdict, reason, sentence = await self._without_execution(job, schedule, at, now)
        if verdict == "planned" and override is not None:
            verdict, reason, sentence = _foreseen(override, sentence, now)
        if at > now and (idle := why_idle(job)) is not None:
            sentence = f"{sentence} {idle[0].upper()}{idle[1:]}."
        return Explanation(**facts, verdict=verdict, reason=reason, sentence=sentence)

    def _in_gap(self, job: Job, text: str, zone: tzinfo, why: str, schedule: Schedule | None) -> Explanation:
        """A wall-clock time that the clock jumped over is no instant; what became of the schedule there is told."""
        wall = datetime.fromisoformat(text.strip()).replace(tzinfo=zone)
        change = zones.jump(wall)
        effects = [
            effect
            for kind in (() if schedule is None else schedule.kinds)
            if isinstance(kind, CronTimes | RuleTimes) and (effect := effect_of(kind, change)) is not None
        ]
        return Explanation(
            job_id=str(job.id),
            at=change.at,
            local=wall.replace(tzinfo=None).isoformat(),
            verdict="skipped" if any("left out" in effect for effect in effects) else "not_a_slot",
            reason="dst_gap",
            sentence=f"{why}. {'; '.join(effects) or 'The schedule has no slot there'}.",
            schedule=None if schedule is None else describe(schedule),
            **_neighbours(schedule, change.at, after=change.at - _TICK),
        )

    async def _without_execution(
        self, job: Job, schedule: Schedule | None, at: datetime, now: datetime
    ) -> tuple[Verdict, str | None, str]:
        when = instants.write(at)
        if at < job.created_at:
            return (
                "not_a_slot",
                "not_created",
                f"The job did not exist yet: it was made at {instants.write(job.created_at)}.",
            )
        if job.deleted_at is not None and at >= job.deleted_at:
            return "not_a_slot", "deleted", f"The job was deleted at {instants.write(job.deleted_at)}."
        if schedule is None and job.state == "finished":
            return "not_a_slot", "ended", "The job was finished: it had no further slot."
        if schedule is None:
            return (
                "not_a_slot",
                "no_schedule",
                "The job had no schedule then: it ran only when it was triggered.",
            )
        if schedule.delay is not None:
            after = f"its slots come {durations.write(schedule.delay)} after each execution has finished"
            return "not_a_slot", "after_finish", f"No execution has the slot {when}; {after}."
        if schedule.next_after(at - _TICK) != at:
            return _not_a_slot(schedule, at)
        skips = await self._store.skips_over(job.tenant_id, job.id, at)
        if skips:
            reason = skips[-1].reason
            return "skipped", reason, f"The slot was skipped: {_WHY_SKIPPED.get(reason, reason)}."
        if job.state == "paused" and job.paused_at is not None and at >= job.paused_at:
            is_over = job.paused_until is not None and at >= job.paused_until
            if not is_over:
                note = f" ({job.pause_note})" if job.pause_note else ""
                tense = "was" if at <= now else "will be"
                return "skipped", "paused", f"The slot {tense} skipped: the job is paused{note}."
        if at > now:
            if job.state == "finished" or job.runs_left == 0:
                return "not_a_slot", "ended", "The job is finished: it has run as often as it may."
            return (
                "planned",
                None,
                f"The slot is {_away(at - now)} away; it will be staged about a minute ahead.",
            )
        return _no_record(job, at)


def _read(text: str, zone: tzinfo, schedule: Schedule | None) -> datetime | str:
    """The instant that is meant; or, for a wall-clock time that does not exist, why there is none."""
    stripped = text.strip()
    try:
        return instants.parse(stripped, zone if schedule is not None else None)
    except ValueError as error:
        if "does not exist" in str(error):
            return f"{stripped} does not exist in {zone}: the clock jumped over it"
        raise errors.Invalid.field("at", str(error), accepted=instants.ACCEPTED) from None


def _neighbours(schedule: Schedule | None, at: datetime, *, after: datetime | None = None) -> dict[str, Any]:
    """The slots before and after a time; with `after`, a slot at the time itself is one after it."""
    if schedule is None or schedule.delay is not None:
        return {}
    return {"previous_slot": previous(schedule, at), "next_slot": schedule.next_after(after or at)}


def _of_execution(execution: Execution, now: datetime) -> dict[str, Any]:
    """The verdict of a slot that has a row."""
    view = execution_view(execution)
    ran = None
    if execution.started_at is not None and execution.finished_at is not None:
        ran = round((execution.finished_at - execution.started_at) / timedelta(milliseconds=1), 3)
    fields: dict[str, Any] = {
        "execution": view,
        "reason": execution.reason,
        "lateness_ms": view.lateness_ms,
        "ran_ms": ran,
    }
    state = execution.state
    if state is State.SKIPPED:
        why = _WHY_SKIPPED.get(execution.reason or "", execution.reason or "no reason was kept")
        return fields | {"verdict": "skipped", "sentence": f"The slot was skipped: {why}."}
    if state is State.CANCELLED:
        why = f" ({execution.reason})" if execution.reason else ""
        return fields | {"verdict": "cancelled", "sentence": f"The execution was cancelled{why}."}
    if state is State.PENDING or execution.started_at is None:
        if execution.ready_at > now:
            text = f"The slot is staged and starts in {_away(execution.ready_at - now)}."
        else:
            text = f"The slot is staged and has waited for a worker for {_away(now - execution.ready_at)}."
        return fields | {"verdict": "staged", "sentence": text}
    start = _told_start(execution)
    if state is State.RUNNING:
        running = _away(now - execution.started_at)
        if execution.callback_until is not None:
            until = instants.write(execution.callback_until)
            text = f"{start}; it was taken up, and has waited for its callback for {running}, until {until} at the latest."
            return fields | {"verdict": "running", "sentence": text}
        return fields | {"verdict": "running", "sentence": f"{start}; it has run for {running}."}
    tries = "at the first attempt" if execution.attempt == 1 else f"after {execution.attempt} attempts"
    how = {State.SUCCEEDED: f"succeeded {tries}", State.FAILED: f"failed {tries}"}.get(
        state, f"waits for attempt {execution.attempt + 1}"
    )
    error = f": {execution.error.splitlines()[0]}" if execution.error and state is not State.SUCCEEDED else ""
    took = "" if ran is None else f", having run for {_away(timedelta(milliseconds=ran))}"
    return fields | {"verdict": "executed", "sentence": f"{start} and {how}{took}{error}."}


def _with_override(found: dict[str, Any], override: Override | None) -> dict[str, Any]:
    """What became of a slot, with who decided about it and why. One that was not applied had no part in it."""
    if override is None or override.applied_at is None:
        return found
    told = told_override(override)
    if found["reason"] == "override" and found["verdict"] == "skipped":
        return found | {"sentence": f"The slot is skipped: {told}."}
    return found | {"sentence": f"{found['sentence']} {told[0].upper()}{told[1:]}."}


def _foreseen(override: Override, sentence: str, now: datetime) -> tuple[Verdict, str | None, str]:
    """What will become of a slot that an override waits for."""
    told = told_override(override)
    if has_expired(override, now):
        return "planned", None, f"{sentence} That {told} has expired, and does nothing."
    if override.action == "skip":
        return "skipped", "override", f"The slot will be skipped: {told}."
    return "planned", None, f"{sentence} {told[0].upper()}{told[1:]}."


def told_override(override: Override) -> str:
    """Who decided what about a slot, and why."""
    what = {
        "skip": "skips it",
        "move": f"moves it to {instants.write(override.ready_at)}" if override.ready_at else "moves it",
        "payload": "gives it another payload",
    }[override.action]
    who = f" by {override.author}" if override.author else ""
    why = f" ({override.note})" if override.note else ""
    return f"an override{who} {what}{why}"


def _told_start(execution: Execution) -> str:
    assert execution.started_at is not None
    started = instants.write(execution.started_at)
    if execution.reason == "moved" and execution.attempt == 1:
        late = execution.started_at - execution.ready_at
        punctually = "on time" if late <= _SOON else f"{_away(late)} late"
        return f"It started {punctually} where it was moved to, at {started}"
    late = execution.started_at - execution.key.slot
    if execution.attempt > 1:
        return f"The latest attempt started at {started}"
    if execution.key.kind is Kind.DEPENDENCY:
        return f"It started at {started}, once what it follows had ended"
    if execution.reason in ("rerun", "redriven"):
        return f"It was run again, and started at {started}"
    if late <= _SOON:
        return f"It started on time, at {started}"
    waited = execution.ready_at - execution.key.slot
    cause = ""
    if execution.reason == "catch_up":
        cause = ", caught up after it was missed"
    elif execution.held_by is not None and execution.held_until == execution.ready_at:
        cause = f", held back until {execution.held_by} could take it"
    elif waited >= late - _SOON:
        cause = ", at the job's place in its window"
    elif execution.claimed_at is not None and execution.claimed_at > execution.ready_at:
        waited = execution.claimed_at - execution.ready_at
        cause = f", having waited {_away(waited)} for a worker, or for its turn where its job, group or tenant is limited"
    return f"It started {_away(late)} after its slot, at {started}{cause}"


def _not_a_slot(schedule: Schedule, at: datetime) -> tuple[Verdict, str | None, str]:
    when = instants.write(at)
    if (refused := schedule.refusal(at)) is not None:
        reason, why = refused
        moved = None
        if schedule.filter is not None and schedule.filter.shift is not None:
            moved = schedule.filter.moved(at, schedule.zone)
        where = f"; it is moved to {instants.write(moved)}" if moved is not None and moved != at else ""
        return "skipped", reason, f"The slot is left out: {why}{where}."
    if schedule.end is not None and at > schedule.end:
        return "not_a_slot", "ended", f"The schedule ended at {instants.write(schedule.end)}."
    if schedule.start is not None and at < schedule.start:
        return "not_a_slot", "not_started", f"The schedule begins at {instants.write(schedule.start)}."
    return "not_a_slot", None, f"{when} is not a slot of the schedule: {describe(schedule)}."


def _no_record(job: Job, at: datetime) -> tuple[Verdict, str | None, str]:
    if job.state == "finished":
        return "not_a_slot", "ended", "The job had run as often as it may, or had no further slot."
    text = (
        f"{instants.write(at)} was a slot of the schedule, but there is no record of it: "
        "its day is past retention, or it has not been accounted for yet."
    )
    return "no_record", None, text


def _away(length: timedelta) -> str:
    """A length for people: milliseconds below a second, whole seconds above."""
    if length < timedelta(seconds=1):
        return f"{length / timedelta(milliseconds=1):.0f} ms"
    return durations.write(timedelta(seconds=round(length.total_seconds())))
