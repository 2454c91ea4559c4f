"""A process tells the cluster that it is there, and nothing depends on whether that can be written."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import uuid4

from cronwell import __version__, meters
from cronwell.control.cluster import Cluster
from cronwell.control.presence import Presence
from cronwell.runtime.clock import ManualClock
from cronwell.runtime.node import Identity, this_process
from cronwell.runtime.service import run_services
from cronwell.scheduler.chores.retention import Retention
from cronwell.store.port import Node
from tests.support.house import House
from tests.support.waiting import until, until_async


def _presence(house: House, stop: asyncio.Event) -> Presence:
    return Presence(house.store, house.clock, "worker", Identity(uuid4(), "here:1"), stop.set)


async def _nodes(house: House) -> list[Node]:
    return await house.store.list_nodes(house.clock.now() - timedelta(days=2))


async def test_a_process_enters_itself_hears_of_the_drain_and_says_that_it_has_stopped(house: House) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(run_services([_presence(house, stop)], stop=stop))
    [node] = await until_async(lambda: _nodes(house))
    assert (node.role, node.name, node.version, node.stopped_at) == ("worker", "here:1", __version__, None)
    cluster = Cluster(house.store, house.clock, house.settings)
    assert (await cluster.drain("here:1")).state == "draining"
    await until(stop.is_set)
    await running
    [node] = await _nodes(house)
    assert node.stopped_at is not None


async def test_a_process_lives_on_while_nothing_of_it_can_be_written(house: House) -> None:
    await house.database.execute("alter table nodes rename to put_aside")
    stop = asyncio.Event()
    failures = meters.FAILURES.labels("presence")
    before = failures._value.get()
    running = asyncio.create_task(run_services([_presence(house, stop)], stop=stop))
    await until(lambda: failures._value.get() > before)
    await house.database.execute("alter table put_aside rename to nodes")
    await until_async(lambda: _nodes(house))
    await house.database.execute("alter table nodes rename to put_aside")
    stop.set()
    async with asyncio.timeout(10):
        await asyncio.wait([running])
    assert running.done()
    await house.database.execute("alter table put_aside rename to nodes")
    assert not running.exception()


async def test_old_processes_are_forgotten(still_house: House, clock: ManualClock) -> None:
    stop = asyncio.Event()
    await _presence(still_house, stop).beat()
    retention = Retention(still_house.store, clock, still_house.settings.retention)
    clock.advance(timedelta(hours=23))
    await retention.run_once()
    assert len(await _nodes(still_house)) == 1
    clock.advance(timedelta(hours=2))
    await retention.run_once()
    assert await _nodes(still_house) == []


async def test_a_worker_is_known_by_its_process_also_under_a_new_id(house: House) -> None:
    async with house.working(lease=timedelta(seconds=1), heartbeat=timedelta(milliseconds=50)):
        [first] = await house.store.list_workers(house.clock.now())
        await house.database.execute("update workers set state = 'lost'")

        async def renewed() -> bool:
            workers = await house.store.list_workers(house.clock.now())
            return any(each.state == "active" and each.id != first.id for each in workers)

        await until_async(renewed)
        workers = await house.store.list_workers(house.clock.now())
    assert {each.node for each in workers} == {this_process().id}
