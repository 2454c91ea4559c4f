"""Ageing: those who have waited for too long get a tenth of the places, no more and no less."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cronwell.model.ageing import SHARE, Ageing


@given(st.lists(st.integers(0, 300), max_size=60))
def test_the_share_is_a_tenth_to_within_one_place(batches: list[int]) -> None:
    ageing = Ageing()
    given_so_far = 0
    for number, places in enumerate(batches, start=1):
        share = ageing.allot(places)
        assert 0 <= share <= places
        given_so_far += share
        total = sum(batches[:number])
        assert abs(given_so_far - SHARE * total) <= 1.0 + 1e-6


def test_every_tier_comes_first_in_turn() -> None:
    ageing = Ageing()
    firsts = Counter(ageing.order((1, 2))[0] for _ in range(10))
    assert firsts == {1: 5, 2: 5}
    assert ageing.order(()) == []
    assert sorted(ageing.order((1, 2))) == [1, 2]
