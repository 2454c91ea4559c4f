"""Finishing many jobs at once takes its time, and gives way to what is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import cast

from cronwell.config import SchedulerSettings
from cronwell.runtime.clock import ManualClock
from cronwell.scheduler.chores.upkeep import BATCH, LONGEST_SPELL, REST, SHORTEST_SPELL, Finishing
from cronwell.store.port import Store

EACH = timedelta(seconds=0.1)
"""How long a look takes."""


class Herd:
    """A store of jobs whose last execution has ended."""

    def __init__(self, clock: ManualClock, jobs: int) -> None:
        self._clock = clock
        self.jobs = jobs
        self.looks = 0

    async def waits_over(self, now: datetime, limit: int) -> list[object]:
        return []

    async def finish_ended(self, now: datetime, limit: int) -> int:
        self._clock.advance(EACH)
        self.looks += 1
        finished = min(self.jobs, limit)
        self.jobs -= finished
        return finished


def finishing(jobs: int) -> tuple[Finishing, Herd, ManualClock]:
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    herd = Herd(clock, jobs)
    return Finishing(cast("Store", herd), clock, SchedulerSettings()), herd, clock


async def test_a_herd_is_finished_in_spells_that_grow() -> None:
    chore, herd, clock = finishing(1000 * BATCH)
    spells = []
    for _ in range(7):
        began = clock.monotonic()
        assert await chore.run_once() % BATCH == 0
        spells.append(round((clock.monotonic() - began) / SHORTEST_SPELL))
    assert spells == [1, 2, 4, 8, 16, 16, 16]
    assert herd.jobs > 0
    assert spells[-1] * SHORTEST_SPELL == LONGEST_SPELL


async def test_once_all_is_finished_spells_are_short_again() -> None:
    chore, herd, clock = finishing(20 * BATCH)
    while herd.jobs:
        await chore.run_once()
    assert await chore.run_once() == 0
    clock.advance(REST * EACH + timedelta(milliseconds=1))
    herd.jobs, began = 1000 * BATCH, clock.monotonic()
    await chore.run_once()
    assert round((clock.monotonic() - began) / SHORTEST_SPELL) == 1


async def test_a_look_that_took_long_and_found_nothing_more_is_followed_by_a_rest() -> None:
    chore, herd, clock = finishing(BATCH // 2)
    assert await chore.run_once() == BATCH // 2
    herd.jobs = 1
    clock.advance(REST * EACH - timedelta(milliseconds=1))
    assert await chore.run_once() == 0
    assert herd.looks == 1
    clock.advance(timedelta(milliseconds=2))
    assert await chore.run_once() == 1
