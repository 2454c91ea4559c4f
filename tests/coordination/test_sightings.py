"""Who is believed to live: never less than was promised, and never by two clocks."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from cronwell.coordination.sightings import Sightings

ANN, BEN = UUID(int=1), UUID(int=2)


@given(
    beats=st.lists(st.integers(1, 40), min_size=1, max_size=20),
    looks=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 30)), min_size=1, max_size=40),
    ttl=st.integers(1, 30),
)
def test_a_member_is_believed_for_its_ttl_after_each_beat_and_no_longer_than_that_after_a_first_look(
    beats: list[int], looks: list[tuple[int, int]], ttl: int
) -> None:
    carried_out = [sum(beats[: n + 1]) for n in range(len(beats))]
    sightings = Sightings()
    first_look: dict[int, int] = {}
    now = beats[0]
    for pause, delay in looks:
        asked = now + pause
        # The answer may show any moment between the question and its arrival; the earliest is the most dangerous.
        revision = sum(at <= asked for at in carried_out)
        now = answered = asked + delay
        sightings.see(ANN, revision, ttl, answered)
        first_look.setdefault(revision, answered)
        is_dead = sightings.is_dead(ANN, asked)
        if is_dead:
            assert asked >= carried_out[revision - 1] + ttl
        assert is_dead == (asked >= first_look[revision] + ttl)


def test_a_revision_that_went_back_is_a_sign_of_life() -> None:
    sightings = Sightings()
    sightings.see(ANN, 100, 5, at=0)
    sightings.see(ANN, 7, 5, at=4)
    assert not sightings.is_dead(ANN, asked=8.9)
    assert sightings.is_dead(ANN, asked=9)


def test_what_is_heard_late_takes_nothing_back() -> None:
    sightings = Sightings()
    sightings.see(ANN, 100, 5, at=0)
    sightings.hear(ANN, 99, 5, at=3)
    sightings.see(ANN, 100, 5, at=4)
    assert sightings.is_dead(ANN, asked=5)
    sightings.hear(ANN, 101, 5, at=6)
    assert not sightings.is_dead(ANN, asked=10)


def test_the_next_death_is_that_of_who_was_seen_first() -> None:
    sightings = Sightings()
    assert sightings.next_death(after=0) is None
    sightings.see(ANN, 1, 5, at=0)
    sightings.see(BEN, 2, 2, at=1)
    assert sightings.next_death(after=1) == 3
    assert sightings.next_death(after=3) == 5
    sightings.keep({BEN})
    assert sightings.next_death(after=3) is None
