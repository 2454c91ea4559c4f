"""What becomes of each coming slot of a job: the heart of staging, as a pure function.

A *plan* is what staging needs to know of a job, compiled from its definition and kept as a short text beside the job's
cursor; a herd of like jobs shares that text, so it is parsed once. `plan_slots` walks from the cursor to the horizon and
gives each slot on the way exactly one verdict:

- a slot ahead, or late by no more than the grace, is staged for its instant;
- a slot missed by more than that (nobody staged it in time: every scheduler was down) is judged by `catch_up`: run the
  last one, run them all, or none, within `catch_up_window`; each one not run is skipped with a reason;
- more missed slots than are worth a row each are skipped as one range.

The caller writes executions, ranges and the new cursor in one transaction. Nothing here reads a clock.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal
from uuid import UUID

from cronwell.model.execution import State
from cronwell.model.job import JobSpec, Queueing
from cronwell.model.schedule import Schedule, effective_at, load, next_slot, slots

CatchUp = Literal["none", "last", "all"]

PRIORITIES = {"high": 0, "normal": 1, "low": 2}
LOWEST_PRIORITY = 2
LONGEST_DEFAULT_WINDOW = timedelta(hours=1)
SLOTS_AT_ONCE = 1000
"""Slots of one job staged in one pass; a job with more comes up again at once."""
ROWS_FOR_MISSED = 100
"""Missed slots beyond this many are skipped as a range."""
COUNTED = 10_000
"""A longer range of missed slots is kept without their number, which can be worked out when asked for."""

CATCH_UP = "catch_up"
"""The reason of a missed slot's verdict: why it is skipped, or why it runs after its time."""

_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Plan:
    """What staging needs to know of a job."""

    schedule: Schedule
    pool: str = "default"
    priority: int = 1
    running_limit: int | None = 1
    catch_up: CatchUp = "last"
    catch_up_window: timedelta | None = None
    catch_up_limit: int = 100
    queueing: Queueing | None = None
    """How a slot beyond the limit waits; None where it is skipped."""
    group: tuple[str, int] | None = None
    """The name of its group, and how many of it may run."""
    is_followed: bool = False
    """Other jobs wait for the end of its executions."""
    _text: str | None = field(default=None, init=False, repr=False, compare=False)

    def canonical(self) -> str:
        """A short stable text from which `load_plan` makes the same plan. Defaults are left out."""
        if self._text is None:
            object.__setattr__(self, "_text", self._written())
        assert self._text is not None
        return self._text

    def _written(self) -> str:
        window = self.catch_up_window
        parts: tuple[tuple[str, Any, Any], ...] = (
            ("pool", self.pool, "default"),
            ("priority", self.priority, 1),
            ("limit", self.running_limit, 1),
            ("catch_up", self.catch_up, "last"),
            ("window", None if window is None else window // _TICK, None),
            ("catch_up_limit", self.catch_up_limit, 100),
            ("queueing", self.queueing, None),
            ("group", self.group, None),
            ("followed", self.is_followed, False),
        )
        said = tuple((name, value) for name, value, default in parts if value != default)
        return _canonical(self.schedule.canonical(), said)


@dataclass(frozen=True, slots=True)
class PlannedSlot:
    """A slot that gets a row: staged to run, or skipped with a reason."""

    slot: datetime
    ready_at: datetime
    state: State = State.PENDING
    reason: str | None = None

    @property
    def is_caught_up(self) -> bool:
        """Whether it runs although it was missed."""
        return self.reason == CATCH_UP and self.state is State.PENDING

    payload: str | None = None
    """As JSON text, in place of the job's own."""


@dataclass(frozen=True, slots=True)
class SkippedRange:
    """Slots from one to another, both included, that are not run, for one reason."""

    from_slot: datetime
    to_slot: datetime
    reason: str
    slots: int | None = None


@dataclass(frozen=True, slots=True)
class Staging:
    """The verdicts of the slots passed, and where the cursor stands after them."""

    planned: list[PlannedSlot]
    ranges: list[SkippedRange]
    next_slot: datetime | None
    runs_left: int | None = None
    """How many more slots may be run; None for any number."""
    awaits: bool = False
    """The job goes on when the execution of `next_slot`, which is staged, has ended."""


def plan_of(spec: JobSpec, schedule: Schedule) -> Plan:
    """Compile a job's definition."""
    return Plan(
        schedule=schedule,
        pool=spec.pool,
        priority=PRIORITIES[spec.priority],
        running_limit=spec.running_limit,
        catch_up=spec.catch_up,
        catch_up_window=spec.catch_up_window,
        catch_up_limit=spec.catch_up_limit,
        queueing=spec.queueing,
        group=spec.group_limit,
    )


@lru_cache(maxsize=16_384)
def _canonical(schedule: str, parts: tuple[tuple[str, Any], ...]) -> str:
    return json.dumps(
        {"schedule": json.loads(schedule), **dict(parts)}, separators=(",", ":"), sort_keys=True
    )


@lru_cache(maxsize=65_536)
def load_plan(text: str) -> Plan:
    """Read a plan back from its canonical text."""
    parts = json.loads(text)
    window = parts.get("window")
    return Plan(
        schedule=load(json.dumps(parts["schedule"], separators=(",", ":"), sort_keys=True)),
        pool=parts.get("pool", "default"),
        priority=parts.get("priority", 1),
        running_limit=parts.get("limit", 1),
        catch_up=parts.get("catch_up", "last"),
        catch_up_window=None if window is None else timedelta(microseconds=window),
        catch_up_limit=parts.get("catch_up_limit", 100),
        queueing=parts.get("queueing"),
        group=None if "group" not in parts else (parts["group"][0], parts["group"][1]),
        is_followed=parts.get("followed", False),
    )


def plan_slots(  # noqa: PLR0913  # each is a fact of its own, and all but three are named
    plan: Plan,
    job_id: UUID,
    cursor: datetime,
    *,
    now: datetime,
    until: datetime,
    grace: timedelta,
    runs_left: int | None = None,
    left_out: Collection[datetime] = (),
) -> Staging:
    """Give each slot from `cursor` up to `until` its verdict.

    Slots beyond `SLOTS_AT_ONCE` wait for the next pass; the cursor that comes back says where that starts. Where
    `runs_left` is given, no more slots than that are run, and the job ends with the last of them; the slots `left_out`,
    which have their verdict already, use up none.
    """
    if plan.schedule.delay is not None:
        return _plan_one(cursor, now=now, until=until, grace=grace, runs_left=runs_left)
    staging = _plan_all(plan, job_id, cursor, now=now, until=until, grace=grace)
    return staging if runs_left is None else _cut(staging, runs_left, left_out)


def _plan_one(
    cursor: datetime, *, now: datetime, until: datetime, grace: timedelta, runs_left: int | None
) -> Staging:
    """The one slot of a job that waits for its execution's end before it has another. Late, it runs all the same."""
    if cursor > until:
        return Staging([], [], cursor, runs_left)
    if runs_left == 0:
        return Staging([], [], None, 0)
    is_late = cursor <= now - grace
    planned = PlannedSlot(cursor, now if is_late else cursor, reason=CATCH_UP if is_late else None)
    return Staging([planned], [], cursor, None if runs_left is None else runs_left - 1, awaits=True)


def _cut(staging: Staging, runs_left: int, left_out: Collection[datetime]) -> Staging:
    """Leave off everything after the last slot that may still be run."""
    kept: list[PlannedSlot] = []
    for each in staging.planned:
        if each.slot in left_out:
            continue
        if each.state is State.PENDING:
            if not runs_left:
                break
            runs_left -= 1
        kept.append(each)
    return Staging(kept, staging.ranges, staging.next_slot if runs_left else None, runs_left)


def _plan_all(
    plan: Plan, job_id: UUID, cursor: datetime, *, now: datetime, until: datetime, grace: timedelta
) -> Staging:
    missed_until = now - grace
    planned: list[PlannedSlot] = []
    ranges: list[SkippedRange] = []
    at: datetime | None = cursor
    if cursor <= missed_until <= until:
        # A change of a zone's rules may have left the cursor where there is no slot any more.
        first = plan.schedule.next_after(cursor - _TICK)
        if first is not None and first <= missed_until:
            planned, ranges = _judge_missed(plan, first, missed_until, now)
        at = plan.schedule.next_after(missed_until)
    text = plan.schedule.canonical()
    while at is not None and at <= until and len(planned) < SLOTS_AT_ONCE:
        planned.append(PlannedSlot(at, effective_at(plan.schedule, job_id, at)))
        at = next_slot(text, at)
    return Staging(planned, ranges, at)


def _judge_missed(
    plan: Plan, first: datetime, last: datetime, now: datetime
) -> tuple[list[PlannedSlot], list[SkippedRange]]:
    """Apply the catch-up policy to the slots from `first` to `last`, both included."""
    schedule = plan.schedule
    wanted = {"none": 0, "last": 1, "all": plan.catch_up_limit}[plan.catch_up]
    tail, before = _missed(schedule.canonical(), first, last, max(wanted, ROWS_FOR_MISSED))
    oldest = now - _window(plan, tail[-1])
    run = [slot for slot in tail[-wanted:] if slot >= oldest] if wanted else []
    first_run = run[0] if run else None
    planned = [
        PlannedSlot(slot, now, reason=CATCH_UP)
        if first_run is not None and slot >= first_run
        else PlannedSlot(slot, slot, State.SKIPPED, CATCH_UP)
        for slot in tail
    ]
    return planned, [] if before is None else [before]


@lru_cache(maxsize=256)
def _missed(
    text: str, first: datetime, last: datetime, wanted: int
) -> tuple[tuple[datetime, ...], SkippedRange | None]:
    """The last slots from `first` to `last`, so many, and the range of those before them; a herd that shares the text and missed
    the same slots has them searched and counted once."""
    schedule = load(text)
    tail = _last_slots(schedule, first, last, wanted)
    if tail[0] == first:
        return tuple(tail), None
    # The tail does not reach back to the first missed slot: the rest is one range.
    before = slots(schedule, first - _TICK, tail[0] - _TICK, COUNTED + 1)
    count = len(before) if len(before) <= COUNTED else None
    end = before[-1] if count is not None else tail[0] - _TICK
    return tuple(tail), SkippedRange(first, end, CATCH_UP, count)


def _window(plan: Plan, slot: datetime) -> timedelta:
    """How old a missed slot may be and still run: by default its period, at most an hour; a one-off always runs."""
    if plan.catch_up_window is not None:
        return plan.catch_up_window
    if plan.schedule.is_one_off:
        return timedelta(days=36_525)
    if plan.catch_up == "all":
        return LONGEST_DEFAULT_WINDOW
    following = plan.schedule.next_after(slot)
    period = LONGEST_DEFAULT_WINDOW if following is None else following - slot
    return min(period, LONGEST_DEFAULT_WINDOW)


def _last_slots(schedule: Schedule, first: datetime, last: datetime, count: int) -> list[datetime]:
    """The last `count` slots from `first` to `last`, found by looking back further and further."""
    span = timedelta(seconds=count)
    while True:
        start = max(first, last - span)
        found = slots(schedule, start - _TICK, last, count * 4 + 1)
        if len(found) <= count * 4 and (len(found) >= count or start == first):
            return found[-count:]
        if len(found) > count * 4:
            # Denser than expected: keep walking from here, in steps, and remember only the end.
            return _walk_to_end(schedule, found, last, count)
        span *= 4


def _walk_to_end(schedule: Schedule, found: list[datetime], last: datetime, count: int) -> list[datetime]:
    kept = found
    while True:
        more = slots(schedule, kept[-1], last, 10_000)
        kept = (kept + more)[-count:]
        if len(more) < 10_000:
            return kept
