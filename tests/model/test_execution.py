"""Executions: ids that name job, kind and slot, and the states that follow each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cronwell import errors
from cronwell.model.execution import (
    CLAIMABLE,
    OPEN,
    TERMINAL,
    TRANSITIONS,
    ExecutionKey,
    Kind,
    State,
)

JOB = UUID("0189abcd-0000-7000-8000-00000000000f")

offsets = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
slots = st.datetimes(
    datetime(1970, 1, 2),  # noqa: DTZ001  # Hypothesis adds the zone
    datetime(2100, 12, 31),  # noqa: DTZ001
    timezones=offsets | st.just(UTC),
)
keys = st.builds(ExecutionKey, st.uuids(), st.sampled_from(Kind), slots)


@given(keys)
def test_an_id_is_read_back_as_the_key_that_made_it(key: ExecutionKey) -> None:
    assert ExecutionKey.parse(str(key)) == key


@given(keys, keys)
def test_two_executions_never_share_an_id(one: ExecutionKey, other: ExecutionKey) -> None:
    assert (str(one) == str(other)) == (one == other)


@given(keys, offsets)
def test_the_same_instant_in_another_zone_is_the_same_execution(key: ExecutionKey, zone: timezone) -> None:
    moved = ExecutionKey(key.job_id, key.kind, key.slot.astimezone(zone))
    assert str(moved) == str(key)


def test_an_id_shows_its_parts_and_only_the_fraction_that_there_is() -> None:
    slot = datetime(2026, 5, 5, 3, tzinfo=UTC)
    assert str(ExecutionKey(JOB, Kind.SCHEDULED, slot)) == f"{JOB.hex}-s-20260505T030000Z"
    late = slot + timedelta(microseconds=70)
    assert str(ExecutionKey(JOB, Kind.MANUAL, late)) == f"{JOB.hex}-m-20260505T030000000070Z"


@given(st.text() | st.from_regex(r"[0-9a-f]{30,33}-[e-l]-[0-9TZ]{14,24}", fullmatch=True))
@example(f"{JOB.hex}-s-20260230T000000Z")  # no such day
@example(f"{JOB.hex}-s-20260505T240000Z")
@example(f"{JOB.hex}-s-00000101T000000Z")
@example(f"{JOB.hex}-x-20260505T030000Z")
@example(f"{JOB.hex.upper()}-s-20260505T030000Z")
@example(f"{JOB.hex}-s-20260505T030000Z\n")
@example(f"{JOB.hex}-s-" + "\N{ARABIC-INDIC DIGIT TWO}" * 4 + "0505T030000Z")
@example(str(JOB))
@example("")
def test_what_is_no_id_is_not_found(junk: str) -> None:
    with pytest.raises(errors.NotFound, match="no execution has the id"):
        ExecutionKey.parse(junk)


def test_every_state_is_open_or_terminal_and_has_its_transitions() -> None:
    assert set(State) == OPEN | TERMINAL == set(TRANSITIONS)
    assert not OPEN & TERMINAL
    assert OPEN - {State.RUNNING} == CLAIMABLE


def test_what_has_ended_runs_again_or_waits_for_that_and_nothing_else() -> None:
    assert all(State.PENDING in TRANSITIONS[state] for state in TERMINAL)
    assert all(TRANSITIONS[state] <= {State.PENDING, State.SKIPPED} for state in TERMINAL)


def test_every_open_state_can_end_and_only_claims_lead_to_running() -> None:
    reachable = {state: set(TRANSITIONS[state]) for state in State}
    assert {state for state, to in reachable.items() if State.RUNNING in to} == set(CLAIMABLE)
    assert all(reachable[state] & TERMINAL for state in OPEN)
    assert all(state not in to for state, to in reachable.items())
