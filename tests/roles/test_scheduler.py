"""The scheduler as a role: it stages by itself, and of several one does each chore."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY

from cronwell.config import Settings
from cronwell.model.shards import shard_of
from cronwell.runtime.clock import ManualClock
from cronwell.runtime.service import run_services
from cronwell.scheduler.chores.port import Chore
from cronwell.scheduler.duties import Duties
from cronwell.scheduler.role import scheduler_services
from cronwell.scheduler.staging import Staging
from cronwell.scheduler.watermark import Watermark
from tests.support.house import House
from tests.support.waiting import until, until_async

LONG = timedelta(seconds=60)
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

    def __init__(
        self, house: House, chores: Sequence[Chore] = (), *, lease: timedelta = timedelta(seconds=1)
    ) -> None:
        settings = dataclasses.replace(house.settings.scheduler, lease=lease)
        coordination = house.coordination()
        names = [chore.name for chore in chores]
        self.duties = Duties(coordination, house.store, house.clock, settings, names)
        self.staging = Staging(house.store, house.clock, settings, self.duties)
        watermark = Watermark(house.store, house.clock, settings, self.duties)
        services = scheduler_services(self.duties, coordination, self.staging, watermark, chores)
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


async def test_the_rounds_of_a_chore_that_were_done_are_counted(still_house: House) -> None:
    def counted() -> float:
        return REGISTRY.get_sample_value("cronwell_chores_done_total", {"chore": Sweeping.name}) or 0.0

    before, chore = counted(), Sweeping()
    scheduler = Scheduler(still_house, [chore])
    await until(lambda: chore.rounds >= 2)
    await scheduler.stop()
    assert counted() - before == chore.rounds


async def test_of_two_schedulers_one_does_a_chore_and_the_other_takes_over_at_once_when_it_stops(
    still_house: House,
) -> None:
    mine, other = Sweeping(), Sweeping()
    first = Scheduler(still_house, [mine], lease=LONG)
    await until(lambda: mine.rounds >= 2)
    second = Scheduler(still_house, [other], lease=LONG)
    seen = mine.rounds
    await until(lambda: mine.rounds >= seen + 5)
    assert other.rounds == 0
    await first.stop()
    # No lease ends by itself that soon: it was given back, and the other was told.
    await until(lambda: other.rounds >= 2, within=5)
    await second.stop()


async def test_the_duties_of_a_killed_scheduler_pass_to_another_when_its_lease_has_ended(
    still_house: House,
) -> None:
    mine, other = Sweeping(), Sweeping()
    first = Scheduler(still_house, [mine], lease=timedelta(seconds=2))
    await until(lambda: mine.rounds >= 1 and len(first.duties.epochs) == 64)
    second = Scheduler(still_house, [other], lease=timedelta(seconds=2))
    await until(lambda: len(second.duties.epochs) == 32)
    began = time.monotonic()
    await first.kill()
    await until(lambda: len(second.duties.epochs) == 64 and other.rounds >= 1, within=10)
    assert time.monotonic() - began > 1, "a lease that had not ended was taken"
    await second.stop()


async def test_shards_are_shared_evenly_and_move_only_as_far_as_they_must(still_house: House) -> None:
    schedulers = [Scheduler(still_house, lease=LONG) for _ in range(3)]
    await until(lambda: sorted(len(each.duties.epochs) for each in schedulers) == [21, 21, 22], within=30)
    before = [dict(each.duties.epochs) for each in schedulers]
    await schedulers.pop().stop()
    await until(lambda: [len(each.duties.epochs) for each in schedulers] == [32, 32], within=5)
    for each, had in zip(schedulers, before, strict=False):
        assert had.items() <= each.duties.epochs.items(), "a shard that could stay has moved"
        await each.stop()


async def test_a_scheduler_that_was_fenced_stages_nothing_and_asks_anew(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 13 * * *")
    stale = Scheduler(still_house, lease=LONG)
    await until(lambda: len(stale.duties.epochs) == 64)
    old = dict(stale.duties.epochs)
    entered = await still_house.store.enter_shards(uuid4(), range(64), clock.now())
    assert all(entered[shard] > epoch for shard, epoch in old.items())
    clock.set(NOON + timedelta(hours=1) - still_house.settings.scheduler.look_ahead)
    # It learns of it by staging or by marking, begins epochs of its own, and goes on.
    await until(lambda: stale.duties.epochs.items() > {}.items() and stale.duties.epochs != old, within=10)

    async def is_staged() -> bool:
        return bool(await still_house.history(job))

    await until_async(is_staged)
    await stale.stop()


async def test_what_a_stale_owner_stages_changes_nothing(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="0 13 * * *")
    clock.set(NOON + timedelta(hours=1) - still_house.settings.scheduler.look_ahead)
    dropped: set[int] = set()
    await still_house.every_shard.enter(still_house.store, clock.now())

    class Stale:
        member = still_house.every_shard.member
        epochs = still_house.every_shard.epochs

        def drop(self, shards: Iterable[int]) -> None:
            dropped.update(shards)

    await still_house.store.enter_shards(uuid4(), [shard_of(job)], clock.now())
    staging = Staging(still_house.store, clock, still_house.settings.scheduler, Stale())
    assert await staging.run_once() == 0
    assert dropped == {shard_of(job)}
    assert await still_house.history(job) == []
    # With the epoch that is now, the same owner would have been let in.
    Stale.epochs = await still_house.store.enter_shards(Stale.member, range(64), clock.now())
    assert await staging.run_once() == 1
    assert len(await still_house.history(job)) == 1


async def test_a_scheduler_that_falls_behind_carries_less(still_house: House) -> None:
    slow, idle = Scheduler(still_house, lease=LONG), Scheduler(still_house, lease=LONG)
    await until(lambda: len(slow.duties.epochs) == len(idle.duties.epochs) == 32, within=10)
    slow.duties.is_behind = True
    for _ in range(12):
        slow.duties.is_behind = True
        await slow.duties.beat()
    for _ in range(2):
        await idle.duties.beat()
    assert len(slow.duties.epochs) == 8
    assert len(idle.duties.epochs) == 56
    for each in (slow, idle):
        await each.stop()


async def test_the_watermark_stands_before_the_first_slot_that_is_not_staged(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 13 * * *")
    scheduler = Scheduler(still_house, lease=LONG)
    look_ahead = still_house.settings.scheduler.look_ahead

    async def mark() -> datetime | None:
        [shard] = [s for s in await still_house.store.list_shards() if s.shard == shard_of(job)]
        return shard.watermark

    async def is_at(wanted: datetime) -> bool:
        return await mark() == wanted

    await until_async(lambda: is_at(NOON + look_ahead))
    await scheduler.stop()
    clock.set(NOON + timedelta(hours=2))
    watermark = Watermark(still_house.store, clock, still_house.settings.scheduler, scheduler.duties)
    await scheduler.duties.beat()
    await watermark.mark()
    # Nobody has staged the slot at one o'clock.
    assert await mark() == NOON + timedelta(hours=1) - timedelta(microseconds=1)
    assert scheduler.duties.is_behind
    await scheduler.duties.leave()
