"""Duties are shared evenly, by weight, and do not move without need."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from cronwell.model.spreading import over_quota, quotas, wish

DUTIES = [f"shard:{n:02d}" for n in range(64)]


class Fleet:
    """Members that follow their wishes, one after the other, as a coordinator would let them."""

    def __init__(self) -> None:
        self.owners: dict[str, UUID] = {}
        self.weights: dict[UUID, float] = {}
        self.moves = 0

    def settle(self) -> None:
        for _ in range(20):
            before = self.moves
            for member in self.weights:
                wanted = wish(DUTIES, self.owners, self.weights, member)
                for name in wanted.give:
                    del self.owners[name]
                for name, seen in wanted.take.items():
                    assert self.owners.get(name) == seen
                    self.owners[name] = member
                self.moves += len(wanted.give) + len(wanted.take)
            if self.moves == before:
                return
        raise AssertionError("they never come to rest")

    def counts(self) -> list[int]:
        held = Counter(self.owners.values())
        return sorted(held[member] for member in self.weights)


def _member(number: int) -> UUID:
    return UUID(int=number * 7919 + 1)


@given(st.lists(st.integers(1, 80), min_size=1, max_size=30, unique=True))
def test_equal_members_have_equal_shares(numbers: list[int]) -> None:
    fleet = Fleet()
    for number in numbers:
        fleet.weights[_member(number)] = 1.0
    fleet.settle()
    assert len(fleet.owners) == 64
    counts = fleet.counts()
    assert counts[-1] - counts[0] <= 1


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 9)), min_size=1, max_size=20),
)
def test_whoever_comes_or_goes_moves_no_more_than_its_own_share(changes: list[tuple[bool, int]]) -> None:
    fleet = Fleet()
    fleet.weights[_member(100)] = 1.0
    fleet.settle()
    for comes, number in changes:
        member = _member(number)
        if comes == (member in fleet.weights):
            continue
        before = dict(fleet.owners)
        if comes:
            fleet.weights[member] = 1.0
        else:
            del fleet.weights[member]
        fleet.settle()
        moved = sum(before[name] != fleet.owners[name] for name in DUTIES)
        share = max(fleet.counts()) if comes else sum(owner == member for owner in before.values())
        assert moved <= share
        assert fleet.counts()[-1] - fleet.counts()[0] <= 1


@given(st.lists(st.floats(0.125, 1.0), min_size=1, max_size=10))
def test_shares_follow_the_weights(weights: list[float]) -> None:
    fleet = Fleet()
    fleet.weights = {_member(number): weight for number, weight in enumerate(weights)}
    fleet.settle()
    held = Counter(fleet.owners.values())
    for member, weight in fleet.weights.items():
        assert abs(held[member] - 64 * weight / sum(weights)) <= 1


def test_who_carries_less_gives_duties_to_who_can_carry_more() -> None:
    fleet = Fleet()
    slow, idle = _member(1), _member(2)
    fleet.weights = {slow: 1.0, idle: 1.0}
    fleet.settle()
    fleet.weights[slow] = 0.125
    fleet.settle()
    assert Counter(fleet.owners.values()) == {slow: 8, idle: 56}


def test_what_a_stubborn_member_has_too_much_of_is_taken_from_it() -> None:
    stuck, idle = _member(1), _member(2)
    owners = dict.fromkeys(DUTIES, stuck)
    weights = {stuck: 0.125, idle: 1.0}
    assert over_quota(DUTIES, owners, weights) == {stuck}
    assert wish(DUTIES, owners, weights, idle).take == {}
    wanted = wish(DUTIES, owners, weights, idle, stubborn={stuck})
    assert len(wanted.take) == 56
    assert set(wanted.take.values()) == {stuck}


def test_of_a_dead_members_duties_two_prefer_different_ones() -> None:
    one, two = _member(1), _member(2)
    owners = dict.fromkeys(DUTIES, _member(3))
    weights = {one: 1.0, two: 1.0}
    mine, other = (set(wish(DUTIES, owners, weights, member).take) for member in (one, two))
    assert len(mine) == len(other) == 32
    assert len(mine | other) > 40


def test_a_remainder_stays_where_it_is() -> None:
    one, two = _member(1), _member(2)
    for lucky in (one, two):
        assert quotas(65, {one: 1.0, two: 1.0}, {lucky: 33})[lucky] == 33
