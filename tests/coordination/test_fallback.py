"""Schedulers that go by etcd: it may stop, be cut off, forget, or be shared with strangers, and shards stay staged."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from cronwell import meters, telemetry
from cronwell.config import EtcdSettings, Settings
from cronwell.coordination.etcd import EtcdCoordination
from cronwell.coordination.port import Member
from tests.coordination.rig import LEASE, Scheduler, looking, with_etcd
from tests.support.etcd import EtcdServer, fresh_settings, temporary_etcd
from tests.support.house import House
from tests.support.proxy import proxy_to
from tests.support.waiting import until, until_async

# What the lease and the promise of at most a second more allow.
LONGEST_GAP = LEASE.total_seconds() + 1


@pytest.fixture
def etcd() -> Iterator[EtcdServer]:
    """One to do anything to."""
    with temporary_etcd() as server:
        yield server


@pytest.fixture
def settings() -> EtcdSettings:
    return fresh_settings()


@pytest.fixture
async def stack() -> AsyncIterator[contextlib.AsyncExitStack]:
    async with contextlib.AsyncExitStack() as opened:
        yield opened


@pytest.fixture
async def pair(
    house: House, etcd: EtcdServer, settings: EtcdSettings, stack: contextlib.AsyncExitStack
) -> list[Scheduler]:
    """Two schedulers that share by way of etcd."""
    started = [Scheduler(house, with_etcd(house, etcd.address, settings)) for _ in range(2)]
    for each in started:
        stack.push_async_callback(each.stop)
    await _until_shared(started)
    await until(lambda: not any(each.is_on_reserve for each in started))
    return started


async def test_shards_stay_staged_while_etcd_is_stopped_and_when_it_is_back(
    pair: list[Scheduler], etcd: EtcdServer
) -> None:
    before = [each.epochs for each in pair]
    async with looking(*pair) as gaps:
        await asyncio.to_thread(etcd.stop)
        await until(lambda: all(each.is_on_reserve for each in pair))
        assert meters.COORDINATION_FALLBACK._value.get() == 1
        await _a_while(3 * LEASE)
        assert [each.epochs for each in pair] == before, "what each had it should have kept"
        await asyncio.to_thread(etcd.start)
        await until(lambda: not any(each.is_on_reserve for each in pair), within=30)
        assert meters.COORDINATION_FALLBACK._value.get() == 0
        await _a_while(2 * LEASE)
    assert [each.epochs for each in pair] == before
    assert gaps.longest <= LONGEST_GAP


async def test_shards_stay_staged_while_etcd_is_silent(
    house: House, etcd: EtcdServer, settings: EtcdSettings, stack: contextlib.AsyncExitStack
) -> None:
    proxy = await stack.enter_async_context(proxy_to(etcd.url))
    pair = [Scheduler(house, with_etcd(house, f"etcd://127.0.0.1:{proxy.port}", settings)) for _ in range(2)]
    for each in pair:
        stack.push_async_callback(each.stop)
    await _until_shared(pair)
    async with looking(*pair) as gaps:
        proxy.go_silent()
        await until(lambda: all(each.is_on_reserve for each in pair))
        await _a_while(3 * LEASE)
        proxy.speak()
        await until(lambda: not any(each.is_on_reserve for each in pair), within=30)
    assert gaps.longest <= LONGEST_GAP


async def test_who_alone_is_cut_off_from_etcd_takes_all_along_to_postgres_and_keeps_its_shards(
    house: House, etcd: EtcdServer, settings: EtcdSettings, stack: contextlib.AsyncExitStack
) -> None:
    proxy = await stack.enter_async_context(proxy_to(etcd.url))
    cut = Scheduler(house, with_etcd(house, f"etcd://127.0.0.1:{proxy.port}", settings))
    other = Scheduler(house, with_etcd(house, etcd.address, settings))
    for each in (cut, other):
        stack.push_async_callback(each.stop)
    await _until_shared([cut, other])
    before = cut.epochs, other.epochs
    async with looking(cut, other) as gaps:
        proxy.go_silent()
        await until(lambda: cut.is_on_reserve and other.is_on_reserve)
        await _a_while(3 * LEASE)
        assert (cut.epochs, other.epochs) == before
        proxy.speak()
        await until(lambda: not cut.is_on_reserve and not other.is_on_reserve, within=30)
        await _a_while(2 * LEASE)
    assert (cut.epochs, other.epochs) == before
    assert gaps.longest <= LONGEST_GAP


async def test_who_is_cut_off_from_postgres_does_not_sit_on_its_shards(
    house: House, etcd: EtcdServer, settings: EtcdSettings, stack: contextlib.AsyncExitStack
) -> None:
    proxy = await stack.enter_async_context(proxy_to(house.url))
    far_house = await House.open(proxy.url, Settings())
    stack.push_async_callback(far_house.close)
    far = Scheduler(far_house, with_etcd(far_house, etcd.address, settings))
    near = Scheduler(house, with_etcd(house, etcd.address, settings))
    stack.push_async_callback(near.stop)
    await _until_shared([far, near])
    proxy.go_silent()
    # It still beats in etcd, where nobody would take anything from it.
    await until(lambda: len(near.epochs) == 64, within=15)
    proxy.speak()
    await _until_shared([far, near])
    await until(lambda: not far.is_on_reserve and not near.is_on_reserve, within=30)
    await far.stop()


async def test_schedulers_with_and_without_etcd_share_by_way_of_postgres(
    house: House, pair: list[Scheduler], stack: contextlib.AsyncExitStack
) -> None:
    plain = Scheduler(house, house.coordination())
    await until(lambda: all(each.is_on_reserve for each in pair), within=15)
    everyone = [*pair, plain]
    settled = [each.epochs for each in everyone]
    since = time.monotonic()

    def have_settled() -> bool:
        nonlocal settled, since
        now = [each.epochs for each in everyone]
        if now != settled or sorted(map(len, now)) != [21, 21, 22]:
            settled, since = now, time.monotonic()
        return time.monotonic() - since > 3 * LEASE.total_seconds()

    # Else they would go on taking shards from one another.
    await until(have_settled, within=30)
    await plain.stop()
    await _until_shared(pair)
    await until(lambda: not any(each.is_on_reserve for each in pair), within=15)


async def test_strangers_under_the_same_prefix_take_nothing_away(
    pair: list[Scheduler], etcd: EtcdServer, settings: EtcdSettings, stack: contextlib.AsyncExitStack
) -> None:
    stranger = EtcdCoordination(etcd.address, settings, on_error=telemetry.service_failed)
    stack.push_async_callback(stranger.close)
    ann = Member(uuid4())

    async def everybody_is_on_reserve() -> bool:
        await stranger.beat(ann, LEASE)
        return all(each.is_on_reserve for each in pair)

    async with looking(*pair) as gaps:
        await until_async(everybody_is_on_reserve, within=15)
        await stranger.leave(ann.id)
        await until(lambda: not any(each.is_on_reserve for each in pair), within=15)
        await _until_shared(pair)
    assert gaps.longest <= LONGEST_GAP


async def test_an_etcd_that_lost_its_data_is_gone_by_again(pair: list[Scheduler], etcd: EtcdServer) -> None:
    before = [each.epochs for each in pair]
    async with looking(*pair) as gaps:
        await asyncio.to_thread(etcd.stop)
        await until(lambda: all(each.is_on_reserve for each in pair))
        await asyncio.to_thread(etcd.wipe)
        await asyncio.to_thread(etcd.start)
        await until(lambda: not any(each.is_on_reserve for each in pair), within=30)
        await _a_while(2 * LEASE)
    assert gaps.longest <= LONGEST_GAP
    assert [each.epochs for each in pair] == before


async def test_an_etcd_restored_from_an_old_snapshot_is_gone_by_again(
    house: House,
    pair: list[Scheduler],
    etcd: EtcdServer,
    settings: EtcdSettings,
    stack: contextlib.AsyncExitStack,
) -> None:
    snapshot = await asyncio.to_thread(etcd.snapshot)
    # Since then one has died and another come.
    await pair[0].kill()
    third = Scheduler(house, with_etcd(house, etcd.address, settings))
    stack.push_async_callback(third.stop)
    now = [pair[1], third]
    await _until_shared(now)
    before = [each.epochs for each in now]
    async with looking(*now) as gaps:
        await asyncio.to_thread(etcd.stop)
        await until(lambda: all(each.is_on_reserve for each in now))
        await asyncio.to_thread(etcd.restore, snapshot)
        await asyncio.to_thread(etcd.start)
        await until(lambda: not any(each.is_on_reserve for each in now), within=30)
        await _a_while(2 * LEASE)
    assert gaps.longest <= LONGEST_GAP
    assert [each.epochs for each in now] == before


async def test_a_scheduler_starts_without_etcd_and_goes_by_it_when_it_comes(
    house: House, etcd: EtcdServer, settings: EtcdSettings, stack: contextlib.AsyncExitStack
) -> None:
    await asyncio.to_thread(etcd.stop)
    alone = Scheduler(house, with_etcd(house, etcd.address, settings))
    stack.push_async_callback(alone.stop)
    await until(lambda: len(alone.epochs) == 64, within=5)
    assert alone.is_on_reserve
    await asyncio.to_thread(etcd.start)
    await until(lambda: not alone.is_on_reserve, within=15)
    assert len(alone.epochs) == 64


async def test_the_shards_of_a_killed_scheduler_are_taken_over_within_a_second(
    house: House, etcd: EtcdServer, settings: EtcdSettings, stack: contextlib.AsyncExitStack
) -> None:
    lease = timedelta(milliseconds=500)
    first, second = (Scheduler(house, with_etcd(house, etcd.address, settings), lease) for _ in range(2))
    for each in (first, second):
        stack.push_async_callback(each.stop)
    await _until_shared([first, second])
    await first.kill()
    began = time.monotonic()
    await until(lambda: len(second.epochs) == 64, within=5)
    assert time.monotonic() - began <= 1


async def test_who_stops_hands_over_at_once(
    house: House, etcd: EtcdServer, settings: EtcdSettings, stack: contextlib.AsyncExitStack
) -> None:
    long = timedelta(seconds=60)
    first, second = (Scheduler(house, with_etcd(house, etcd.address, settings), long) for _ in range(2))
    stack.push_async_callback(second.stop)
    await _until_shared([first, second])
    await first.stop()
    await until(lambda: len(second.epochs) == 64, within=2)


async def _until_shared(schedulers: list[Scheduler]) -> None:
    share = 64 // len(schedulers)
    await until(lambda: all(len(each.epochs) == share for each in schedulers), within=20)


async def _a_while(length: timedelta) -> None:
    """Let time pass in which something could go wrong."""
    ended_at = time.monotonic() + length.total_seconds()
    await until(lambda: time.monotonic() > ended_at, within=60)
