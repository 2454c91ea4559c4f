"""Whether what was seen of a job is an incident by a rule, in words. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from cronwell import durations
from cronwell.model.alerts import Condition, FailureRate, QueueDepth, Workers
from cronwell.model.execution import CLAIMABLE, State

NEWEST = 1000
"""So many of a job's executions are looked through for a rate of failures."""
LOOKED_AT = 100
"""And for anything else."""
_ENDED = (State.SUCCEEDED, State.FAILED)


@dataclass(frozen=True, slots=True)
class Run:
    """An execution, as far as a rule looks at it."""

    state: State
    slot: datetime
    ready_at: datetime
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Success:
    """What is known of a job's successes."""

    at: datetime | None
    """The newest, as far back as was looked."""
    is_known: bool
    """False where more executions without one were found than are looked through."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule makes of what it watches."""

    is_wrong: bool
    words: str
    """What is wrong, or how it stands now."""
    facts: dict[str, Any] = field(default_factory=dict)


def judge_runs(condition: Condition, runs: Sequence[Run], now: datetime) -> Verdict:
    """Judge a job by its executions, newest slot first."""
    if condition.consecutive_failures is not None:
        return _consecutive(condition.consecutive_failures, runs)
    if condition.failure_rate is not None:
        return _rate(condition.failure_rate, runs, now)
    if condition.late is not None:
        return _late(condition.late, runs, now)
    assert condition.running is not None
    return _running(condition.running, runs, now)


def judge_success(limit: timedelta, success: Success, since: datetime, now: datetime) -> Verdict | None:
    """Judge a job by its newest success; None where nothing can be said. Its time counts from `since` at the earliest."""
    if success.at is None and not success.is_known:
        return None
    seen = since if success.at is None else max(success.at, since)
    facts = {
        "last_success": None if success.at is None else _moment(success.at),
        "limit": durations.write(limit),
    }
    if now - seen > limit:
        last = "none is known" if success.at is None else f"the last was at {_moment(success.at)}"
        return Verdict(True, f"had no success within {durations.write(limit)}; {last}", facts)
    return Verdict(
        False, "succeeded again" if success.at is not None else "is not expected to have succeeded yet", facts
    )


def judge_dead(limit: int, count: int, counted: int) -> Verdict:
    """Judge how many dead letters there are; more than `counted` were not counted."""
    told = f"{counted} or more" if count >= counted else str(count)
    return Verdict(
        count > limit,
        f"{_count(told, 'dead letter')}, more than {limit} are too many",
        {"dead_letters": count},
    )


def judge_depth(limit: QueueDepth, depths: dict[str, int]) -> Verdict:
    """Judge how much is due and waits, by pool; counted no further than one beyond the limit."""
    depth = depths.get(limit.pool, 0) if limit.pool is not None else sum(depths.values())
    where = f" in the pool {limit.pool!r}" if limit.pool is not None else ""
    words = (
        f"more than {_count(str(limit.above), 'execution')} wait{where}"
        if depth > limit.above
        else f"{_count(str(depth), 'execution')} wait{where}"
    )
    return Verdict(depth > limit.above, words, {"above": limit.above, "pool": limit.pool})


def judge_workers(limit: Workers, living: int) -> Verdict:
    """Judge how many workers of a pool live."""
    words = f"{_count(str(living), 'worker')} of the pool {limit.pool!r}, where {limit.at_least} should be"
    return Verdict(living < limit.at_least, words, {"workers": living, "pool": limit.pool})


def _consecutive(limit: int, runs: Sequence[Run]) -> Verdict:
    ended = [run for run in runs if run.state in _ENDED]
    failed = next((place for place, run in enumerate(ended) if run.state is State.SUCCEEDED), len(ended))
    facts = {"consecutive_failures": failed}
    if failed >= limit:
        return Verdict(True, "failed" if failed == 1 else f"failed {failed} times in a row", facts)
    return Verdict(
        False, "succeeded again" if ended and not failed else f"failed {failed} times in a row", facts
    )


def _rate(limit: FailureRate, runs: Sequence[Run], now: datetime) -> Verdict:
    ended = [run for run in runs if run.state in _ENDED and run.slot > now - limit.over]
    failed = sum(run.state is State.FAILED for run in ended)
    words = f"{failed} of {_count(str(len(ended)), 'execution')} in {durations.write(limit.over)} failed"
    is_wrong = len(ended) >= limit.at_least and failed > limit.above * len(ended)
    return Verdict(is_wrong, words, {"failed": failed, "ended": len(ended), "above": limit.above})


def _late(limit: timedelta, runs: Sequence[Run], now: datetime) -> Verdict:
    waiting = max((now - run.ready_at for run in runs if run.state in CLAIMABLE), default=timedelta())
    started = next((run.started_at - run.ready_at for run in runs if run.started_at is not None), timedelta())
    facts = {"limit": durations.write(limit)}
    if waiting > limit:
        return Verdict(True, f"an execution waits {_length(waiting)} after its time", facts)
    if started > limit:
        return Verdict(True, f"started {_length(started)} after its time", facts)
    return Verdict(False, "is on time again", facts)


def _running(limit: timedelta, runs: Sequence[Run], now: datetime) -> Verdict:
    longest = max(
        (now - run.started_at for run in runs if run.state is State.RUNNING and run.started_at is not None),
        default=timedelta(),
    )
    facts = {"limit": durations.write(limit)}
    if longest > limit:
        return Verdict(True, f"has been running for {_length(longest)}", facts)
    return Verdict(False, f"no attempt runs for longer than {durations.write(limit)}", facts)


def _count(number: str, what: str) -> str:
    return f"{number} {what}" if number == "1" else f"{number} {what}s"


def _length(length: timedelta) -> str:
    """Whole seconds are enough for people."""
    return durations.write(timedelta(seconds=round(length.total_seconds())))


def _moment(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
