"""Retries: how the delay grows, what bounds it, and when there is none."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell.model.execution import Result
from cronwell.model.job import OutcomeRule, RetryPolicy
from cronwell.model.retry import next_delay, policy_of

RETRIED = (Result.FAILED, Result.TIMED_OUT, Result.WORKER_LOST)

spans = st.timedeltas(min_value=timedelta(), max_value=timedelta(days=7))
rules = st.builds(
    OutcomeRule,
    retry=st.booleans(),
    max_attempts=st.none() | st.integers(1, 100),
    initial_delay=st.none() | spans,
)
fractions = st.floats(0, 1, exclude_max=True)


@st.composite
def policies(draw: st.DrawFn) -> RetryPolicy:
    initial, longest = sorted((draw(spans), draw(spans)))
    return RetryPolicy(
        max_attempts=draw(st.integers(1, 100)),
        backoff=draw(st.sampled_from(("exponential", "linear", "fixed"))),
        initial_delay=initial,
        max_delay=longest,
        jitter=draw(st.floats(0, 1)),
        outcomes=draw(st.dictionaries(st.sampled_from(("failed", "timed_out", "worker_lost")), rules)),
    )


def seconds(
    backoff: Literal["exponential", "linear", "fixed"], initial: float, longest: float, attempts: int
) -> list[float]:
    policy = RetryPolicy(
        max_attempts=attempts + 1,
        backoff=backoff,
        initial_delay=timedelta(seconds=initial),
        max_delay=timedelta(seconds=longest),
        jitter=0,
    )
    delays = [next_delay(policy, Result.FAILED, attempt) for attempt in range(1, attempts + 1)]
    return [delay.total_seconds() for delay in delays if delay is not None]


def test_an_exponential_backoff_doubles_up_to_its_cap() -> None:
    assert seconds("exponential", 10, 100, 6) == [10, 20, 40, 80, 100, 100]


def test_a_linear_backoff_grows_by_its_first_delay() -> None:
    assert seconds("linear", 10, 35, 5) == [10, 20, 30, 35, 35]


def test_a_fixed_backoff_does_not_grow() -> None:
    assert seconds("fixed", 10, 100, 3) == [10, 10, 10]


def test_the_default_policy_makes_three_retries() -> None:
    made = [next_delay(RetryPolicy(), Result.FAILED, attempt) is not None for attempt in (1, 2, 3, 4, 5)]
    assert made == [True, True, True, False, False]


@pytest.mark.parametrize("result", [Result.SUCCEEDED, Result.CANCELLED])
def test_what_succeeded_or_was_cancelled_is_not_tried_again(result: Result) -> None:
    assert next_delay(RetryPolicy(), result, 1) is None


def test_what_cannot_be_helped_is_not_tried_again() -> None:
    assert next_delay(RetryPolicy(), Result.FAILED, 1, is_retryable=False, retry_after=timedelta(1)) is None


def test_a_rule_changes_only_the_outcome_that_it_names() -> None:
    policy = RetryPolicy(
        backoff="fixed",
        jitter=0,
        outcomes={
            "worker_lost": OutcomeRule(initial_delay=timedelta(), max_attempts=2),
            "timed_out": OutcomeRule(retry=False),
        },
    )
    assert next_delay(policy, Result.WORKER_LOST, 1) == timedelta()
    assert next_delay(policy, Result.WORKER_LOST, 2) is None
    assert next_delay(policy, Result.TIMED_OUT, 1) is None
    assert next_delay(policy, Result.FAILED, 3) == policy.initial_delay


def test_a_rule_s_first_delay_grows_like_any_other_and_keeps_to_the_cap() -> None:
    policy = RetryPolicy(
        jitter=0,
        max_delay=timedelta(seconds=90),
        outcomes={"failed": OutcomeRule(initial_delay=timedelta(seconds=60))},
    )
    assert next_delay(policy, Result.FAILED, 1) == timedelta(seconds=60)
    assert next_delay(policy, Result.FAILED, 2) == timedelta(seconds=90)


def test_an_attempt_that_was_never_made_has_no_delay() -> None:
    with pytest.raises(ValueError, match="counts from 1"):
        next_delay(RetryPolicy(), Result.FAILED, 0)


@given(policies(), st.sampled_from(Result), st.integers(1, 120), fractions)
def test_a_delay_is_never_negative_nor_beyond_max_delay(
    policy: RetryPolicy, result: Result, attempt: int, random: float
) -> None:
    delay = next_delay(policy, result, attempt, random=random)
    assert delay is None or timedelta() <= delay <= policy.max_delay


@given(policies(), st.sampled_from(RETRIED), st.integers(1, 100), fractions)
def test_jitter_takes_away_at_most_its_share(
    policy: RetryPolicy, result: Result, attempt: int, random: float
) -> None:
    whole = next_delay(policy, result, attempt, random=0)
    spread = next_delay(policy, result, attempt, random=random)
    if whole is None or spread is None:
        assert whole is spread
        return
    slack = timedelta(microseconds=1)
    assert whole * (1 - policy.jitter) - slack <= spread <= whole


@given(policies(), st.sampled_from(RETRIED), st.integers(1, 100), fractions, spans)
def test_the_target_s_wish_to_wait_is_never_undercut_and_changes_nothing_else(
    policy: RetryPolicy, result: Result, attempt: int, random: float, retry_after: timedelta
) -> None:
    plain = next_delay(policy, result, attempt, random=random)
    asked = next_delay(policy, result, attempt, random=random, retry_after=retry_after)
    assert asked == (None if plain is None else max(plain, retry_after))


@given(policies(), st.sampled_from(RETRIED))
def test_delays_do_not_shrink_and_end_for_good_at_the_last_attempt(
    policy: RetryPolicy, result: Result
) -> None:
    delays = [next_delay(policy, result, attempt) for attempt in range(1, 102)]
    rule = {str(outcome): rule for outcome, rule in policy.outcomes.items()}.get(result)
    limit = policy.max_attempts if rule is None or rule.max_attempts is None else rule.max_attempts
    expected = 0 if rule is not None and not rule.retry else limit - 1
    made = [delay for delay in delays if delay is not None]
    assert len(made) == expected
    assert delays[len(made) :] == [None] * (len(delays) - len(made))
    assert all(first <= second for first, second in pairwise(made))


@pytest.mark.parametrize(
    ("definition", "attempts"),
    [
        ('{"name": "a"}', RetryPolicy().max_attempts),
        ('{"name": "a", "retry": {"max_attempts": 9}, "of_a_newer_release": 1}', 9),
        ('{"name": "a", "retry": {"of_a_newer_release": 1}}', RetryPolicy().max_attempts),
    ],
)
def test_a_policy_is_found_also_in_a_definition_of_a_newer_release(definition: str, attempts: int) -> None:
    assert policy_of(definition).max_attempts == attempts
