"""The rule of jobs that follow others, and the search for a job that would follow itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell import errors
from cronwell.model.dependencies import (
    UNSEEN,
    Mode,
    On,
    Seen,
    find_cycle,
    is_revivable,
    judge,
    satisfies,
)
from cronwell.model.execution import OPEN, TERMINAL, State
from cronwell.model.job import JobSpec
from cronwell.model.validation import validate

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
MODES: tuple[Mode, ...] = ("all", "any")
CONDITIONS: tuple[On, ...] = ("succeeded", "failed", "finished")


def seen(state: State | None, minutes: int = 0) -> Seen:
    if state is None:
        return UNSEEN
    return Seen(state, NOON + timedelta(minutes=minutes) if state in TERMINAL else None)


upstreams = st.lists(
    st.tuples(
        st.sampled_from(CONDITIONS),
        st.builds(seen, st.sampled_from([None, *State]), st.integers(0, 59)),
    ),
    min_size=1,
    max_size=5,
)


@given(st.sampled_from(MODES), upstreams)
def test_a_slot_runs_is_skipped_or_waits_and_waits_only_for_what_is_unfinished(
    mode: Mode, given_: list[tuple[On, Seen]]
) -> None:
    judged = judge(mode, timedelta(), given_)
    assert [judged.runs, judged.waits, judged.reason is not None].count(True) == 1
    if judged.waits:
        assert any(each.state in OPEN for _, each in given_)
    good = [satisfies(on, each) for on, each in given_]
    if judged.runs:
        assert any(good) if mode == "any" else all(good)
    if judged.reason is not None:
        assert not any(each.state in OPEN for _, each in given_)
        assert not (any(good) if mode == "any" else all(good))


@given(st.sampled_from(MODES), upstreams, st.integers(0, 4))
def test_what_was_decided_stays_decided_when_the_rest_has_ended(
    mode: Mode, given_: list[tuple[On, Seen]], minutes: int
) -> None:
    """An upstream that ends later changes no verdict, so that it does not matter when it is looked at."""
    judged = judge(mode, timedelta(), given_)
    later = [(on, each if each.has_ended else seen(State.FAILED, 60 + minutes)) for on, each in given_]
    if not judged.waits:
        assert judge(mode, timedelta(), later) == judged


def test_it_is_ready_after_the_last_of_all_and_the_first_of_any() -> None:
    ended: list[tuple[On, Seen]] = [
        ("succeeded", seen(State.SUCCEEDED, 7)),
        ("finished", seen(State.FAILED, 3)),
    ]
    delay = timedelta(minutes=5)
    assert judge("all", delay, ended).ready_at == NOON + timedelta(minutes=12)
    assert judge("any", delay, ended).ready_at == NOON + timedelta(minutes=8)


def test_what_was_skipped_for_others_may_be_revived_but_not_what_gave_up_waiting() -> None:
    assert is_revivable(State.SKIPPED, "upstream_failed")
    assert not is_revivable(State.SKIPPED, "upstream_timeout")
    assert not is_revivable(State.SKIPPED, "paused")
    assert not is_revivable(State.SUCCEEDED, "upstream_ended")
    assert not is_revivable(State.SKIPPED, None)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25))
def test_a_cycle_is_found_exactly_where_no_order_exists(edges: list[tuple[int, int]]) -> None:
    above: dict[int, list[int]] = {node: [] for node in range(10)}
    for dependent, upstream in edges:
        above[dependent].append(upstream)
    ordered: set[int] = set()
    while ready := {node for node in above if node not in ordered and ordered.issuperset(above[node])}:
        ordered |= ready
    cycle = find_cycle(above, above)
    assert (cycle is None) == (len(ordered) == 10)
    if cycle is not None:
        assert cycle[0] == cycle[-1]
        assert len(set(cycle)) == len(cycle) - 1
        # Each is followed by the next.
        assert all(one in above[other] for one, other in pairwise(cycle))


@pytest.mark.parametrize(
    ("after", "field", "words"),
    [
        ("extract", "after", "write a list such as"),
        (7, "after", "write a list such as"),
        ([], "after", "at least 1 item"),
        ([""], "after.0.job", "at least 1 character"),
        ([{"job": "a"}] * 2, "after", "list each job once"),
        ([{"job": "a", "on": "done"}], "after.0.on", "'succeeded', 'failed' or 'finished'"),
        ([{"job": "a", "om": "failed"}], "after.0.om", "unknown field; did you mean 'on'?"),
        ([{"on": "failed"}], "after.0.job", "is required"),
        ([{"job": 7}], "after.0.job", "valid string"),
        (["a"] * 101, "after", "at most 100 items"),
        ({}, "after", "give either `all` or `any`"),
        ({"all": ["a"], "any": ["b"]}, "after", "give either `all` or `any`"),
        ({"al": ["a"]}, "after.al", "unknown field; did you mean 'all'?"),
        ({"all": ["a"], "delay": 5}, "after.delay", "write a duration"),
        ({"all": ["a"], "delay": "8d"}, "after", "delay is at most 7d"),
        ({"all": ["a"], "delay": "soon"}, "after.delay", "duration"),
        ({"all": ["a"], "timeout": "1ms"}, "after", "timeout lies between 1s and 30d"),
        ({"all": ["a"], "timeout": "31d"}, "after", "timeout lies between 1s and 30d"),
    ],
)
def test_what_is_wrong_in_it_is_named(after: Any, field: str, words: str) -> None:
    raw = {"name": "load", "target": "https://example.com/run", "after": after}
    with pytest.raises(errors.Invalid) as refused:
        validate(JobSpec, raw)
    told = {problem.field: problem.message for problem in refused.value.problems}
    assert field in told, told
    assert words in told[field]


def test_a_job_has_a_schedule_or_follows_others() -> None:
    raw = {"name": "load", "target": "https://example.com/run", "after": ["a"], "schedule": "@hourly"}
    with pytest.raises(errors.Invalid, match="not both"):
        validate(JobSpec, raw)
