"""Shares between tenants: by weight, to the last place, and nobody waits for what others had before."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cronwell.model.fairness import FairShares

weights = st.dictionaries(
    st.integers(1, 50), st.sampled_from([0.1, 0.5, 1.0, 2.0, 3.0, 10.0]), min_size=1, max_size=8
)


@given(weights, st.lists(st.integers(0, 200), max_size=20))
def test_every_place_is_given_and_each_gets_within_one_of_its_weight(
    backlog: dict[int, float], batches: list[int]
) -> None:
    fair = FairShares()
    given_so_far: Counter[int] = Counter()
    for places in batches:
        shares = fair.allot(places, backlog)
        assert sum(shares.values()) == places
        given_so_far.update(shares)
        # In time of their own, which goes on by 1/weight with each place, no two are further apart than one place.
        own = {tenant: given_so_far[tenant] / weight for tenant, weight in backlog.items()}
        for tenant, weight in backlog.items():
            assert own[tenant] <= min(own.values()) + 1 / weight + 1e-6


def test_who_comes_late_is_not_owed_for_the_time_before_nor_made_to_wait() -> None:
    fair = FairShares()
    assert fair.allot(1000, {1: 1.0}) == {1: 1000}
    shares = fair.allot(100, {1: 1.0, 2: 1.0})
    assert abs(shares[1] - shares[2]) <= 1


def test_who_comes_back_starts_where_the_others_are() -> None:
    fair = FairShares()
    fair.allot(10, {1: 1.0, 2: 1.0})
    fair.allot(1000, {1: 1.0})
    shares = fair.allot(100, {1: 1.0, 2: 1.0})
    assert abs(shares[1] - shares[2]) <= 1


def test_places_that_were_given_back_are_not_counted() -> None:
    fair = FairShares()
    shares = fair.allot(100, {1: 1.0, 2: 1.0})
    fair.give_back(2, shares[2] - 1, 1.0)
    fair.allot(shares[2] - 1, {1: 1.0})
    # Tenant 2 has had one place, 1 all others; from the common time on they are equal again.
    later = Counter(fair.allot(100, {1: 1.0, 2: 1.0}))
    assert later[2] >= 50


@given(st.integers(1, 30), st.integers(2, 500))
def test_one_execution_now_and_then_goes_first_however_much_another_has(pause: int, places: int) -> None:
    fair = FairShares()
    for number in range(40):
        backlog = {1: 1.0, 2: 1.0} if number % pause == 0 else {1: 1.0}
        shares = fair.allot(places, backlog)
        if 2 in backlog:
            assert shares.get(2, 0) >= places // 2
            fair.give_back(2, shares[2] - 1, 1.0)


def test_nobody_has_nothing() -> None:
    assert FairShares().allot(5, {}) == {}
