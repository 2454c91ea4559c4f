"""Deadlines share a timer: each strikes once, never early, soon after, and none is left behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from cronwell.runtime.deadlines import PER_SECOND, Deadlines


class Alarm:
    """Notes how long after its deadline it struck."""

    def __init__(self, deadline: float, then: Callable[[], object] = lambda: None) -> None:
        self.deadline = deadline
        self.late: list[float] = []
        self.struck = asyncio.Event()
        self._then = then

    def expire(self) -> None:
        self.late.append(time.monotonic() - self.deadline)
        self.struck.set()
        self._then()


async def test_each_strikes_once_and_never_early_whatever_order_they_came_in() -> None:
    deadlines, began = Deadlines(), time.monotonic()
    alarms = [Alarm(began + after) for after in (0.08, 0.03, 0.031, 0.0301, -1.0, 0.05)]
    for alarm in alarms:
        deadlines.add(alarm.deadline, alarm)
    async with asyncio.timeout(5):
        await asyncio.gather(*(alarm.struck.wait() for alarm in alarms))
    assert all(len(alarm.late) == 1 and alarm.late[0] >= 0 for alarm in alarms)
    assert len(deadlines) == 0


async def test_deadlines_of_one_moment_strike_together() -> None:
    deadlines = Deadlines()
    moment = (time.monotonic() * PER_SECOND // 1 + 30) / PER_SECOND
    alarms = [Alarm(moment - part / PER_SECOND / 10) for part in range(1, 10)]
    assert len({deadlines.add(alarm.deadline, alarm) for alarm in alarms}) == 1
    async with asyncio.timeout(5):
        await alarms[0].struck.wait()
    assert all(alarm.struck.is_set() for alarm in alarms)


async def test_one_that_was_removed_does_not_strike_and_leaves_nothing() -> None:
    deadlines, began = Deadlines(), time.monotonic()
    removed, kept = Alarm(began + 0.02), Alarm(began + 0.04)
    at = deadlines.add(removed.deadline, removed)
    deadlines.add(kept.deadline, kept)
    deadlines.remove(at, removed)
    deadlines.remove(at, removed)
    assert len(deadlines) == 1
    async with asyncio.timeout(5):
        await kept.struck.wait()
    assert (removed.late, len(deadlines)) == ([], 0)


async def test_one_that_comes_later_for_an_earlier_moment_is_not_held_up() -> None:
    deadlines, began = Deadlines(), time.monotonic()
    far, near = Alarm(began + 3600), Alarm(began + 0.02)
    at = deadlines.add(far.deadline, far)
    deadlines.add(near.deadline, near)
    async with asyncio.timeout(5):
        await near.struck.wait()
    assert (far.late, len(deadlines)) == ([], 1)
    deadlines.remove(at, far)


async def test_what_a_strike_adds_and_removes_is_heeded() -> None:
    deadlines, began = Deadlines(), time.monotonic()
    added = Alarm(began + 0.01)
    doomed = Alarm(began + 0.06)
    at = deadlines.add(doomed.deadline, doomed)

    def meddle() -> None:
        deadlines.add(added.deadline, added)
        deadlines.remove(at, doomed)

    first = Alarm(began + 0.03, meddle)
    deadlines.add(first.deadline, first)
    async with asyncio.timeout(5):
        await added.struck.wait()
    assert (first.struck.is_set(), doomed.late, len(deadlines)) == (True, [], 0)


async def test_one_that_a_strike_adds_for_later_does_not_hold_up_those_that_were_there() -> None:
    deadlines, began = Deadlines(), time.monotonic()
    far, between = Alarm(began + 3600), Alarm(began + 0.05)
    first = Alarm(began + 0.02, lambda: deadlines.add(far.deadline, far))
    for alarm in (first, between):
        deadlines.add(alarm.deadline, alarm)
    async with asyncio.timeout(5):
        await between.struck.wait()
    assert (far.late, len(deadlines)) == ([], 1)


async def test_moments_that_nobody_waits_for_any_more_are_forgotten() -> None:
    deadlines, began = Deadlines(), time.monotonic()
    kept = Alarm(began + 0.05)
    deadlines.add(kept.deadline, kept)
    for after in range(10_000):
        passing = Alarm(began + 3600 + after)
        deadlines.remove(deadlines.add(passing.deadline, passing), passing)
    assert deadlines.moments < 200
    async with asyncio.timeout(5):
        await kept.struck.wait()
    assert (len(kept.late), len(deadlines), deadlines.moments) == (1, 0, 0)
