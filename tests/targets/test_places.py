"""Places are never more than there are, go to who came first, and none is lost with one who gave up waiting."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell.targets.places import Places

MOVES = st.lists(
    st.tuples(st.sampled_from(["come", "leave", "give up", "turn"]), st.integers(0, 3)), max_size=30
)


async def test_who_finds_no_place_waits_and_is_served_in_order() -> None:
    places = Places(2)
    assert [places.take() for _ in range(3)] == [True, True, False]
    served: list[int] = []

    async def wait(number: int) -> None:
        await places.wait()
        served.append(number)

    tasks = [asyncio.create_task(wait(number)) for number in range(3)]
    await asyncio.sleep(0)
    for _ in range(3):
        places.give()
    # A place that was given to one who waits is not there for one who comes.
    assert not places.take()
    await asyncio.gather(*tasks)
    assert (served, places.taken) == ([0, 1, 2], 2)
    places.give()
    places.give()
    assert places.taken == 0
    assert [places.take() for _ in range(3)] == [True, True, False]


async def test_who_gives_up_waiting_is_passed_over() -> None:
    places = Places(1)
    places.take()
    gone, staying = (asyncio.create_task(places.wait()) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait({gone})
    places.give()
    await staying
    assert places.taken == 1


async def test_a_place_that_was_given_to_one_who_gives_up_goes_to_the_next() -> None:
    places = Places(1)
    places.take()
    gone, staying = (asyncio.create_task(places.wait()) for _ in range(2))
    await asyncio.sleep(0)
    places.give()
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    async with asyncio.timeout(5):
        await staying
    places.give()
    assert (places.taken, places.take()) == (0, True)


async def test_one_who_has_given_up_is_passed_over_before_it_has_noticed() -> None:
    places = Places(1)
    places.take()
    gone, staying = (asyncio.create_task(places.wait()) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    places.give()
    with pytest.raises(asyncio.CancelledError):
        await gone
    async with asyncio.timeout(5):
        await staying
    places.give()
    assert places.taken == 0


@given(st.integers(1, 2), MOVES)
def test_whoever_comes_leaves_and_gives_up_no_place_is_lost_or_taken_twice(
    count: int, moves: list[tuple[str, int]]
) -> None:
    asyncio.run(_play(count, moves))


async def _play(count: int, moves: list[tuple[str, int]]) -> None:
    places = Places(count)
    inside: set[int] = set()
    leaving: list[asyncio.Event] = []
    visits: list[asyncio.Task[None]] = []

    async def visit(number: int) -> None:
        if not places.take():
            await places.wait()
        inside.add(number)
        try:
            await leaving[number].wait()
        finally:
            inside.discard(number)
            places.give()

    for move, number in moves:
        if move == "come":
            leaving.append(asyncio.Event())
            visits.append(asyncio.create_task(visit(len(visits))))
        elif move == "turn":
            await asyncio.sleep(0)
        elif visits:
            which = number % len(visits)
            leaving[which].set() if move == "leave" else visits[which].cancel()
        assert len(inside) <= places.taken <= count
    for each in leaving:
        each.set()
    async with asyncio.timeout(5):
        ends = await asyncio.gather(*visits, return_exceptions=True)
    assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ends)
    assert places.taken == 0
    assert [places.take() for _ in range(count + 1)] == [True] * count + [False]
