"""A worker's queue: in order while there is room, by shares while there is not, and never a place left empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from cronwell.config import DatabaseSettings
from cronwell.runtime import resting
from cronwell.runtime.postgres import Database
from cronwell.store.port import Claimed
from cronwell.store.postgres.store import PostgresStore
from cronwell.worker import queue as queue_module
from cronwell.worker import reach as reach_module
from cronwell.worker.queue import Queue
from cronwell.worker.reach import Reach
from tests.contract.desk import NOON, SECOND, Desk

HERD, OTHER, HEAVY = 1, 2, 3
TICK = timedelta(milliseconds=1)


@dataclass
class Watch:
    """A clock that goes when it is told to, in place of the module `time`."""

    shows: float = 0.0

    def monotonic(self) -> float:
        return self.shows


@dataclass
class Shop:
    """A queue, and a worker that claims from it."""

    desk: Desk
    queue: Queue
    reach: Reach
    worker: UUID

    async def fill(self, tenant: int, count: int, *, late: timedelta = SECOND) -> None:
        """Make so many executions of a tenant due, one after the other from `late` before now on."""
        job = await self.desk.job(tenant_id=tenant)
        await self.desk.staged(job, *(NOON - late + n * TICK for n in range(count)))

    async def fill_old(self, tenant: int, *, late: timedelta) -> None:
        """Make an execution due whose slot was days ago."""
        job = await self.desk.job(tenant_id=tenant)
        await self.desk.staged(job, NOON - timedelta(days=9), ready_at=NOON - late)

    async def claim(self, places: int) -> Counter[int]:
        claims = await self.queue.claim(self.worker, places, ready_by=NOON, now=NOON)
        return Counter(claim.tenant_id for claim in claims)


@pytest.fixture
async def shop(migrated_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    monkeypatch.setattr(queue_module, "STALE_AFTER", 0.0)
    monkeypatch.setattr(resting, "FACTOR", 0.0)
    database = await Database.connect(DatabaseSettings(), migrated_url, application_name="test", is_hot=True)
    for tenant, weight in ((OTHER, 1.0), (HEAVY, 3.0)):
        await database.execute(
            "insert into tenants (id, name, weight, signing_secret) values ($1, $2, $3, 'whsec_other')",
            tenant,
            f"tenant {tenant}",
            weight,
        )
    store = PostgresStore(database)
    desk = Desk(store, lambda: store, lambda worker: database.execute("select $1::uuid", worker))
    reach = Reach()
    yield Shop(desk, Queue(store, "default", 1, reach), reach, await desk.worker())
    await database.close()


@pytest.fixture
def one_look(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked up once who has something waiting, and only the first round looks back unless it is told to."""
    for seconds in ("STALE_AFTER", "STALE_AT_LAST"):
        monkeypatch.setattr(queue_module, seconds, 1e9)
    for every in ("WHOLE_EVERY", "FAR_EVERY"):
        monkeypatch.setattr(reach_module, every, 1e9)


async def test_one_that_is_due_behind_a_herd_is_in_the_next_claim(shop: Shop) -> None:
    await shop.fill(HERD, 500, late=2 * SECOND)
    await shop.fill(OTHER, 1, late=TICK)
    assert await shop.claim(50) == {HERD: 50}, "nobody knows yet that there is not room for all"
    assert await shop.claim(50) == {HERD: 49, OTHER: 1}
    assert await shop.claim(50) == {HERD: 50}
    await shop.fill(OTHER, 1, late=TICK)
    assert await shop.claim(50) == {HERD: 49, OTHER: 1}


async def test_one_slow_look_on_a_busy_machine_keeps_nobody_unseen(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resting, "FACTOR", 20)
    watch = Watch()
    monkeypatch.setattr(queue_module, "time", watch)
    store, takes = shop.desk.store, 0.001
    looks = store.waiting_tenants

    async def timed(*given: Any) -> dict[int, float]:
        watch.shows += takes
        return await looks(*given)

    monkeypatch.setattr(store, "waiting_tenants", timed)
    await shop.fill(HERD, 500, late=2 * SECOND)
    await shop.claim(10)
    await shop.claim(10)
    watch.shows += 0.1
    takes = 0.1  # after which it would rest for two seconds
    await shop.claim(10)
    await shop.fill(OTHER, 1, late=TICK)
    watch.shows += 0.1
    assert await shop.claim(10) == {HERD: 9, OTHER: 1}


@pytest.mark.usefixtures("one_look")
async def test_one_with_nothing_but_old_slots_is_in_the_next_claim_that_looks_back_to_the_beginning(
    shop: Shop,
) -> None:
    shop.reach.begin_round()
    await shop.fill(HERD, 500, late=2 * SECOND)
    await shop.fill_old(OTHER, late=TICK)
    assert await shop.claim(50) == {HERD: 50}
    shop.reach.begin_round()
    assert await shop.claim(50) == {HERD: 50}, "it looks into the last days alone"
    shop.reach.look_back()
    shop.reach.begin_round()
    assert await shop.claim(50) == {HERD: 49, OTHER: 1}


async def test_a_look_that_goes_no_long_way_forgets_nobody_who_was_passed_over(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch()
    for module in (queue_module, reach_module):
        monkeypatch.setattr(module, "time", watch)
    monkeypatch.setattr(queue_module, "STALE_AFTER", 1.0)
    monkeypatch.setattr(reach_module, "FAR_EVERY", 1.5)
    shop.reach.judge(2 * reach_module.SLOW)
    shop.reach.begin_round()
    await shop.fill(HERD, 1000, late=2 * SECOND)
    await shop.fill_old(OTHER, late=2 * SECOND - 60 * TICK)
    assert await shop.claim(50) == {HERD: 50}
    shop.reach.begin_round()
    assert await shop.claim(50) == {HERD: 50}, "it looks into the last days alone"
    assert await shop.claim(400) == {HERD: 400}
    await shop.fill(HEAVY, 300, late=SECOND)
    watch.shows = 1.2
    shop.reach.begin_round()
    assert await shop.claim(40) == {HERD: 10, HEAVY: 30}, "it was looked up anew"
    watch.shows = 1.6
    shop.reach.begin_round()
    assert (await shop.claim(40))[OTHER] == 1


@pytest.mark.usefixtures("one_look")
async def test_one_who_had_nothing_in_a_claim_that_looked_back_to_the_beginning_is_not_asked_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, asked = shop.desk.store, 0
    by_shares = store.claim_shares

    async def counted(*given: Any, **more: Any) -> list[Claimed]:
        nonlocal asked
        asked += OTHER in more["shares"]
        return await by_shares(*given, **more)

    monkeypatch.setattr(store, "claim_shares", counted)
    await shop.fill(HERD, 500, late=2 * SECOND)
    await shop.fill(OTHER, 1)
    for looks_back, times in ((True, 0), (False, 1), (False, 1), (True, 2), (True, 2)):
        if looks_back:
            shop.reach.look_back()
        shop.reach.begin_round()
        assert (await shop.claim(50)).total() == 50
        assert asked == times


@pytest.mark.usefixtures("one_look")
async def test_those_of_a_crowd_that_is_over_take_no_places_of_the_next(shop: Shop) -> None:
    shop.reach.begin_round()
    await shop.fill(HERD, 60, late=2 * SECOND)
    await shop.fill(OTHER, 10)
    assert await shop.claim(50) == {HERD: 50}
    shop.reach.begin_round()
    assert await shop.claim(50) == {HERD: 10, OTHER: 10}
    await shop.fill(HEAVY, 200)
    assert await shop.claim(50) == {HEAVY: 50}
    shop.reach.look_back()
    shop.reach.begin_round()
    assert await shop.claim(50) == {HEAVY: 50}


async def test_two_with_more_than_there_is_room_for_share_by_their_weights(shop: Shop) -> None:
    await shop.fill(HERD, 600, late=3 * SECOND)
    await shop.fill(HEAVY, 600, late=SECOND)
    await shop.claim(50)
    shared: Counter[int] = Counter()
    for _ in range(8):
        shared += await shop.claim(50)
    assert shared == {HERD: 100, HEAVY: 300}


async def test_every_place_is_filled_while_anybody_has_something(shop: Shop) -> None:
    await shop.fill(HERD, 130)
    await shop.fill(OTHER, 7)
    await shop.fill(HEAVY, 3)
    taken = [sum((await shop.claim(50)).values()) for _ in range(4)]
    assert taken == [50, 50, 40, 0]


async def test_a_queue_that_was_crowded_is_in_order_again_when_all_is_taken(shop: Shop) -> None:
    await shop.fill(HERD, 100)
    await shop.fill(OTHER, 100)
    while await shop.claim(60):
        pass
    await shop.fill(OTHER, 3, late=2 * SECOND)
    await shop.fill(HERD, 3, late=SECOND)
    assert await shop.claim(3) == {OTHER: 3}
