"""Three servers of etcd: one may die, whichever it is; without a quorum it is as if all had."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from cronwell import errors, telemetry
from cronwell.coordination.etcd import EtcdCoordination
from cronwell.coordination.port import Member
from cronwell.runtime.service import run_services
from tests.support.etcd import EtcdServer, fresh_settings, temporary_cluster
from tests.support.waiting import until_async

TTL = timedelta(seconds=30)
ANN = Member(uuid4())


@pytest.fixture
def servers() -> Iterator[list[EtcdServer]]:
    with temporary_cluster(3) as started:
        yield started


async def test_any_server_may_die_and_without_a_quorum_nothing_is_had(servers: list[EtcdServer]) -> None:
    address = "etcd://" + ",".join(f"127.0.0.1:{each.port}" for each in servers)
    settings = fresh_settings(timeout=timedelta(seconds=3))
    coordination = EtcdCoordination(address, settings, on_error=telemetry.service_failed)
    told = 0

    def tell() -> None:
        nonlocal told
        told += 1

    async def beats() -> bool:
        with contextlib.suppress(errors.CoordinationUnavailable):
            return ANN.id in (await coordination.beat(ANN, TTL)).members
        return False

    stop = asyncio.Event()
    watching = asyncio.create_task(run_services([coordination.watch(tell)], stop=stop))
    await until_async(beats, within=20)
    for each in servers:
        await asyncio.to_thread(each.stop)
        await until_async(beats, within=20)
        # The watch, too, has found a server that lives.
        before = told

        async def is_told() -> bool:
            await coordination.take({"a": None}, ANN.id)
            await coordination.give(["a"], ANN.id)
            return told > before  # noqa: B023  # called in this turn of the loop only

        await until_async(is_told, within=20)
        await asyncio.to_thread(each.start)
    for each in servers[:2]:
        await asyncio.to_thread(each.stop)
    with pytest.raises(errors.CoordinationUnavailable):
        await coordination.beat(ANN, TTL)
    with pytest.raises(errors.CoordinationUnavailable):
        await coordination.take({"a": None}, ANN.id)
    stop.set()
    await watching
    await coordination.close()
