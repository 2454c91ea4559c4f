"""What is run again, and dependents whose upstream took long, come after later slots of their job, and do not run beside them."""

from __future__ import annotations

import pytest

from cronwell.model.execution import ExecutionKey, Kind, State
from cronwell.store.port import ExecutionFilter, HeldBack, NewJob
from tests.contract.desk import DAY, MINUTE, NOON, SECOND, TENANT, Desk, ended

HOWS = ["retried", "redriven", "rerun"]


async def dead(desk: Desk, job: NewJob, *slots_ago: int) -> list[ExecutionKey]:
    """Dead letters of a job that runs one at a time, at slots so many minutes before noon."""
    keys = []
    for ago in slots_ago:
        await desk.staged(job, NOON - MINUTE * ago, running_limit=1)
        [claim] = await desk.claim()
        assert await desk.store.complete([ended(claim, State.FAILED, finished_at=NOON)]) == [State.FAILED]
        keys.append(claim.key)
    return keys


async def again(desk: Desk, key: ExecutionKey, how: str = "retried") -> None:
    if how == "retried":
        assert await desk.store.revive_execution(TENANT, key, NOON) is not None
    elif how == "redriven":
        where = ExecutionFilter(keys=(key,))
        assert await desk.store.redrive(TENANT, where, limit=1, rate=1.0, start=NOON, dead_by=NOON)
    else:
        async with desk.store.transaction() as transaction:
            assert await transaction.rerun(TENANT, key, NOON, is_followed=False) is not None


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("ago", [5, 60 * 24 * 3])
async def test_what_is_run_again_waits_for_a_later_slot_that_runs(desk: Desk, how: str, ago: int) -> None:
    job = await desk.job()
    [key] = await dead(desk, job, ago)
    await desk.staged(job, NOON, running_limit=1)
    [running] = await desk.claim()
    await again(desk, key, how)
    for now in (NOON, NOON + SECOND * 3, NOON + MINUTE):
        assert await desk.claim(ready_by=now) == []
    await desk.store.complete([ended(running)])
    assert [claim.key for claim in await desk.claim(ready_by=NOON + MINUTE)] == [key]


@pytest.mark.parametrize("how", HOWS)
async def test_what_is_run_again_beside_one_that_may_begin_gives_it_time_to_be_seen(
    desk: Desk, how: str
) -> None:
    job = await desk.job()
    [key] = await dead(desk, job, 5)
    [later] = await desk.staged(job, NOON, running_limit=1)
    await again(desk, key, how)
    assert (await desk.get(key)).ready_at == NOON + SECOND * 2, "no claim that does not see it is under way"
    assert await desk.claim() == [], "but from now on it goes before the later one"
    [claim] = await desk.claim(ready_by=NOON + SECOND * 2)
    assert claim.key == key
    assert (await desk.get(later)).state is State.PENDING


@pytest.mark.parametrize("how", HOWS)
async def test_what_is_run_again_alone_is_ready_at_once(desk: Desk, how: str) -> None:
    job = await desk.job()
    [key] = await dead(desk, job, 5)
    await desk.staged(job, NOON + MINUTE, running_limit=1)
    await again(desk, key, how)
    assert [claim.key for claim in await desk.claim()] == [key]


@pytest.mark.parametrize("how", HOWS)
async def test_none_of_what_is_run_again_is_skipped_for_the_others(desk: Desk, how: str) -> None:
    job = await desk.job()
    keys = await dead(desk, job, 5, 4, 3)
    for key in keys:
        await again(desk, key, how)
    at = NOON + SECOND * 10
    for key in keys:
        [claim] = await desk.claim(ready_by=at)
        assert claim.key == key, "one after another, in their order"
        assert await desk.store.settle_blocked(["default"], at) == (0, set())
        await desk.store.complete([ended(claim)])


async def test_what_a_redrive_will_take_later_holds_up_no_slot_on_time(desk: Desk) -> None:
    job = await desk.job()
    await dead(desk, job, 5, 4)
    assert len(
        await desk.store.redrive(
            TENANT, ExecutionFilter(), limit=2, rate=0.001, start=NOON + DAY, dead_by=NOON
        )
    )
    [key] = await desk.staged(job, NOON, running_limit=1)
    assert await desk.store.settle_blocked(["default"], NOON) == (0, set())
    assert [claim.key for claim in await desk.claim()] == [key]


async def test_a_dependent_whose_upstream_took_long_waits_for_a_later_slot_that_runs(desk: Desk) -> None:
    job = await desk.job()

    async def follow(ago: int) -> ExecutionKey:
        key = ExecutionKey(job.id, Kind.DEPENDENCY, NOON - MINUTE * ago)
        fields = {"ready_at": NOON, "running_limit": 1, "reason": None}
        return await desk.manual(job, key.slot, key=key, **fields)

    later = await follow(1)
    [running] = await desk.claim()
    assert running.key == later
    first = await follow(2)
    assert await desk.claim() == []
    await desk.store.complete([ended(running)])
    assert [claim.key for claim in await desk.claim()] == [first]
    assert [await follow(ago) for ago in (4, 3)], "and in order they are as any others"
    assert await desk.claim() == []


async def test_what_is_run_again_and_waited_for_its_target_is_seen_before_it_is_claimed(desk: Desk) -> None:
    job = await desk.job()
    [key] = await dead(desk, job, 5)
    await again(desk, key)
    [claim] = await desk.claim()
    held = HeldBack(TENANT, key, claim.fence, NOON + MINUTE * 5, "host:a")
    assert await desk.store.hold_back(claim.worker, [held]) == [True]
    assert await desk.store.release_held(TENANT, "host:a", NOON, 10) == 1
    found = await desk.get(key)
    assert found.ready_at == NOON + SECOND * 2
    await desk.staged(job, NOON, running_limit=1)
    assert await desk.claim() == [], "it goes before the later one from now on"
    [first] = await desk.claim(ready_by=NOON + SECOND * 2)
    assert (first.key, first.is_back) == (key, True)
