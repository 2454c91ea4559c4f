"""How much a worker claims at a time, and from where."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from cronwell.model.execution import ExecutionKey, Kind
from cronwell.store.port import Claimed, NewExecution
from cronwell.store.postgres.store import PostgresStore
from cronwell.targets.handler import Context
from tests.support.house import SECOND, TENANT, House
from tests.support.waiting import until_async

TICK = timedelta(microseconds=1)


class Noting(PostgresStore):
    """Notes how many were asked for in each claim of each priority."""

    asked: list[tuple[int, int]]

    async def claim(self, *given: Any, **more: Any) -> list[Claimed]:
        self.asked.append((given[2], more["limit"]))
        return await super().claim(*given, **more)


def noting(house: House) -> Noting:
    house.store = store = Noting(house.database)
    store.asked = []
    return store


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
