"""When, and whether, a failed attempt is tried again."""

from __future__ import annotations

import json
from datetime import timedelta

from pydantic import ValidationError

from cronwell.model.execution import Result, State
from cronwell.model.job import OutcomeRule, RetriedOutcome, RetryPolicy

_AS_IN_POLICY = OutcomeRule()
_RETRIED: dict[Result, RetriedOutcome] = {
    Result.FAILED: "failed",
    Result.TIMED_OUT: "timed_out",
    Result.WORKER_LOST: "worker_lost",
}
_MICROSECOND = timedelta(microseconds=1)


def policy_of(definition: str) -> RetryPolicy:
    """The retry policy of a job's definition, as JSON text; the default where this release cannot read it, as one of a newer
    release may be: what goes by it must not stop for one job."""
    try:
        return RetryPolicy.model_validate(json.loads(definition).get("retry") or {})
    except ValidationError:
        return RetryPolicy()


def next_delay(
    policy: RetryPolicy,
    result: Result,
    attempt: int,
    *,
    retry_after: timedelta | None = None,
    is_retryable: bool = True,
    random: float = 0.0,
) -> timedelta | None:
    """Return how long to wait before the next attempt, or None where there is none.

    `attempt` counts the attempts made so far. `random`, in [0, 1), takes away up to the policy's jitter share of the
    delay: subtracting keeps a herd spread even where the delay has reached `max_delay`. `retry_after`, what the target
    asked for, is never undercut, not even by `max_delay`.
    """
    if attempt < 1:
        raise ValueError(f"attempt counts from 1, not {attempt}")
    outcome = _RETRIED.get(result)
    if outcome is None or not is_retryable:
        return None
    rule = policy.outcomes.get(outcome, _AS_IN_POLICY)
    max_attempts = policy.max_attempts if rule.max_attempts is None else rule.max_attempts
    if not rule.retry or attempt >= max_attempts:
        return None
    initial = policy.initial_delay if rule.initial_delay is None else rule.initial_delay
    delay = min(_grown(policy, initial, attempt), policy.max_delay)
    delay -= delay * (policy.jitter * random)
    return max(delay, retry_after or delay, timedelta())


def what_follows(
    policy: RetryPolicy,
    result: Result,
    attempt: int,
    *,
    is_cancelled: bool,
    retry_after: timedelta | None = None,
    is_retryable: bool = True,
    random: float = 0.0,
) -> tuple[State, timedelta | None]:
    """Return what an execution becomes when an attempt has ended, and how long after that the next one is due.

    `is_cancelled`: somebody asked for the execution to be cancelled, so that only a success counts. The rest is as for
    `next_delay`.
    """
    if result is Result.SUCCEEDED:
        return State.SUCCEEDED, None
    if result is Result.CANCELLED or is_cancelled:
        return State.CANCELLED, None
    delay = next_delay(
        policy, result, attempt, retry_after=retry_after, is_retryable=is_retryable, random=random
    )
    return (State.FAILED if delay is None else State.RETRYING), delay


def _grown(policy: RetryPolicy, initial: timedelta, attempt: int) -> timedelta:
    """The delay before cap and jitter. In whole microseconds, which do not overflow as a timedelta would."""
    step = initial // _MICROSECOND
    if policy.backoff == "exponential":
        step <<= attempt - 1
    elif policy.backoff == "linear":
        step *= attempt
    return min(step, policy.max_delay // _MICROSECOND) * _MICROSECOND
