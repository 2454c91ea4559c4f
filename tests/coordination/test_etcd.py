"""What only etcd has: histories that are compacted, leases that end, data that come back from a backup."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from uuid import uuid4

import pytest

from cronwell import errors, telemetry
from cronwell.config import EtcdSettings
from cronwell.coordination import etcd as adapter
from cronwell.coordination.etcd import EtcdCoordination
from cronwell.coordination.gateway import Gateway, encode, starting_with
from cronwell.coordination.port import Member
from cronwell.runtime.service import run_services
from tests.support.etcd import fresh_settings
from tests.support.proxy import proxy_to
from tests.support.waiting import until, until_async

TTL = timedelta(seconds=30)
SHORT = timedelta(milliseconds=500)
ANN, BEN = Member(uuid4()), Member(uuid4())

Open = Callable[[], EtcdCoordination]


@pytest.fixture
def settings() -> EtcdSettings:
    return fresh_settings(timeout=timedelta(seconds=5))


@pytest.fixture
async def gateway(etcd_url: str, settings: EtcdSettings) -> AsyncIterator[Gateway]:
    opened = Gateway(etcd_url.replace("http", "etcd"), settings)
    yield opened
    await opened.close()


@pytest.fixture
async def open_one(etcd_url: str, settings: EtcdSettings) -> AsyncIterator[Open]:
    async with contextlib.AsyncExitStack() as stack:

        def one() -> EtcdCoordination:
            opened = EtcdCoordination(
                etcd_url.replace("http", "etcd"), settings, on_error=telemetry.service_failed
            )
            stack.push_async_callback(opened.close)
            return opened

        yield one


@contextlib.asynccontextmanager
async def watching(coordination: EtcdCoordination) -> AsyncIterator[list[float]]:
    """The times at which the watch told of a change."""
    told: list[float] = []
    stop = asyncio.Event()
    service = coordination.watch(lambda: told.append(time.monotonic()))
    task = asyncio.create_task(run_services([service], stop=stop))
    await until(lambda: told)
    yield told
    stop.set()
    await task


async def test_who_comes_new_believes_the_dead_for_their_ttl_and_not_longer(open_one: Open) -> None:
    old = open_one()
    await old.beat(ANN, SHORT)
    new = open_one()
    came = time.monotonic()
    assert ANN.id in (await new.beat(BEN, TTL)).members
    looked = time.monotonic()

    async def is_gone() -> bool:
        return ANN.id not in (await new.beat(BEN, TTL)).members

    await until_async(is_gone)
    assert time.monotonic() - came >= SHORT.total_seconds()
    assert time.monotonic() - looked < SHORT.total_seconds() + 1


async def test_the_first_who_finds_a_member_dead_tells_all_others(open_one: Open) -> None:
    await open_one().beat(ANN, SHORT)
    one = open_one()

    async def is_gone() -> bool:
        return ANN.id not in (await one.beat(BEN, TTL)).members

    await until_async(is_gone)
    await one.beat(BEN, TTL)
    assert ANN.id not in (await open_one().beat(Member(uuid4()), TTL)).members


async def test_a_beat_tells_nobody_but_the_end_of_a_members_time_does(open_one: Open) -> None:
    one, two = open_one(), open_one()
    await one.beat(ANN, SHORT)
    await two.beat(BEN, TTL)
    async with watching(two) as told:
        await until(lambda: len(told) == 1)
        # A beat is heard, and told to nobody; the alarm of the last one is.
        await one.beat(ANN, SHORT)
        beat = time.monotonic()
        await until(lambda: len(told) == 2)
        assert told[1] - beat >= SHORT.total_seconds() * 0.98
        assert told[1] - beat < SHORT.total_seconds() + 0.5


async def test_a_watch_outlives_the_compaction_of_what_it_has_not_seen(
    open_one: Open, gateway: Gateway, settings: EtcdSettings, etcd_url: str
) -> None:
    one = open_one()
    await one.beat(ANN, TTL)
    async with proxy_to(etcd_url) as proxy:
        far = EtcdCoordination(f"etcd://127.0.0.1:{proxy.port}", settings, on_error=telemetry.service_failed)
        async with watching(far) as told:
            proxy.go_silent()
            for _ in range(20):
                await one.beat(ANN, TTL)
            revision = (await gateway.call("/v3/kv/range", starting_with(settings.prefix)))["header"][
                "revision"
            ]
            await gateway.call("/v3/kv/compaction", {"revision": revision, "physical": True})
            before = len(told)
            proxy.speak()
            proxy.cut()
            await until(lambda: len(told) > before)
            before = len(told)
            await one.leave(ANN.id)
            await until(lambda: len(told) > before)
        await far.close()


async def test_a_watch_that_etcd_ends_is_made_again(open_one: Open) -> None:
    service = open_one().watch(lambda: None)
    assert isinstance(service, adapter.EtcdWatch)
    with pytest.raises(errors.CoordinationUnavailable, match="compacted up to 17"):
        service._hear({"canceled": True, "compact_revision": "17"})


async def test_a_lease_that_has_gone_is_granted_anew(
    open_one: Open, gateway: Gateway, settings: EtcdSettings
) -> None:
    one = open_one()
    await one.beat(ANN, TTL)
    assert await one.take({"a": None}, ANN.id) == {"a"}
    [entry] = (await gateway.call("/v3/kv/range", {"key": encode(f"{settings.prefix}members/{ANN.id}")}))[
        "kvs"
    ]
    await gateway.call("/v3/lease/revoke", {"ID": entry["lease"]})
    assert await one.take({"b": None}, ANN.id) == set(), "it was no member any more"
    view = await one.beat(ANN, TTL)
    assert (view.members, view.owners) == ({ANN.id: ANN}, {})
    assert await one.take({"b": None}, ANN.id) == {"b"}


async def test_a_lease_is_renewed_long_before_it_ends(
    open_one: Open, gateway: Gateway, settings: EtcdSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "SHORTEST_LEASE", 3)
    one = open_one()
    await one.beat(ANN, SHORT)
    ended_at = time.monotonic() + 5

    async def is_over() -> bool:
        assert ANN.id in (await one.beat(ANN, SHORT)).members
        return time.monotonic() > ended_at

    await one.take({"a": None}, ANN.id)
    await until_async(is_over)
    assert (await one.beat(ANN, SHORT)).owners == {"a": ANN.id}
    [entry] = (await gateway.call("/v3/kv/range", {"key": encode(f"{settings.prefix}duties/a")}))["kvs"]
    assert int(entry["lease"]) > 0


async def test_what_others_keep_under_the_prefix_is_let_be(
    open_one: Open, gateway: Gateway, settings: EtcdSettings
) -> None:
    for key, value in (
        ("members/nobody", "{}"),
        (f"members/{uuid4()}", "[]"),
        ("duties/a", "x"),
        ("more", ""),
    ):
        await gateway.call("/v3/kv/put", {"key": encode(settings.prefix + key), "value": encode(value)})
    one = open_one()
    view = await one.beat(ANN, TTL)
    assert (view.members, view.owners) == ({ANN.id: ANN}, {})


async def test_more_duties_than_fit_into_one_request_are_taken_and_given(open_one: Open) -> None:
    one, two = open_one(), open_one()
    await one.beat(ANN, TTL)
    await two.beat(BEN, TTL)
    names = {f"shard:{n:03d}" for n in range(250)}
    assert await two.take({"shard:100": None, "shard:249": None}, BEN.id) == {"shard:100", "shard:249"}
    assert await one.take(dict.fromkeys(names), ANN.id) == names - {"shard:100", "shard:249"}
    await one.give(names, ANN.id)
    assert (await two.beat(BEN, TTL)).owners == {"shard:100": BEN.id, "shard:249": BEN.id}
