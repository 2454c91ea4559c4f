"""A token bucket: over any stretch of time it gives no more than its size and its rate allow, and no less."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell.model.bucket import Bucket

rates = st.floats(0.1, 1000)


@given(rates, st.lists(st.floats(0, 2), min_size=1, max_size=300))
def test_no_stretch_of_time_gets_more_than_its_share(rate: float, waits: list[float]) -> None:
    bucket = Bucket(rate, 0.0)
    taken: list[float] = []
    now = 0.0
    for wait in waits:
        now += wait
        if bucket.take(now) == 0.0:
            taken.append(now)
    for first, began in enumerate(taken):
        for last in range(first, len(taken)):
            allowed = bucket.size + rate * (taken[last] - began)
            assert last - first + 1 <= allowed + 1e-6


@given(rates, st.integers(1, 50))
def test_who_waits_as_long_as_is_told_gets_one(rate: float, times: int) -> None:
    bucket = Bucket(rate, 0.0)
    now = 0.0
    while bucket.take(now) == 0.0:
        pass
    for _ in range(times):
        wait = bucket.take(now)
        assert 0 < wait <= 1 / rate + 1e-9
        now += wait + 1e-9
        assert bucket.take(now) == 0.0


def test_what_is_left_and_when_it_is_full_again() -> None:
    bucket = Bucket(5.0, 0.0)
    assert (bucket.left, bucket.full_in) == (10, 0.0)
    bucket.take(0.0)
    assert bucket.left == 9
    assert bucket.full_in == pytest.approx(0.2)
    bucket.take(-100.0)
    assert bucket.left == 8


def test_a_slow_bucket_holds_one() -> None:
    bucket = Bucket(0.1, 0.0)
    assert bucket.take(0.0) == 0.0
    assert bucket.take(0.0) == pytest.approx(10.0)
