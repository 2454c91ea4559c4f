"""Clocks: the database's time told from the node's monotonic clock, late by a known little, never early."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell.runtime.clock import DRIFT, Clock, DatabaseClock, ManualClock, Offset, SystemClock
from cronwell.runtime.postgres import Database
from tests.support.waiting import until_async

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FLOAT_ERROR = 1e-6  # seconds since 1970 as a float, added and subtracted a few times

uptimes = st.floats(0, 1e7)
trips = st.floats(0, 2)
lengths = st.floats(0, 3600)


def unused(name: str, error: Exception, delay: float) -> None:
    raise AssertionError(f"{name}: {error}")


def measurement(true_offset: float, asked_at: float, there: float, back: float) -> Offset:
    """What is learnt when the question took `there` seconds and the answer `back`."""
    read_at = asked_at + there
    return Offset.of(asked_at, EPOCH + timedelta(seconds=true_offset + read_at), read_at + back)


@given(st.floats(1.7e9, 1.9e9), uptimes, trips, trips)
def test_one_answer_brackets_the_offset_and_is_as_wide_as_its_round_trip(
    truth: float, asked_at: float, there: float, back: float
) -> None:
    offset = measurement(truth, asked_at, there, back)
    assert offset.lowest - FLOAT_ERROR <= truth <= offset.highest + FLOAT_ERROR
    assert offset.highest - offset.lowest == pytest.approx(there + back, abs=FLOAT_ERROR)


@given(
    st.floats(1.7e9, 1.9e9),
    st.floats(-DRIFT, DRIFT),
    st.lists(st.tuples(trips, trips, lengths), min_size=1, max_size=8),
)
def test_more_answers_never_lose_the_truth_and_never_know_less_than_the_newest(
    truth: float, drift: float, answers: list[tuple[float, float, float]]
) -> None:
    moment, known = 1000.0, None
    for there, back, pause in answers:
        newest = measurement(truth, moment, there, back)
        known = newest if known is None else known.narrowed_by(newest)
        # The clocks also drift while the question is on its way, by next to nothing.
        slack = FLOAT_ERROR + DRIFT * 4
        assert known.lowest - slack <= truth <= known.highest + slack
        assert known.highest - known.lowest <= newest.highest - newest.lowest + FLOAT_ERROR
        moment += there + back + pause
        truth += (there + back + pause) * drift


@given(st.floats(1.7e9, 1.9e9), uptimes, trips, lengths, st.floats(-DRIFT, DRIFT))
def test_clocks_that_drift_apart_do_not_make_it_early(
    truth: float, asked_at: float, trip: float, later: float, drift: float
) -> None:
    offset = measurement(truth, asked_at, trip / 2, trip / 2)
    moment = offset.measured_at + later
    drifted = truth + later * drift
    assert offset.at(moment).lowest <= drifted + FLOAT_ERROR
    assert offset.at(moment).highest >= drifted - FLOAT_ERROR


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_a_database_whose_clock_was_set_is_believed(step: float) -> None:
    before = measurement(1.8e9, 100.0, 0.001, 0.001)
    after = measurement(1.8e9 + step, 110.0, 0.001, 0.001)
    assert before.narrowed_by(after) == after


def test_a_slow_answer_does_not_spoil_what_a_quick_one_told() -> None:
    quick = measurement(1.8e9, 100.0, 0.0001, 0.0001)
    slow = measurement(1.8e9, 101.0, 0.5, 0.5)
    both = quick.narrowed_by(slow)
    assert both.highest - both.lowest < 0.001


@given(st.floats(1.7e9, 1.9e9), trips, st.floats(-1e5, 1e5))
def test_the_instant_at_which_a_time_is_reached_is_the_inverse_of_now(
    truth: float, trip: float, ahead: float
) -> None:
    offset = measurement(truth, 5e5, trip / 2, trip / 2)
    clock = DatabaseClock(offset)
    at = EPOCH + timedelta(seconds=truth + 5e5 + ahead)
    reached_at = clock.monotonic_at(at)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: reached_at)
        assert timedelta() <= clock.now() - at <= timedelta(microseconds=3)


async def test_it_tells_the_database_s_time_and_is_never_ahead_of_it(database: Database) -> None:
    clock: Clock = await DatabaseClock.measured(database)
    for _ in range(200):
        ours = clock.now()
        theirs = await database.fetchval("select clock_timestamp()")
        assert ours <= theirs
        assert theirs - ours < timedelta(seconds=1)


async def test_it_says_how_far_it_may_be_behind(database: Database) -> None:
    clock = await DatabaseClock.measured(database)
    theirs = await database.fetchval("select clock_timestamp()")
    ours = clock.now()
    assert theirs - ours <= clock.uncertainty < timedelta(seconds=1)


async def test_the_node_s_own_wall_clock_is_never_asked(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> float:
        raise AssertionError("asked the wall clock")

    monkeypatch.setattr(time, "time", refuse)
    monkeypatch.setattr(time, "time_ns", refuse)
    clock = await DatabaseClock.measured(database)
    await clock.measure(database)
    assert clock.now().tzinfo is UTC


async def test_it_is_measured_again_and_again(database: Database) -> None:
    wrong = Offset.of(0.0, NOON - timedelta(days=1000), 0.001)
    clock = DatabaseClock(wrong)
    service = clock.keep_measured(database, on_error=unused, every=timedelta(milliseconds=1))
    assert service.name == "clock"

    async def is_right() -> bool:
        theirs: datetime = await database.fetchval("select clock_timestamp()")
        return abs(theirs - clock.now()) < timedelta(seconds=1)

    running = asyncio.create_task(service.run())
    await until_async(is_right)
    service.stop()
    await asyncio.wait_for(running, 5)


def test_the_system_clock_is_aware_and_consistent() -> None:
    clock: Clock = SystemClock()
    assert clock.now().tzinfo is UTC
    in_a_minute = clock.monotonic_at(clock.now() + timedelta(minutes=1))
    assert in_a_minute - time.monotonic() == pytest.approx(60, abs=1)
    assert clock.monotonic() <= time.monotonic()


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(NOON)
    start = clock.monotonic()
    assert clock.now() == NOON
    assert clock.monotonic_at(NOON + timedelta(seconds=5)) == start + 5
    clock.advance(timedelta(seconds=2))
    assert clock.now() == NOON + timedelta(seconds=2)
    assert clock.monotonic() == start + 2
    assert clock.monotonic_at(NOON + timedelta(seconds=5)) == start + 5


def test_setting_a_manual_clock_leaves_its_monotonic_time_alone() -> None:
    clock = ManualClock(NOON)
    start = clock.monotonic()
    clock.set(NOON - timedelta(hours=1))
    assert clock.now() == NOON - timedelta(hours=1)
    assert clock.monotonic() == start


def test_a_manual_clock_does_not_advance_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        ManualClock().advance(timedelta(seconds=-1))
