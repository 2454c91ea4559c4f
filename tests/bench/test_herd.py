"""What a herd's starts say: how soon the last may start goes by the faster of two rates."""

from __future__ import annotations

import pytest

from cronwell.bench.measure import CURVE
from cronwell.bench.row import Check
from cronwell.bench.rows.herd import Stampede, checks


def stampede(
    *, seconds: float, late_others: tuple[float, ...] = (1.0,), first: float = 0.01, succeeded: int = 1000
) -> Stampede:
    """A thousand jobs that start evenly over so many seconds."""
    others = [(float(second), late) for second, late in enumerate(late_others)]
    return Stampede(1000, succeeded, [share * seconds for share in CURVE], first, others)


def check(found: Stampede, what: str, *, drain: float = 100.0) -> Check:
    return next(check for check in checks(found, drain) if check.what.startswith(what))


def test_the_rate_of_the_middle_is_that_of_the_two_inner_quarters() -> None:
    assert stampede(seconds=4).middle_per_second == pytest.approx(250)


def test_the_last_start_goes_by_the_middle_of_the_herd_where_that_is_faster() -> None:
    last = check(stampede(seconds=4), "last", drain=100.0)
    assert last.target == pytest.approx(4 + 1)
    assert last.measured == pytest.approx(4)
    assert last.is_met


def test_a_herd_that_is_slower_than_a_drain_falls_short() -> None:
    last = check(stampede(seconds=4), "last", drain=1000.0)
    assert last.target == pytest.approx(1 + 1)
    assert not last.is_met


def test_a_long_end_falls_short_whatever_the_rate_of_the_middle() -> None:
    even = stampede(seconds=4)
    dragged = Stampede(1000, 1000, [*even.lateness[:-1], 6.0], 0.01, even.others)
    assert not check(dragged, "last").is_met


def test_the_first_start_is_within_milliseconds_of_the_instant() -> None:
    assert check(stampede(seconds=1, first=0.02), "first").is_met
    assert not check(stampede(seconds=1, first=0.021), "first").is_met


def test_a_herd_that_is_not_all_recorded_falls_short() -> None:
    assert not check(stampede(seconds=1, succeeded=999), "recorded").is_met


def test_of_few_slots_the_p99_is_the_latest() -> None:
    found = stampede(seconds=3, late_others=(1.0, 251.0, 2.0))
    assert found.other_p99_ms == 251.0
    assert not check(found, "p99").is_met


def test_of_two_hundred_slots_the_p99_leaves_out_two() -> None:
    found = stampede(seconds=3, late_others=(*range(198), 900.0, 901.0))
    assert found.other_p99_ms == 197.0
    assert check(found, "p99").is_met
