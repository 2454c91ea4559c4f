"""Scheduler processes that share by way of etcd: one is killed, then etcd."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from uuid import UUID

from cronwell.model.shards import SHARDS
from tests.support.etcd import temporary_etcd
from tests.support.house import House
from tests.support.processes import Process, cluster
from tests.support.waiting import until, until_async

FELL_BACK = "schedulers share by way of PostgreSQL"
IS_BACK = "schedulers share by way of etcd again"


async def test_schedulers_go_on_when_one_is_killed_and_when_etcd_is(house: House) -> None:
    async def owners() -> Counter[UUID | None]:
        return Counter(each.owner for each in await house.store.list_shards())

    async def are_shared(count: int) -> bool:
        found = await owners()
        return len(found) == count and house.every_shard.member not in found

    async def are_even() -> bool:
        return sorted((await owners()).values()) == [SHARDS // 2, SHARDS // 2]

    with (
        temporary_etcd() as etcd,
        cluster(
            CRONWELL_DATABASE_URL=house.url,
            CRONWELL_COORDINATION=etcd.address,
            CRONWELL_SCHEDULER_LEASE="500ms",
            # The machine may be busy with other tests: a slow answer is not what is tested here.
            CRONWELL_ETCD_TIMEOUT="2s",
        ) as processes,
    ):
        first = processes.start("scheduler")
        await until_async(lambda: are_shared(1), within=30)
        second = processes.start("scheduler")
        await until_async(lambda: are_shared(2), within=30)
        await until_async(are_even, within=30)

        first.kill()
        began = time.monotonic()
        await until_async(lambda: are_shared(1), within=10)
        took = time.monotonic() - began
        assert took <= 1.0

        third = processes.start("scheduler")
        await until_async(are_even, within=30)
        survivors = [second, third]
        await asyncio.to_thread(etcd.stop)
        await until(lambda: all(_last(each) == FELL_BACK for each in survivors), within=20)
        await asyncio.to_thread(etcd.start)
        await until(lambda: all(_last(each) == IS_BACK for each in survivors), within=20)
        assert all(each.is_running for each in survivors)

        assert second.stop() == 0
        await until_async(lambda: are_shared(1), within=5)
        assert third.stop() == 0


def _last(process: Process) -> str | None:
    """Which of the two it said last, if any: on a busy machine it may have left etcd, and come back, before."""
    places = {event: process.output.rfind(event) for event in (FELL_BACK, IS_BACK)}
    last = max(places, key=places.__getitem__)
    return last if places[last] >= 0 else None
