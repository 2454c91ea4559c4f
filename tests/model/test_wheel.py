"""The timing wheel: never early, nothing lost, in order; checked against a sorted list."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cronwell.model.wheel import Timer, Wheel

# Deadlines from within one tick to decades away, so that every level comes into play.
spans = st.one_of(
    st.floats(-1, 0.01),
    st.floats(0, 1),
    st.floats(0, 1000),
    st.floats(0, 1e9),
    st.sampled_from([0.001 * 256**level * n for level in range(5) for n in (1, 2, 255)]),
)


@dataclass(eq=False)
class Held:
    deadline: float
    number: int
    timer: Timer[int] | None = field(default=None)


class WheelAgainstSortedList(RuleBasedStateMachine):
    """Any order of add, remove and advance gives what a sorted list would."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 86_400.0
        self.wheel: Wheel[int] = Wheel(self.now)
        self.held: list[Held] = []
        self.added = 0

    @rule(span=spans)
    def add(self, span: float) -> None:
        held = Held(self.now + span, self.added)
        held.timer = self.wheel.add(held.deadline, held.number)
        self.held.append(held)
        self.added += 1

    @rule(span=spans, count=st.integers(2, 20))
    def add_a_herd(self, span: float, count: int) -> None:
        for _ in range(count):
            self.add(span)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.held))
        assert held.timer is not None
        assert held.timer.is_held
        assert self.wheel.remove(held.timer)
        assert not self.wheel.remove(held.timer)
        self.held.remove(held)

    @rule(span=spans)
    def advance(self, span: float) -> None:
        self.now = max(self.now, self.now + span)
        self.expect_due()

    @precondition(lambda self: self.held)
    @rule()
    def advance_to_the_next_deadline(self) -> None:
        """Sleeping as told ends at an item, with at most one vain wake per removal before it."""
        earliest = min(held.deadline for held in self.held)
        while (told := self.wheel.next_deadline()) is not None and self.now < told < earliest:
            self.now = told
            assert self.wheel.advance(told) == []
            assert self.wheel.next_deadline() != told
        assert told is not None
        self.now = max(self.now, told)
        assert self.now >= earliest
        self.expect_due()

    @rule()
    def clear(self) -> None:
        expected = sorted(self.held, key=lambda held: (held.deadline, held.number))
        assert self.wheel.clear() == [held.number for held in expected]
        self.held = []

    def expect_due(self) -> None:
        due = [held for held in self.held if held.deadline <= self.now]
        due.sort(key=lambda held: (held.deadline, held.number))
        assert self.wheel.advance(self.now) == [held.number for held in due]
        assert not any(held.timer.is_held for held in due if held.timer is not None)
        self.held = [held for held in self.held if held.deadline > self.now]

    @invariant()
    def counts_what_it_holds(self) -> None:
        assert len(self.wheel) == len(self.held)

    @invariant()
    def never_sleeps_past_a_deadline(self) -> None:
        told = self.wheel.next_deadline()
        if not self.held:
            assert told is None
        else:
            assert told is not None
            assert told <= min(held.deadline for held in self.held)


TestWheelAgainstSortedList = WheelAgainstSortedList.TestCase
TestWheelAgainstSortedList.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@given(st.floats(0, 1e6), st.floats(1e-6, 10), st.lists(spans, max_size=50), st.lists(spans, max_size=50))
def test_no_tick_length_and_no_step_makes_an_item_early_or_lost(
    start: float, tick: float, deadlines: list[float], steps: list[float]
) -> None:
    wheel: Wheel[float] = Wheel(start, tick)
    waiting = sorted(start + span for span in deadlines)
    for deadline in waiting:
        wheel.add(deadline, deadline)
    now = start
    for step in (*steps, 2e9):
        now += abs(step)
        handed = wheel.advance(now)
        assert handed == [deadline for deadline in waiting if deadline <= now]
        waiting = [deadline for deadline in waiting if deadline > now]
    assert not waiting


def test_the_next_deadline_is_exact_as_long_as_nothing_is_removed() -> None:
    wheel: Wheel[str] = Wheel(0.0)
    for deadline in (5000.123456, 70.5, 0.25):
        wheel.add(deadline, str(deadline))
    for deadline in (0.25, 70.5, 5000.123456):
        assert wheel.next_deadline() == deadline
        assert wheel.advance(math.nextafter(deadline, 0)) == []
        assert wheel.next_deadline() == deadline
        assert wheel.advance(deadline) == [str(deadline)]
    assert wheel.next_deadline() is None


def test_within_one_tick_the_next_deadline_moves_on_with_each_item() -> None:
    wheel: Wheel[str] = Wheel(0.0)
    wheel.add(1.0001, "a")
    wheel.add(1.0002, "b")
    timer = wheel.add(1.0003, "c")
    assert wheel.advance(1.0001) == ["a"]
    assert wheel.next_deadline() == 1.0002
    assert wheel.advance(1.0002) == ["b"]
    wheel.remove(timer)
    assert wheel.next_deadline() is None


def test_a_removed_item_costs_one_vain_wake_at_most() -> None:
    wheel: Wheel[str] = Wheel(0.0)
    removed = wheel.add(1.0001, "removed")
    wheel.add(1.0005, "kept")
    wheel.remove(removed)
    assert wheel.next_deadline() == 1.0001
    assert wheel.advance(1.0001) == []
    assert wheel.next_deadline() == 1.0005


def test_items_of_one_tick_come_in_order_of_deadline_then_of_adding() -> None:
    wheel: Wheel[str] = Wheel(0.0)
    for name, deadline in (("c", 1.0002), ("a", 1.0001), ("d", 1.0002), ("b", 1.0001)):
        wheel.add(deadline, name)
    assert wheel.advance(2.0) == ["a", "b", "c", "d"]


def test_a_deadline_that_has_passed_is_due_at_once() -> None:
    wheel: Wheel[str] = Wheel(100.0)
    wheel.advance(200.0)
    wheel.add(150.0, "late")
    assert wheel.next_deadline() == 150.0
    assert wheel.advance(200.0) == ["late"]


def test_a_clock_that_is_put_back_hands_nothing_over_early() -> None:
    wheel: Wheel[str] = Wheel(0.0)
    wheel.advance(10.0)
    wheel.add(10.5, "future")
    wheel.add(9.0, "past")
    assert wheel.advance(5.0) == []
    assert wheel.advance(9.0) == ["past"]
    assert wheel.advance(10.5) == ["future"]


def test_an_item_that_was_handed_over_cannot_be_removed() -> None:
    wheel: Wheel[str] = Wheel(0.0)
    timer = wheel.add(1.0, "once")
    assert wheel.advance(1.0) == ["once"]
    assert not timer.is_held
    assert not wheel.remove(timer)
    assert len(wheel) == 0


@pytest.mark.parametrize("deadline", [math.inf, -math.inf, math.nan])
def test_a_deadline_that_never_comes_is_refused(deadline: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        Wheel[str](0.0).add(deadline, "never")


def test_a_tick_of_no_length_is_refused() -> None:
    with pytest.raises(ValueError, match="takes time"):
        Wheel[str](0.0, tick=0)
