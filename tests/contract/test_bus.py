"""What every bus promises: hints come to those who asked, all of them after a gap, and publishing never fails."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from uuid import uuid4

import pytest

from cronwell.bus.port import Bus, orders_for, work_in
from cronwell.bus.postgres import PostgresBus
from cronwell.config import DatabaseSettings
from cronwell.runtime.postgres import Database
from tests.support.pooler import pooler_to
from tests.support.proxy import Proxy, proxy_to
from tests.support.waiting import until


class Rig(ABC):
    """A bus, the trouble that can be made for it, and what it said about that."""

    bus: Bus

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def report(self, service: str, error: Exception, retry_in: float) -> None:
        self.errors.append(error)

    @abstractmethod
    async def other_bus(self) -> Bus:
        """A bus of another process, which the trouble made here does not reach."""

    @abstractmethod
    def interrupt(self) -> None:
        """Cut every connection once; it can be made again at once."""

    @abstractmethod
    async def go_away(self) -> None:
        """Let nothing through any more."""


class PostgresRig(Rig):
    def __init__(self, database: Database, direct: Database, url: str, proxy: Proxy) -> None:
        super().__init__()
        self._direct = direct
        self._url = url
        self._proxy = proxy
        self.bus = PostgresBus(database, proxy.url, can_listen=True, on_error=self.report)

    async def other_bus(self) -> Bus:
        return PostgresBus(self._direct, self._url, can_listen=True, on_error=self.report)

    def interrupt(self) -> None:
        self._proxy.cut()

    async def go_away(self) -> None:
        await self._proxy.close()


@contextlib.asynccontextmanager
async def _postgres(url: str) -> AsyncIterator[Rig]:
    async with proxy_to(url) as proxy:
        opened = [
            await Database.connect(DatabaseSettings(), each, application_name="test")
            for each in (proxy.url, url)
        ]
        try:
            yield PostgresRig(opened[0], opened[1], url, proxy)
        finally:
            for each in opened:
                await each.close()


IMPLEMENTATIONS = {"postgres": _postgres}


@pytest.fixture(params=IMPLEMENTATIONS)
async def rig(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[Rig]:
    async with IMPLEMENTATIONS[request.param](database_url) as made:
        yield made


@dataclass
class Ear:
    """All that one subscriber heard."""

    heard: list[str] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.heard)


@contextlib.asynccontextmanager
async def subscribed(bus: Bus, *topics: str) -> AsyncIterator[Ear]:
    """A subscriber that has begun to hear and whose first hints, of what it may have missed, are forgotten."""
    ear = Ear()
    service = bus.subscribe(topics, ear.heard.append)
    running = asyncio.create_task(service.run())
    try:
        await until(lambda: set(ear.heard) == set(topics))
        ear.heard.clear()
        yield ear
    finally:
        service.stop()
        await asyncio.wait_for(running, 5)


async def test_a_hint_reaches_every_subscriber_of_its_topic(rig: Rig) -> None:
    other = await rig.other_bus()
    async with subscribed(rig.bus, "work:a") as here, subscribed(other, "work:a", "work:b") as there:
        await rig.bus.publish(["work:a"])
        await until(lambda: here.heard and there.heard)
        assert (here.heard, there.heard) == (["work:a"], ["work:a"])


async def test_only_the_topics_that_were_asked_for_are_heard(rig: Rig) -> None:
    async with subscribed(rig.bus, "work:a", "work:c") as ear:
        await rig.bus.publish(["work:b", "work:", "work:A", "work:a b"])
        await rig.bus.publish(["work:a"])
        await until(lambda: "work:a" in ear.heard)
        assert ear.heard == ["work:a"]


async def test_several_topics_go_in_one_call_and_doubles_do_no_harm(rig: Rig) -> None:
    async with subscribed(rig.bus, "work:a", "work:b") as ear:
        await rig.bus.publish(["work:a", "work:b", "work:a"])
        await until(lambda: set(ear.heard) == {"work:a", "work:b"})


async def test_the_topics_of_pools_and_workers_are_carried(rig: Rig) -> None:
    topics = [work_in("p" * 63), work_in("a_b-c"), orders_for(uuid4())]
    async with subscribed(rig.bus, *topics) as ear:
        await rig.bus.publish(topics)
        await until(lambda: set(ear.heard) == set(topics))


async def test_publishing_nothing_is_nothing(rig: Rig) -> None:
    async with subscribed(rig.bus, "work:a") as ear:
        await rig.bus.publish([])
        await rig.bus.publish(["work:a"])
        await until(lambda: ear.heard)
        assert ear.heard == ["work:a"]
    assert rig.errors == []


async def test_many_publishers_at_once_are_all_heard(rig: Rig) -> None:
    topics = [f"work:{n}" for n in range(40)]
    async with subscribed(rig.bus, *topics) as ear:
        await asyncio.gather(*(rig.bus.publish([topic]) for topic in topics))
        await until(lambda: set(ear.heard) == set(topics))


async def test_after_a_gap_in_hearing_every_topic_is_hinted(rig: Rig) -> None:
    other = await rig.other_bus()
    async with subscribed(rig.bus, "work:a", "work:b") as ear:
        for _ in range(3):
            rig.interrupt()
            # Sent into the gap, so perhaps heard by nobody.
            await other.publish(["work:a"])
            await until(lambda: set(ear.heard) == {"work:a", "work:b"})
            ear.heard.clear()
        await other.publish(["work:b"])
        await until(lambda: "work:b" in ear.heard)


async def test_publishing_never_fails_for_the_caller(rig: Rig) -> None:
    rig.interrupt()
    await rig.bus.publish(["work:a"])
    await rig.go_away()
    await rig.bus.publish(["work:a"])
    assert rig.errors, "but an operator hears of it"


async def test_a_subscriber_waits_for_a_bus_that_is_away(rig: Rig) -> None:
    await rig.go_away()
    ear = Ear()
    service = rig.bus.subscribe(["work:a"], ear.heard.append)
    running = asyncio.create_task(service.run())
    await until(lambda: rig.errors)
    assert not running.done()
    service.stop()
    await asyncio.wait_for(running, 5)
    assert ear.heard == []


async def test_nothing_is_heard_after_the_stop(rig: Rig) -> None:
    async with subscribed(rig.bus, "work:a") as ear:
        pass
    async with subscribed(rig.bus, "work:a") as witness:
        await rig.bus.publish(["work:a"])
        await until(lambda: witness.heard)
    assert ear.heard == []


async def test_behind_a_transaction_pooler_it_is_deaf_but_not_mute(database_url: str) -> None:
    errors: list[object] = []

    def report(*what: object) -> None:
        errors.append(what)

    async with pooler_to(database_url) as pooler:
        pooled = await Database.connect(DatabaseSettings(pooler=True), pooler.url, application_name="test")
        direct = await Database.connect(DatabaseSettings(), database_url, application_name="test")
        try:
            behind = PostgresBus(pooled, pooler.url, can_listen=False, on_error=report)
            beside = PostgresBus(direct, database_url, can_listen=True, on_error=report)
            ear = Ear()
            deaf = behind.subscribe(["work:a"], ear.heard.append)
            running = asyncio.create_task(deaf.run())
            async with subscribed(beside, "work:a") as witness:
                await behind.publish(["work:a"])
                await until(lambda: witness.heard)
            assert not running.done(), "it lives until it is stopped, as every service"
            deaf.stop()
            await asyncio.wait_for(running, 5)
            assert ear.heard == []
        finally:
            await pooled.close()
            await direct.close()
    assert errors == []
