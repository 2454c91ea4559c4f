"""What every coordinator promises: members that live as long as they say so, and one owner of each duty."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from cronwell import errors, telemetry
from cronwell.config import DatabaseSettings, EtcdSettings
from cronwell.coordination.etcd import EtcdCoordination
from cronwell.coordination.fallback import Fallback
from cronwell.coordination.gateway import encode
from cronwell.coordination.port import Coordination, Member, View
from cronwell.coordination.postgres import PostgresCoordination
from cronwell.runtime.postgres import Database
from cronwell.runtime.service import run_services
from tests.support.etcd import fresh_settings
from tests.support.proxy import Proxy, proxy_to
from tests.support.waiting import until, until_async

TTL = timedelta(seconds=30)
SHORT = timedelta(seconds=2)
"""Of this a quarter is the time that etcd has for an answer, also on a busy machine, before PostgreSQL is asked instead."""
ANN, BEN, CID = (Member(UUID(int=n)) for n in (1, 2, 3))


class Rig(ABC):
    """A coordinator as several processes see it, and trouble that can be made."""

    @abstractmethod
    async def process(self) -> Coordination:
        """The coordinator as another process has it."""

    @abstractmethod
    def lose_answers(self, word: str) -> None:
        """Let requests with this word in them be carried out, and their answers be lost."""

    @abstractmethod
    def heal(self) -> None:
        """Lose no more answers."""

    @abstractmethod
    async def go_away(self) -> None:
        """Let nothing through any more."""


class PostgresRig(Rig):
    def __init__(self, url: str, proxy: Proxy, stack: contextlib.AsyncExitStack) -> None:
        self._url = url
        self._proxy = proxy
        self._stack = stack

    async def process(self) -> Coordination:
        database = await Database.connect(
            DatabaseSettings(pool_size=8), self._proxy.url, application_name="test"
        )
        self._stack.push_async_callback(database.close)
        return PostgresCoordination(
            database, self._proxy.url, can_listen=True, on_error=telemetry.service_failed
        )

    def lose_answers(self, word: str) -> None:
        self._proxy.cut_after = word.encode()

    def heal(self) -> None:
        self._proxy.cut_after = None

    async def go_away(self) -> None:
        await self._proxy.close()


class EtcdRig(Rig):
    def __init__(self, proxy: Proxy, stack: contextlib.AsyncExitStack) -> None:
        self._proxy = proxy
        self._stack = stack
        self._settings: EtcdSettings = fresh_settings()

    async def process(self) -> Coordination:
        opened = EtcdCoordination(
            f"etcd://127.0.0.1:{self._proxy.port}", self._settings, on_error=telemetry.service_failed
        )
        self._stack.push_async_callback(opened.close)
        return opened

    def lose_answers(self, word: str) -> None:
        self._proxy.cut_after = encode(f"{self._settings.prefix}duties/{word}").encode()

    def heal(self) -> None:
        self._proxy.cut_after = None

    async def go_away(self) -> None:
        await self._proxy.close()


class FallbackRig(Rig):
    """etcd with PostgreSQL behind it, as schedulers have it."""

    def __init__(self, preferred: Rig, reserve: Rig, stack: contextlib.AsyncExitStack) -> None:
        self._preferred = preferred
        self._reserve = reserve
        self._stack = stack

    async def process(self) -> Coordination:
        opened = Fallback(await self._preferred.process(), await self._reserve.process())
        self._stack.push_async_callback(opened.close)
        return opened

    def lose_answers(self, word: str) -> None:
        self._preferred.lose_answers(word)

    def heal(self) -> None:
        self._preferred.heal()

    async def go_away(self) -> None:
        await self._preferred.go_away()
        await self._reserve.go_away()


@contextlib.asynccontextmanager
async def _postgres(url: str) -> AsyncIterator[Rig]:
    async with proxy_to(url) as proxy, contextlib.AsyncExitStack() as stack:
        yield PostgresRig(url, proxy, stack)


@contextlib.asynccontextmanager
async def _etcd(url: str) -> AsyncIterator[Rig]:
    async with proxy_to(url, awaits_answer=True) as proxy, contextlib.AsyncExitStack() as stack:
        yield EtcdRig(proxy, stack)


@contextlib.asynccontextmanager
async def _fallback(etcd_url: str, database_url: str) -> AsyncIterator[Rig]:
    async with (
        _etcd(etcd_url) as preferred,
        _postgres(database_url) as reserve,
        contextlib.AsyncExitStack() as stack,
    ):
        yield FallbackRig(preferred, reserve, stack)


# Each with the fixtures that have the addresses of its servers.
IMPLEMENTATIONS: dict[str, tuple[Callable[..., contextlib.AbstractAsyncContextManager[Rig]], list[str]]] = {
    "postgres": (_postgres, ["migrated_url"]),
    "etcd": (_etcd, ["etcd_url"]),
    "etcd with postgres behind it": (_fallback, ["etcd_url", "migrated_url"]),
}


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest) -> contextlib.AbstractAsyncContextManager[Rig]:
    make, servers = IMPLEMENTATIONS[request.param]
    return make(*(request.getfixturevalue(server) for server in servers))


@pytest.fixture
async def rig(implementation: contextlib.AbstractAsyncContextManager[Rig]) -> AsyncIterator[Rig]:
    async with implementation as made:
        yield made


@pytest.fixture
async def one(rig: Rig) -> Coordination:
    return await rig.process()


@pytest.fixture
async def two(rig: Rig) -> Coordination:
    return await rig.process()


async def test_a_member_sees_itself_and_the_others_with_what_they_tell(
    one: Coordination, two: Coordination
) -> None:
    assert (await one.beat(ANN, TTL)).members == {ANN.id: ANN}
    ben = Member(BEN.id, weight=0.25, reaches=False)
    assert (await two.beat(ben, TTL)).members == {ANN.id: ANN, BEN.id: ben}
    assert (await one.beat(ANN, TTL)).members == {ANN.id: ANN, BEN.id: ben}
    await two.beat(BEN, TTL)
    assert (await one.beat(ANN, TTL)).members == {ANN.id: ANN, BEN.id: BEN}


async def test_a_member_that_falls_silent_is_none_any_more_but_not_before_its_time(
    one: Coordination, two: Coordination
) -> None:
    await one.beat(BEN, TTL)
    asked = time.monotonic()
    await two.beat(ANN, SHORT)

    async def is_gone() -> bool:
        return ANN.id not in (await one.beat(BEN, TTL)).members

    await until_async(is_gone)
    # Whoever counts from before its request cannot have believed in it any longer.
    assert time.monotonic() - asked >= SHORT.total_seconds()


async def test_a_member_lives_as_long_as_it_beats(one: Coordination, two: Coordination) -> None:
    began = time.monotonic()
    while time.monotonic() < began + 3 * SHORT.total_seconds():
        await two.beat(ANN, SHORT)
        assert ANN.id in (await one.beat(BEN, TTL)).members


async def test_a_member_that_slept_comes_back_and_sees_what_became_of_its_duties(
    one: Coordination, two: Coordination
) -> None:
    await one.beat(ANN, SHORT)
    assert await one.take({"a": None, "b": None}, ANN.id) == {"a", "b"}
    view = await _until_gone(two, ANN)
    assert await two.take({"a": view.owners["a"]}, BEN.id) == {"a"}
    back = await one.beat(ANN, TTL)
    assert back.members.keys() == {ANN.id, BEN.id}
    assert (back.held_by(ANN.id), back.held_by(BEN.id)) == ({"b"}, {"a"})


async def test_a_free_duty_is_had_at_once_and_everybody_sees_whose_it_is(
    one: Coordination, two: Coordination
) -> None:
    await one.beat(ANN, TTL)
    assert await one.take({"a": None, "b": None}, ANN.id) == {"a", "b"}
    view = await two.beat(BEN, TTL)
    assert view.owners == {"a": ANN.id, "b": ANN.id}
    assert view.held_by(ANN.id) == {"a", "b"}


async def test_a_duty_that_is_not_as_it_was_seen_is_not_had(one: Coordination, two: Coordination) -> None:
    await one.beat(ANN, TTL)
    await two.beat(BEN, TTL)
    await one.take({"a": None}, ANN.id)
    assert await two.take({"a": None, "b": None}, BEN.id) == {"b"}
    assert await two.take({"a": CID.id, "c": CID.id}, BEN.id) == set()
    assert (await one.beat(ANN, TTL)).owners == {"a": ANN.id, "b": BEN.id}


async def test_a_duty_can_be_taken_from_the_owner_it_was_seen_with(
    one: Coordination, two: Coordination
) -> None:
    await one.beat(ANN, TTL)
    await two.beat(BEN, TTL)
    await one.take({"a": None}, ANN.id)
    assert await two.take({"a": ANN.id}, BEN.id) == {"a"}
    assert (await one.beat(ANN, TTL)).owners == {"a": BEN.id}


async def test_who_is_no_member_takes_nothing(one: Coordination) -> None:
    assert await one.take({"a": None}, ANN.id) == set()
    await one.beat(BEN, TTL)
    await one.beat(ANN, SHORT)
    await _until_gone(one, ANN)
    assert await one.take({"a": None}, ANN.id) == set()


async def test_a_duty_given_back_is_free_at_once(one: Coordination, two: Coordination) -> None:
    await one.beat(ANN, TTL)
    await two.beat(BEN, TTL)
    await one.take({"a": None, "b": None}, ANN.id)
    await one.give(["a"], ANN.id)
    view = await two.beat(BEN, TTL)
    assert view.owners == {"b": ANN.id}
    assert await two.take({"a": None}, BEN.id) == {"a"}


async def test_only_its_owner_gives_a_duty_back(one: Coordination, two: Coordination) -> None:
    await one.beat(ANN, TTL)
    await one.take({"a": None}, ANN.id)
    await two.beat(BEN, TTL)
    await two.give(["a", "never"], BEN.id)
    assert (await two.beat(BEN, TTL)).owners == {"a": ANN.id}


async def test_who_leaves_has_nothing_and_is_no_member(one: Coordination, two: Coordination) -> None:
    await one.beat(ANN, TTL)
    await one.take({"a": None, "b": None}, ANN.id)
    await one.leave(ANN.id)
    view = await two.beat(BEN, TTL)
    assert view == View({BEN.id: BEN}, {})


async def test_of_many_who_want_a_duty_one_has_it(rig: Rig) -> None:
    processes = [await rig.process() for _ in range(6)]
    members = [Member(uuid4()) for _ in processes]
    for process, member in zip(processes, members, strict=True):
        await process.beat(member, TTL)
    names = [f"shard:{n:02d}" for n in range(64)]
    orders = [names if n % 2 else names[::-1] for n in range(6)]
    had = await asyncio.gather(
        *(
            process.take(dict.fromkeys(order), member.id)
            for process, member, order in zip(processes, members, orders, strict=True)
        )
    )
    view = await processes[0].beat(members[0], TTL)
    assert sum(len(each) for each in had) == len(set().union(*had))
    assert view.owners == {
        name: member.id for member, each in zip(members, had, strict=True) for name in each
    }
    assert len(view.owners) == 64


async def test_of_many_who_come_for_a_dead_ones_duties_each_is_had_once(rig: Rig) -> None:
    processes = [await rig.process() for _ in range(4)]
    await processes[0].beat(ANN, SHORT)
    names = [f"shard:{n:02d}" for n in range(16)]
    await processes[0].take(dict.fromkeys(names), ANN.id)
    members = [Member(uuid4()) for _ in processes]
    for process, member in zip(processes, members, strict=True):
        await process.beat(member, TTL)
    seen = (await _until_gone(processes[1], ANN)).owners
    had = await asyncio.gather(
        *(
            process.take({name: seen[name] for name in names}, member.id)
            for process, member in zip(processes, members, strict=True)
        )
    )
    assert sorted(name for each in had for name in each) == names


async def test_others_are_told_when_a_duty_is_given_back_or_a_member_comes_or_goes(rig: Rig) -> None:
    one, two = await rig.process(), await rig.process()
    await one.beat(ANN, TTL)
    await one.take({"a": None}, ANN.id)
    told = 0

    def tell() -> None:
        nonlocal told
        told += 1

    stop = asyncio.Event()
    watching = asyncio.create_task(run_services([two.watch(tell)], stop=stop))
    # It tells once it hears: what went before that is for the one who watches to look at.
    await until(lambda: told > 0)
    for change in (lambda: one.give(["a"], ANN.id), lambda: one.beat(CID, TTL), lambda: one.leave(CID.id)):
        before = told
        await change()
        await until(lambda: told > before, within=5)  # noqa: B023
    stop.set()
    await watching


async def test_an_error_is_never_ownership(rig: Rig, one: Coordination) -> None:
    await one.beat(ANN, TTL)
    await rig.go_away()
    with pytest.raises(errors.CoordinationUnavailable):
        await one.beat(ANN, TTL)
    with pytest.raises(errors.CoordinationUnavailable):
        await one.take({"a": None}, ANN.id)
    with pytest.raises(errors.CoordinationUnavailable):
        await one.give(["a"], ANN.id)
    with pytest.raises(errors.CoordinationUnavailable):
        await one.leave(ANN.id)


async def test_a_duty_whose_answer_was_lost_is_not_had_until_it_is_seen_to_be(
    rig: Rig, one: Coordination
) -> None:
    await one.beat(ANN, TTL)
    rig.lose_answers("chore:lost")
    with pytest.raises(errors.CoordinationUnavailable):
        await one.take({"chore:lost": None}, ANN.id)
    rig.heal()

    async def is_seen() -> bool:
        """It was carried out. Who goes by another coordinator for a moment sees it when the first one is back."""
        with contextlib.suppress(errors.CoordinationUnavailable):
            return (await one.beat(ANN, TTL)).held_by(ANN.id) == {"chore:lost"}
        return False

    await until_async(is_seen)


async def _until_gone(coordination: Coordination, member: Member) -> View:
    """Wait, as Ben, until a member is believed no more."""

    async def look() -> View | None:
        view = await coordination.beat(BEN, TTL)
        return None if member.id in view.members else view

    view = await until_async(look)
    assert view is not None
    return view
