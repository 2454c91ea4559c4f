"""The scheduler as a role: it stages by itself, and of several one does each chore."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from cronwell.config import Settings
from cronwell.coordination.postgres import PostgresLeases
from cronwell.runtime.clock import ManualClock
from cronwell.runtime.service import run_services
from cronwell.scheduler.chores.port import Chore
from cronwell.scheduler.role import CHORE_LEASE, scheduler_services
from tests.support.house import SECOND, House
from tests.support.waiting import until, until_async

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)


class Sweeping:
    """A chore that counts how often it was done."""

    name = "sweeping"
    every = timedelta(milliseconds=30)

    def __init__(self) -> None:
        self.rounds = 0

    async def run_once(self) -> int:
        self.rounds += 1
        return 0


class Scheduler:
    """A scheduler of this process, to stop in order or to kill."""

    def __init__(self, house: House, chores: Sequence[Chore] = ()) -> None:
        services = scheduler_services(house.staging(), chores, PostgresLeases(house.database, house.clock))
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(run_services(services, stop=self._stop))

    async def stop(self) -> None:
        self._stop.set()
        await self._task

    async def kill(self) -> None:
        """End it where it stands: it gives nothing back."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
async def still_house(migrated_url: str, clock: ManualClock) -> AsyncIterator[House]:
    opened = await House.open(migrated_url, Settings(), clock)
    yield opened
    await opened.close()


async def test_a_scheduler_stages_what_comes_into_the_look_ahead(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 13 * * *")
    assert await still_house.history(job) == []
    scheduler = Scheduler(still_house)
    clock.set(NOON + timedelta(hours=1) - still_house.settings.scheduler.look_ahead)

    async def is_staged() -> bool:
        return bool(await still_house.history(job))

    await until_async(is_staged)
    await scheduler.stop()
    [execution] = await still_house.history(job)
    assert execution.key.slot == NOON + timedelta(hours=1)


async def test_of_two_schedulers_one_does_a_chore_and_the_other_takes_over_at_once_when_it_stops(
    still_house: House,
) -> None:
    mine, other = Sweeping(), Sweeping()
    first = Scheduler(still_house, [mine])
    await until(lambda: mine.rounds >= 2)
    second = Scheduler(still_house, [other])
    seen = mine.rounds
    await until(lambda: mine.rounds >= seen + 5)
    assert other.rounds == 0
    await first.stop()
    # The clock stands still, so no lease ends by itself: it was given back.
    await until(lambda: other.rounds >= 2)
    await second.stop()


async def test_the_chores_of_a_killed_scheduler_pass_to_another_when_its_lease_has_ended(
    still_house: House, clock: ManualClock
) -> None:
    mine, other = Sweeping(), Sweeping()
    first = Scheduler(still_house, [mine])
    await until(lambda: mine.rounds >= 1)
    await first.kill()
    second = Scheduler(still_house, [other, counting := Counting()])
    await until(lambda: counting.rounds >= 5)
    assert other.rounds == 0, "the lease has not ended"
    clock.advance(CHORE_LEASE + SECOND)
    await until(lambda: other.rounds >= 1)
    await second.stop()


class Counting(Sweeping):
    """Another chore, which nobody else does: its rounds tell that the scheduler is at work."""

    name = "counting"
