"""How much a worker claims at a time, and from where."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from cronwell.model.execution import ExecutionKey, Kind
from cronwell.store.port import EVER, Claimed, NewExecution, Tier
from cronwell.store.postgres.store import PostgresStore
from cronwell.targets.handler import Context
from cronwell.worker import claiming, reach
from tests.support.house import SECOND, TENANT, House
from tests.support.waiting import until_async

TICK = timedelta(microseconds=1)


@dataclass
class Watch:
    """A clock that goes when it is told to, in place of the module `time`."""

    shows: float

    def monotonic(self) -> float:
        return self.shows

    perf_counter = monotonic


class Noting(PostgresStore):
    """Notes how many were asked for in each claim of each priority."""

    asked: list[tuple[int, int]]
    watch: Watch | None = None
    """One for which each claim takes a second."""

    async def claim(self, *given: Any, **more: Any) -> list[Claimed]:
        self.asked.append((given[2], more["limit"]))
        claims = await super().claim(*given, **more)
        if self.watch is not None:
            self.watch.shows += 1
        return claims

    async def due_tiers(
        self, since: Mapping[Tier, datetime], ready_by: datetime, slots_since: datetime = EVER
    ) -> set[Tier]:
        found = await super().due_tiers(since, ready_by, slots_since)
        await self.on_looked(found)
        return found

    async def on_looked(self, found: set[Tier]) -> None:
        """It was looked where something is due."""


def noting(house: House, kind: type[Noting] = Noting) -> Noting:
    house.store = store = kind(house.database)
    store.asked = []
    return store


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """By which claiming goes, and the rounds that look back: one in five seconds does."""
    made = Watch(math.ceil(time.monotonic()))
    monkeypatch.setattr(claiming, "time", made)
    monkeypatch.setattr(reach, "time", made)
    monkeypatch.setattr(reach, "WHOLE_EVERY", 5)
    monkeypatch.setattr(reach, "FAR_EVERY", 1e9)
    return made


async def fill(house: House, count: int, *, ahead: timedelta, apart: timedelta = TICK * 0) -> None:
    """Have so many executions of one job be ready at one moment, or one after the other, from so long from now on."""

    @house.registry.add
    async def work() -> None: ...

    job = await house.create(overlap="allow")
    ready_at = house.clock.now() + ahead
    asked = [
        NewExecution(
            TENANT, ExecutionKey(job, Kind.MANUAL, ready_at + n * TICK), ready_at + n * apart, 1, 1, None, "default",
            None, None,
        )
        for n in range(count)
    ]  # fmt: skip
    async with house.store.transaction() as transaction:
        await transaction.insert_executions(asked)


async def until_all_ended(house: House, count: int) -> None:
    async def ended() -> bool:
        return sum(each.finished_at is not None for each in await house.history()) == count

    await until_async(ended)


async def test_workers_share_a_herd_that_is_yet_to_come(house: House) -> None:
    await fill(house, 40, ahead=4 * SECOND)
    given: dict[str, Any] = {
        "claim_batch": 40,
        "concurrency": 100,
        "pre_claim": 3 * SECOND,
        "poll": SECOND / 2,
    }
    async with house.working(**given), house.working(**given):
        await until_all_ended(house, 40)
    assert Counter(Counter(each.worker for each in await house.history()).values()) == {20: 2}


async def test_one_worker_alone_takes_all_of_a_herd_before_its_instant(house: House) -> None:
    await fill(house, 60, ahead=4 * SECOND)
    async with house.working(claim_batch=40, concurrency=100, pre_claim=3 * SECOND, poll=SECOND / 5):
        await until_all_ended(house, 60)
    history = await house.history()
    assert all(each.claimed_at is not None and each.claimed_at < each.ready_at for each in history)
    assert len({each.claimed_at for each in history}) == 3, "each claim is of half a batch"


async def test_a_worker_that_is_behind_claims_whole_batches(house: House) -> None:
    await fill(house, 100, ahead=-SECOND)
    async with house.working(claim_batch=40, concurrency=200):
        await until_all_ended(house, 100)
    taken = Counter(each.claimed_at for each in await house.history())
    assert sorted(taken.values(), reverse=True) == [40, 40, 20]


async def test_a_busy_worker_claims_from_no_queue_in_which_nothing_is_due(house: House) -> None:
    await fill(house, 100, ahead=-SECOND)
    store = noting(house)
    async with house.working(claim_batch=10, concurrency=200):
        await until_all_ended(house, 100)
    assert {priority for priority, _ in store.asked} == {1}
    assert len(store.asked) >= 10


async def test_a_round_that_looks_into_all_days_does_not_go_by_where_others_found_something(
    house: House, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    # They look every other second: not in the fifth.
    monkeypatch.setattr(claiming, "GATHER", 2 * SECOND)
    await fill(house, 115, ahead=-SECOND)
    old = house.clock.now() - timedelta(days=9)

    class Late(Noting):
        """An old slot of high priority comes due after the first look."""

        is_first = True

        async def on_looked(self, found: set[Tier]) -> None:
            if self.is_first:
                self.is_first = False
                [any_other, *_] = await house.history()
                key = ExecutionKey(any_other.key.job_id, Kind.MANUAL, old)
                new = NewExecution(TENANT, key, house.clock.now(), 1, 0, None, "default", None, None)
                async with self.transaction() as transaction:
                    await transaction.insert_executions([new])

    store = noting(house, Late)
    store.watch = watch
    async with house.working(claim_batch=10, concurrency=200):
        await until_all_ended(house, 116)
    assert store.asked.index((0, 10)) == 5


async def test_rounds_that_all_look_into_all_days_do_not_each_ask_where_something_is_due(
    house: House, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "WHOLE_EVERY", 0)
    await fill(house, 95, ahead=-SECOND)
    claims_before: list[int] = []

    class Counting(Noting):
        async def on_looked(self, found: set[Tier]) -> None:
            claims_before.append(len(self.asked))

    noting(house, Counting)
    async with house.working(claim_batch=10, concurrency=200):
        await until_all_ended(house, 95)
    assert not {1, 2, 3, 4, 5, 6, 7, 8, 9}.intersection(claims_before), "the watch stands still"


async def test_what_comes_right_after_a_busy_worker_found_nothing_is_not_left_to_the_next_poll(
    house: House, watch: Watch
) -> None:
    await fill(house, 5, ahead=-SECOND)

    class Late(Noting):
        is_first = True

        async def on_looked(self, found: set[Tier]) -> None:
            if not found and self.is_first:
                self.is_first = False
                await house.trigger()

    store = noting(house, Late)
    store.watch = watch
    async with house.working(claim_batch=10, concurrency=200, poll=60 * SECOND):
        await until_all_ended(house, 6)
    assert [limit for _, limit in store.asked[:2]] == [5, 10]


async def test_a_worker_that_holds_enough_waits_until_some_places_are_free(house: House) -> None:
    await fill(house, 60, ahead=SECOND, apart=SECOND * 0.03)
    async with house.working(concurrency=20, pre_claim=3 * SECOND):
        await until_all_ended(house, 60)
    taken = Counter(each.claimed_at for each in await house.history())
    # One would be free every 30 ms, and five every 150.
    assert len(taken) <= 20
    assert all(
        each.started_at - each.ready_at < SECOND / 5 for each in await house.history() if each.started_at
    )


async def test_a_pool_with_more_than_there_are_places_for_leaves_some_to_the_workers_other_pools(
    house: House,
) -> None:
    began: list[str] = []

    @house.registry.add
    async def work(ctx: Context) -> None:
        began.append(ctx.job)

    for name in ("crowded", "calm"):
        await house.create(name, pool=name, overlap="allow")
    for _ in range(60):
        await house.trigger("crowded")
    await house.trigger("calm")
    async with house.working(pools=("crowded", "calm"), concurrency=1):
        await until_all_ended(house, 61)
    assert began.index("calm") < 30
