"""Executions of a job that limits them, and their turns: in whatever state they are, each gets one, and no more run than may."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cronwell.model.execution import ExecutionKey, Kind, Result, State
from cronwell.model.job import Queueing
from cronwell.store.port import Claimed, NewExecution, Worker
from tests.contract.desk import ended
from tests.roles.test_making_way import staged
from tests.support.house import SECOND, TENANT, House

REASONS = [None, "triggered", "moved", "catch_up", "redriven", "rerun", "upstream_ended"]
DAY = 86_400


@dataclass(frozen=True, slots=True)
class Waiting:
    """One that waits; times are seconds after the present."""

    slot: int
    ready_at: int
    kind: Kind
    reason: str | None
    has_begun: bool


READY = st.sampled_from([-3 * DAY, -60, -2, 0, 1, 5])
AT_LAST = 6 * SECOND
"""By then all of them are ready."""


def waiting(
    slots: Sequence[int], kinds: Sequence[Kind], reasons: Sequence[str | None]
) -> st.SearchStrategy[Waiting]:
    return st.builds(
        Waiting,
        slot=st.sampled_from(slots),
        ready_at=READY,
        kind=st.sampled_from(kinds),
        reason=st.sampled_from(reasons),
        has_begun=st.booleans(),
    )


PAST, AHEAD = [-3 * DAY, -2 * DAY, -DAY - 1, -60, -30, -1, 0], [20, 3600, DAY]
OF_A_SCHEDULE = waiting(PAST, [Kind.SCHEDULED, Kind.MANUAL], REASONS) | waiting(
    AHEAD, [Kind.SCHEDULED], ["moved"]
)
OF_A_FOLLOWER = waiting(PAST, [Kind.DEPENDENCY, Kind.MANUAL], REASONS) | waiting(
    AHEAD, [Kind.DEPENDENCY], REASONS
)


async def claim(house: House, worker: Worker, after: timedelta = 0 * SECOND) -> list[Claimed]:
    now = house.clock.now() + after
    return await house.store.claim(worker.id, "default", 1, ready_by=now, limit=10, now=now)


async def put(house: House, job: UUID, waiting: Sequence[Waiting], limit: int) -> None:
    """Have these wait, and nothing else."""
    await house.database.execute("delete from executions")
    await house.database.execute("delete from overrides")
    now = house.clock.now()
    for each in waiting:
        slot, ready_at = now + each.slot * SECOND, now + each.ready_at * SECOND
        await house.database.execute("select ensure_day($1)", slot.date())
        await house.database.execute(
            "insert into executions (tenant_id, job_id, kind, slot, ready_at, state, revision, attempt, fence, priority,"
            " running_limit, pool, reason) values ($1, $2, $3, $4, $5, $6, 1, $7::integer, $7::integer, 1, $8, 'default', $9)",
            *(TENANT, job, each.kind, slot, ready_at, "retrying" if each.has_begun else "pending"),
            *(int(each.has_begun), limit, each.reason),
        )
        if each.reason == "moved":
            await house.database.execute(
                "insert into overrides (tenant_id, job_id, slot, action, ready_at, applied_at, created_at)"
                " values ($1, $2, $3, 'move', $4, now(), now()) on conflict do nothing",
                *(TENANT, job, slot, ready_at),
            )


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("kinds", [OF_A_SCHEDULE, OF_A_FOLLOWER], ids=["schedule", "follower"])
async def test_whatever_waits_gets_its_turn_and_no_more_run_than_may(
    house: House, limit: int, kinds: st.SearchStrategy[Waiting]
) -> None:
    job, worker = await house.create(overlap="queue_all", max_running=limit), await house.enter()

    async def all_run(waiting: list[Waiting]) -> None:
        await put(house, job, waiting, limit)
        left, running = len(waiting), list[Claimed]()
        while left:
            running += await claim(house, worker)
            running += [] if running else await claim(house, worker, AT_LAST)
            assert 0 < len(running) <= limit, f"{len(running)} of {left} run"
            await house.store.complete([ended(running.pop(0))])
            left -= 1

    @given(st.lists(kinds, min_size=1, max_size=5, unique_by=lambda each: (each.slot, each.kind)))
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    def check(waiting: list[Waiting]) -> None:
        asyncio.run_coroutine_threadsafe(all_run(waiting), loop).result()

    loop = asyncio.get_running_loop()
    await asyncio.to_thread(check)


@pytest.mark.parametrize("kind", [Kind.DEPENDENCY, Kind.MANUAL])
async def test_a_dependent_that_runs_long_before_its_slot_is_waited_for(house: House, kind: Kind) -> None:
    job, worker = await house.create(overlap="queue_all"), await house.enter()
    far = Waiting(3600, -60, Kind.DEPENDENCY, None, has_begun=False)
    await put(house, job, [far], 1)
    [runs] = await claim(house, worker)
    assert runs.key.slot > house.clock.now()
    slot = house.clock.now()
    new = NewExecution(TENANT, ExecutionKey(job, kind, slot), slot, 1, 1, 1, "default", None, None)
    async with house.store.transaction() as transaction:
        assert await transaction.insert_execution(new)
    assert await claim(house, worker, AT_LAST) == []
    await house.store.complete([ended(runs)])
    assert len(await claim(house, worker, AT_LAST)) == 1


async def test_what_has_waited_for_long_waits_for_what_runs_now(house: House) -> None:
    """It is claimed as if it were ready a while ago, by workers that are too busy for its tier."""
    job, worker = await house.create(overlap="queue_all"), await house.enter()
    old, new = (
        Waiting(-100, -100, Kind.SCHEDULED, None, has_begun=False),
        Waiting(0, 0, Kind.MANUAL, None, has_begun=True),
    )
    await put(house, job, [old, new], 1)
    [runs] = await claim(house, worker)
    assert runs.key.kind is Kind.MANUAL
    now = house.clock.now()
    aged = await house.store.claim(worker.id, "default", 1, ready_by=now - 60 * SECOND, limit=10, now=now)
    assert aged == []


@pytest.mark.parametrize("overlap", ["skip", "cancel_running"])
async def test_a_slot_that_is_staged_late_is_passed_over_where_a_later_one_has_begun(
    house: House, overlap: str
) -> None:
    job, worker = await house.create(overlap=overlap), await house.enter()
    await house.trigger()
    [runs] = await house.claim(worker)
    now = house.clock.now()
    late = ExecutionKey(job, Kind.SCHEDULED, now - 3 * SECOND)
    queueing: Queueing | None = "cancel_running" if overlap == "cancel_running" else None
    async with house.store.transaction() as transaction:
        assert await transaction.insert_execution(
            NewExecution(TENANT, late, late.slot, 1, 1, 1, "default", None, None, queueing)
        )
    assert await claim(house, worker) == []
    assert await house.store.settle_blocked(["default"], house.clock.now()) == (1, set())
    execution = await house.get(late)
    assert (execution.state, execution.reason) == (State.SKIPPED, "overlap")
    assert (await house.get(runs.key)).cancel_requested_at is None


async def test_what_is_redriven_waits_for_what_is_to_be_tried_again(house: House) -> None:
    job, worker = await house.create(overlap="queue_all"), await house.enter()
    now = house.clock.now()
    dead = await staged(house, job, now - 60 * SECOND)
    [first] = await house.claim(worker)
    await house.store.complete([ended(first, State.FAILED)])
    await staged(house, job, now - 30 * SECOND)
    [second] = await house.claim(worker)
    again = ended(second, State.RETRYING, Result.FAILED, ready_at=now)
    await house.store.complete([again])
    assert await house.store.revive_execution(TENANT, dead, now - 5 * SECOND) == "default"
    [second] = await claim(house, worker)
    assert second.key == again.key
    assert await claim(house, worker) == []
    await house.store.complete([ended(second)])
    assert [each.key for each in await claim(house, worker)] == [dead]


async def test_what_was_moved_and_failed_is_tried_again_before_what_came_up_meanwhile(house: House) -> None:
    job, worker = await house.create(overlap="queue_all"), await house.enter()
    await put(house, job, [Waiting(3600, -60, Kind.SCHEDULED, "moved", has_begun=True)], 1)
    await staged(house, job, house.clock.now() - SECOND)
    [moved] = await claim(house, worker)
    assert moved.key.slot > house.clock.now()
    assert await claim(house, worker) == []
    await house.store.complete([ended(moved)])
    assert len(await claim(house, worker)) == 1
