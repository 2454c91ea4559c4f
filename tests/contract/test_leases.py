"""What every keeper of leases promises: one owner at a time, growing epochs, and no ownership out of an error."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import pairwise
from uuid import UUID, uuid4

import pytest

from cronwell import errors
from cronwell.config import DatabaseSettings
from cronwell.coordination.port import Leases
from cronwell.coordination.postgres import PostgresLeases
from cronwell.runtime.clock import ManualClock
from cronwell.runtime.postgres import Database
from tests.support.proxy import Proxy, proxy_to

TTL = timedelta(seconds=10)
ANN, BEN, CID = (UUID(int=n) for n in (1, 2, 3))


class Rig(ABC):
    """Leases, time that can be let pass, and trouble that can be made."""

    leases: Leases

    @abstractmethod
    async def pass_time(self, length: timedelta) -> None:
        """Let leases grow older."""

    @abstractmethod
    def lose_answers(self, name: str) -> None:
        """Let requests for this lease be carried out, and their answers be lost."""

    @abstractmethod
    def heal(self) -> None:
        """Lose no more answers."""

    @abstractmethod
    async def go_away(self) -> None:
        """Let nothing through any more."""


class PostgresRig(Rig):
    def __init__(self, database: Database, proxy: Proxy) -> None:
        self._clock = ManualClock()
        self._proxy = proxy
        self.leases = PostgresLeases(database, self._clock)

    async def pass_time(self, length: timedelta) -> None:
        self._clock.advance(length)

    def lose_answers(self, name: str) -> None:
        self._proxy.cut_after = name.encode()

    def heal(self) -> None:
        self._proxy.cut_after = None

    async def go_away(self) -> None:
        await self._proxy.close()


@contextlib.asynccontextmanager
async def _postgres(url: str) -> AsyncIterator[Rig]:
    async with proxy_to(url) as proxy:
        database = await Database.connect(DatabaseSettings(pool_size=20), proxy.url, application_name="test")
        try:
            yield PostgresRig(database, proxy)
        finally:
            await database.close()


IMPLEMENTATIONS = {"postgres": _postgres}


@pytest.fixture(params=IMPLEMENTATIONS)
async def rig(request: pytest.FixtureRequest, migrated_url: str) -> AsyncIterator[Rig]:
    async with IMPLEMENTATIONS[request.param](migrated_url) as made:
        yield made


@pytest.fixture
def leases(rig: Rig) -> Leases:
    return rig.leases


async def test_a_free_lease_is_had_at_once(leases: Leases) -> None:
    assert set(await leases.acquire(["rescue"], ANN, TTL)) == {"rescue"}


async def test_a_held_lease_is_not_given_to_another(leases: Leases) -> None:
    await leases.acquire(["rescue"], ANN, TTL)
    assert await leases.acquire(["rescue"], BEN, TTL) == {}


async def test_keeping_a_lease_keeps_its_epoch_and_lengthens_it(rig: Rig, leases: Leases) -> None:
    first = await leases.acquire(["rescue"], ANN, TTL)
    for _ in range(5):
        await rig.pass_time(TTL * 0.9)
        assert await leases.acquire(["rescue"], ANN, TTL) == first
        assert await leases.acquire(["rescue"], BEN, TTL) == {}


async def test_a_lease_ends_with_its_time_and_another_takes_it_in_a_new_epoch(
    rig: Rig, leases: Leases
) -> None:
    first = await leases.acquire(["rescue"], ANN, TTL)
    await rig.pass_time(TTL - timedelta(milliseconds=1))
    assert await leases.acquire(["rescue"], BEN, TTL) == {}
    await rig.pass_time(timedelta(milliseconds=1))
    second = await leases.acquire(["rescue"], BEN, TTL)
    assert second["rescue"] > first["rescue"]
    assert await leases.acquire(["rescue"], ANN, TTL) == {}


async def test_an_owner_that_slept_through_its_lease_starts_a_new_epoch(rig: Rig, leases: Leases) -> None:
    first = await leases.acquire(["rescue"], ANN, TTL)
    await rig.pass_time(TTL * 2)
    assert (await leases.acquire(["rescue"], ANN, TTL))["rescue"] > first["rescue"]


async def test_a_lease_given_back_is_free_at_once(leases: Leases) -> None:
    first = await leases.acquire(["rescue"], ANN, TTL)
    await leases.release(["rescue"], ANN)
    assert (await leases.acquire(["rescue"], BEN, TTL))["rescue"] > first["rescue"]


async def test_only_its_owner_can_give_a_lease_back(leases: Leases) -> None:
    await leases.acquire(["rescue"], ANN, TTL)
    await leases.release(["rescue", "never-held"], BEN)
    assert await leases.acquire(["rescue"], BEN, TTL) == {}


async def test_who_comes_late_to_give_back_takes_nothing_from_the_next_owner(
    rig: Rig, leases: Leases
) -> None:
    await leases.acquire(["rescue"], ANN, TTL)
    await rig.pass_time(TTL)
    await leases.acquire(["rescue"], BEN, TTL)
    await leases.release(["rescue"], ANN)
    assert await leases.acquire(["rescue"], CID, TTL) == {}


async def test_of_many_leases_those_that_are_free_are_had(leases: Leases) -> None:
    await leases.acquire(["b"], BEN, TTL)
    assert set(await leases.acquire(["a", "b", "c", "a"], ANN, TTL)) == {"a", "c"}
    assert await leases.acquire([], ANN, TTL) == {}
    await leases.release(["a", "c", "a"], ANN)
    assert set(await leases.acquire(["c", "a"], CID, TTL)) == {"a", "c"}


async def test_many_contenders_have_one_owner_at_any_instant(leases: Leases) -> None:
    holders: set[UUID] = set()
    epochs: list[int] = []

    async def contend(owner: UUID) -> None:
        won = 0
        while won < 3:
            held = await leases.acquire(["rescue"], owner, TTL)
            if not held:
                continue
            assert not holders, "somebody else holds it"
            holders.add(owner)
            epochs.append(held["rescue"])
            assert await leases.acquire(["rescue"], owner, TTL) == held
            holders.remove(owner)
            await leases.release(["rescue"], owner)
            won += 1

    await asyncio.gather(*(contend(uuid4()) for _ in range(10)))
    assert len(epochs) == 30
    assert all(earlier < later for earlier, later in pairwise(epochs))


async def test_of_many_who_come_at_the_end_of_a_lease_one_takes_it_over(rig: Rig, leases: Leases) -> None:
    await leases.acquire(["rescue"], ANN, TTL)
    for _ in range(5):
        await rig.pass_time(TTL)
        answers = await asyncio.gather(*(leases.acquire(["rescue"], uuid4(), TTL) for _ in range(20)))
        assert [bool(answer) for answer in answers].count(True) == 1


async def test_contenders_for_the_same_leases_in_different_order_do_not_block_each_other(
    leases: Leases,
) -> None:
    names = [f"shard-{n}" for n in range(64)]
    orders = [names if n % 2 else names[::-1] for n in range(20)]
    answers = await asyncio.gather(*(leases.acquire(order, uuid4(), TTL) for order in orders))
    assert sorted(name for answer in answers for name in answer) == sorted(names)


async def test_an_error_is_never_ownership(rig: Rig, leases: Leases) -> None:
    await leases.acquire(["rescue"], ANN, TTL)
    await rig.go_away()
    with pytest.raises(errors.StoreUnavailable):
        await leases.acquire(["rescue"], ANN, TTL)
    with pytest.raises(errors.StoreUnavailable):
        await leases.release(["rescue"], ANN)


async def test_a_lease_whose_answer_was_lost_is_not_held_until_it_is_asked_for_again(
    rig: Rig, leases: Leases
) -> None:
    rig.lose_answers("rescue")
    with pytest.raises(errors.StoreUnavailable):
        await leases.acquire(["rescue"], ANN, TTL)
    rig.heal()
    assert await leases.acquire(["rescue"], BEN, TTL) == {}, "it was carried out"
    assert set(await leases.acquire(["rescue"], ANN, TTL)) == {"rescue"}
