"""What a soak's samples say: the last stretch like the first, and tables that stop growing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cronwell.bench.cost import Cost
from cronwell.bench.measure import Outcome
from cronwell.bench.row import Check
from cronwell.bench.rows.soak import INDEXES, Plan, Sample, Window, checks

START = datetime(2026, 5, 5, tzinfo=UTC)
PLAN = Plan(rate=100, seconds=40, snapshot_seconds=20)
EVEN = Window(100.0, 3.0, 20.0)
RESULT = Outcome(START, 4000, 4000, 40.0, [], [], Cost({}, 0, 0))


def sample(second: float, mib: float = 50.0, dead: float = 50_000.0) -> Sample:
    names = ("executions", INDEXES, "cursors", "workers")
    return Sample(
        START + timedelta(seconds=second), dict.fromkeys(names, mib), dict.fromkeys(names, dead), 1.0
    )


STEADY = (sample(1), sample(20), sample(21), sample(40))


def check(
    what: str, *, last: Window = EVEN, samples: tuple[Sample, ...] = STEADY, result: Outcome = RESULT
) -> Check:
    return next(check for check in checks(PLAN, result, EVEN, last, samples) if check.what.startswith(what))


def test_a_run_that_stays_the_same_meets_every_target() -> None:
    found = checks(PLAN, RESULT, EVEN, EVEN, STEADY)
    assert all(check.is_met for check in found)
    assert len({check.what for check in found}) == len(found)


@pytest.mark.parametrize(
    ("what", "last"),
    [
        ("throughput", Window(89.0, 3.0, 20.0)),
        ("lateness p50", Window(100.0, 5.5, 20.0)),
        ("lateness p99", Window(100.0, 3.0, 22.5)),
    ],
)
def test_a_last_stretch_that_falls_behind_by_more_than_a_tenth_falls_short(what: str, last: Window) -> None:
    assert not check(what, last=last).is_met


@pytest.mark.parametrize(
    ("what", "last"),
    [
        ("throughput", Window(91.0, 3.0, 20.0)),
        # A half more, and yet less than anyone can tell apart.
        ("lateness p50", Window(100.0, 4.9, 20.0)),
        ("lateness p99", Window(100.0, 3.0, 21.9)),
        ("lateness p99", Window(100.0, 3.0, 5.0)),
    ],
)
def test_a_last_stretch_within_a_tenth_or_two_milliseconds_or_better_will_do(what: str, last: Window) -> None:
    assert check(what, last=last).is_met


def test_an_execution_that_is_not_recorded_falls_short() -> None:
    lacking = Outcome(START, 4000, 3999, 40.0, [], [], Cost({}, 0, 0))
    assert not check("recorded", result=lacking).is_met


@pytest.mark.parametrize("table", ["executions", "cursors", "workers"])
def test_a_table_that_doubles_after_the_first_snapshot_went_falls_short(table: str) -> None:
    doubled = (sample(20), sample(30, mib=100.0), sample(40))
    assert check(f"{table}, size", samples=doubled).measured == pytest.approx(2)
    assert not check(f"{table}, size", samples=doubled).is_met
    assert not check(f"{table}, dead", samples=(sample(20), sample(30, dead=100_000.0))).is_met


def test_indexes_may_grow_as_the_rows_do_and_no_more() -> None:
    assert check(INDEXES, samples=(sample(20), sample(40, mib=100.0))).is_met
    assert not check(INDEXES, samples=(sample(20), sample(40, mib=101.0))).is_met


def test_what_piles_up_behind_the_first_snapshot_counts_against_nobody() -> None:
    grown = (sample(1, mib=1.0, dead=1.0), sample(20), sample(40))
    assert check("cursors, size", samples=grown).is_met
    assert check("cursors, dead", samples=grown).is_met


def test_growth_of_a_table_that_stays_small_says_nothing() -> None:
    small = (sample(20, mib=0.1, dead=10), sample(40, mib=0.9, dead=900))
    assert check("workers, size", samples=small).is_met
    assert check("workers, dead", samples=small).is_met


def test_a_table_that_is_not_there_yet_has_no_size() -> None:
    missing = Sample(START, {}, {}, 0.0)
    assert check("executions, size", samples=(missing, *STEADY)).is_met
