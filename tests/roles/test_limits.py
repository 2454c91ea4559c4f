"""What bounds how many run at once, with real workers: a job and itself, groups, and a tenant's quotas."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from cronwell import errors
from cronwell.model.execution import ExecutionKey, State
from cronwell.scheduler.chores.gating import Gating
from cronwell.targets.handler import Context
from cronwell.worker.gated import Gated
from tests.support.house import TENANT, House
from tests.support.waiting import until, until_async


class Crowd:
    """Counts who is in the handler at once."""

    def __init__(self) -> None:
        self.inside: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.order: list[ExecutionKey] = []

    async def work(self, ctx: Context) -> None:
        name = ctx.payload or "all"
        self.order.append(ExecutionKey.parse(ctx.execution_id))
        self.inside[name] += 1
        self.most[name] = max(self.most[name], self.inside[name])
        for _ in range(50):
            await asyncio.sleep(0)
        self.inside[name] -= 1


async def test_executions_of_groups_and_of_single_jobs_never_crowd_over_several_workers(house: House) -> None:
    crowd = Crowd()
    house.registry.add(crowd.work, "work")
    for n in range(3):
        await house.create(
            f"shared-{n}", overlap="allow", group={"key": "db", "limit": 2}, payload="group db"
        )
        await house.create(f"alone-{n}", overlap="queue_all", payload=f"job {n}")
    keys = [
        await house.trigger(f"{kind}-{n}")
        for _ in range(10)
        for n in range(3)
        for kind in ("shared", "alone")
    ]
    async with AsyncExitStack() as workers:
        for _ in range(3):
            await workers.enter_async_context(house.working(concurrency=10))
        for key in keys:
            await house.until_state(key, State.SUCCEEDED, within=30)
    assert crowd.most == {"group db": 2, "job 0": 1, "job 1": 1, "job 2": 1}
    alone = [key for key in crowd.order if key in keys[1::6]]
    assert alone == sorted(alone, key=lambda key: key.slot), "each in its order"
    assert (
        await house.database.fetchval(
            "select count(*) from holds join executions using (job_id, slot, kind, tenant_id) where state = 'running'"
        )
        == 0
    )


async def test_a_freed_place_of_a_group_is_taken_at_once_and_not_at_the_next_poll(house: House) -> None:
    crowd = Crowd()
    house.registry.add(crowd.work, "work")
    await house.create(overlap="allow", group={"key": "db", "limit": 1})
    keys = [await house.trigger() for _ in range(20)]
    async with house.working(poll=timedelta(seconds=10)):
        for key in keys:
            await house.until_state(key, State.SUCCEEDED, within=30)
    assert crowd.most == {"all": 1}


async def test_who_meets_others_at_a_gate_comes_back_later_and_later(house: House) -> None:
    await house.create(overlap="allow", group={"key": "db", "limit": 1})
    await house.trigger()
    gated, worker = Gated(house.store, ["default"]), await house.enter()

    async def look() -> int:
        gated.hasten()
        now = house.clock.now()
        return len(await gated.claim(worker.id, 10, ready_by=now, now=now))

    assert await look() == 0, "there is no gate to lock yet"
    waits = []
    async with house.database.transaction() as another:
        await another.execute("select from gates for update")
        for _ in range(12):
            assert await look() == 0
            assert gated.retry_in is not None
            waits.append(gated.retry_in.total_seconds())
    assert 0.02 <= waits[0] <= 0.08
    assert 0.08 < max(waits) <= 0.32
    assert await look() == 1
    assert gated.retry_in is None


async def test_what_a_lost_worker_held_of_a_group_is_free_again(house: House) -> None:
    crowd = Crowd()
    house.registry.add(crowd.work, "work")
    await house.create(overlap="allow", group={"key": "db", "limit": 1})
    first, second = await house.trigger(), await house.trigger()
    gone = await house.enter(lease=timedelta(seconds=0.2))
    now = house.clock.now()
    while True:
        lines = await house.store.waiting_lines(["default"], now)
        [*claims], _ = await house.store.claim_gated(
            gone.id, lines, places=5, shares={TENANT: 5}, ready_by=now, now=now
        )
        if claims:
            break
    assert [claim.key for claim in claims] == [first]
    found = await house.explain.explain(TENANT, "name:job", second.slot.isoformat())
    detail = await house.executions.get(TENANT, str(second))
    assert detail.waits_for is not None
    assert "its group db: 1 are running, and its limit is 1" in detail.waits_for
    assert found.others[0].id == str(second)
    async with house.working():
        await until_async(lambda: house.rescue().run_once())
        for key in (first, second):
            await house.until_state(key, State.SUCCEEDED)
    assert crowd.most == {"all": 1}


async def test_a_newer_slot_has_what_runs_cancelled_and_takes_its_place(house: House) -> None:
    cancelled = asyncio.Event()

    async def work(ctx: Context) -> None:
        if not cancelled.is_set():
            await until(lambda: ctx.cancelled)
            cancelled.set()
            raise RuntimeError("stopped half way")

    house.registry.add(work, "work")
    await house.create(overlap="cancel_running", retry={"max_attempts": 4})
    first = await house.trigger()
    async with house.working():
        await house.until_state(first, State.RUNNING)
        second = await house.trigger()
        await house.until_state(second, State.SUCCEEDED)
    assert cancelled.is_set()
    assert (await house.get(first)).state is State.CANCELLED


async def test_one_waits_for_its_turn_and_a_trigger_too_many_is_refused(house: House) -> None:
    release = asyncio.Event()

    async def work() -> None:
        await release.wait()

    house.registry.add(work, "work")
    await house.create(overlap="queue_one")
    first = await house.trigger()
    async with house.working():
        await house.until_state(first, State.RUNNING)
        second = await house.trigger()
        with pytest.raises(errors.IllegalState, match="2 unfinished"):
            await house.trigger()
        told = (await house.executions.get(TENANT, str(second))).waits_for
        assert told is not None
        assert f"execution {first} of the job is not finished" in told
        release.set()
        await house.until_state(second, State.SUCCEEDED)


async def test_a_tenants_quotas_hold_and_say_so(house: House) -> None:
    crowd = Crowd()
    house.registry.add(crowd.work, "work")
    await house.create(overlap="allow")
    before = [await house.trigger() for _ in range(2)]
    await house.store.change_tenant("default", None, {"running": 1, "executions_per_minute": 1000})
    assert await Gating(house.store).run_once() == 2
    after = [await house.trigger() for _ in range(8)]
    async with house.working():
        for key in (*before, *after):
            await house.until_state(key, State.SUCCEEDED, within=30)
    assert crowd.most == {"all": 1}
    used = await house.database.fetchval("select used from gates where gate = ''")
    assert 0 < used <= 10
    await house.store.change_tenant("default", None, {"executions_per_minute": 1})
    more = [await house.trigger() for _ in range(3)]
    async with house.working():

        async def told() -> str | None:
            return (await house.executions.get(TENANT, str(more[-1]))).waits_for

        sentence = await until_async(told)
    assert sentence is not None
    assert "of this minute have begun; the next minute begins at" in sentence


async def test_what_runs_when_a_tenant_gets_a_quota_counts(house: House) -> None:
    release = asyncio.Event()

    async def wait(ctx: Context) -> None:
        await release.wait()

    house.registry.add(wait, "work")
    await house.create(overlap="allow")
    async with house.working():
        before = [await house.trigger() for _ in range(2)]
        for key in before:
            await house.until_state(key, State.RUNNING)
        await house.store.change_tenant("default", None, {"running": 2})
        await house.store.gate_waiting()
        after = await house.trigger()

        async def told() -> str | None:
            return (await house.executions.get(TENANT, str(after))).waits_for

        sentence = await until_async(told)
        assert sentence is not None
        assert "2 of 2 executions are running" in sentence
        assert (await house.get(after)).state is State.PENDING
        release.set()
        for key in (*before, after):
            await house.until_state(key, State.SUCCEEDED)
