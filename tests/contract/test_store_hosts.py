"""What a store promises of executions that wait for their target, of limits, and of what workers tell of hosts."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from uuid import UUID

from cronwell.model.execution import State
from cronwell.store.port import Claimed, Execution, HeldBack, HostState, Report, Store, TargetLimit
from tests.contract.desk import HOUR, MINUTE, NOON, SECOND, Desk, ended
from tests.contract.test_store_gates import through

TARGET = "host:a.example"
LATER = NOON + HOUR


def _held(claim: Claimed, target: str = TARGET) -> HeldBack:
    return HeldBack(claim.tenant_id, claim.key, claim.fence, LATER, target)


async def _claimed(desk: Desk, name: str = "job") -> tuple[UUID, Claimed]:
    job = await desk.job(name)
    worker = await desk.worker()
    await desk.staged(job, NOON - MINUTE)
    [claim] = await desk.claim(worker)
    return worker, claim


async def _kept(store: Store, claim: Claimed) -> Execution:
    found = await store.get_execution(claim.tenant_id, claim.key)
    assert found is not None
    return found


async def test_what_is_held_back_is_ready_later_and_has_used_up_no_attempt(desk: Desk, store: Store) -> None:
    worker, claim = await _claimed(desk)
    assert not claim.is_back
    assert await store.hold_back(worker, [_held(claim)]) == [True]
    kept = await _kept(store, claim)
    assert (kept.state, kept.attempt, kept.worker, kept.claimed_at) == (State.PENDING, 0, None, None)
    assert (kept.ready_at, kept.held_by, kept.is_held) == (LATER, TARGET, True)
    assert await desk.claim(worker) == [], "it is not ready"
    [again] = await store.claim(worker, "default", 1, ready_by=LATER, limit=10, now=NOON)
    assert (again.attempt, again.fence, again.is_back) == (1, claim.fence + 1, True)
    assert await store.count_held(1, [TARGET], 10) == {TARGET: 0}
    # Twice is once: the fence has gone on.
    assert await store.hold_back(worker, [_held(claim)]) == [False]


async def test_nothing_is_held_back_that_is_not_ours_has_begun_or_was_stopped(
    desk: Desk, store: Store
) -> None:
    worker, claim = await _claimed(desk, "begun")
    stranger = await desk.worker()
    assert await store.hold_back(stranger, [_held(claim)]) == [False]
    await store.report([Report(1, claim.key, claim.fence, worker, NOON, None)])
    assert await store.hold_back(worker, [_held(claim)]) == [False]
    _, cancelled = await _claimed(desk, "cancelled")
    await store.cancel_execution(1, cancelled.key, NOON)
    assert await store.hold_back(cancelled.worker, [_held(cancelled)]) == [False]
    _, paused = await _claimed(desk, "paused")
    async with store.transaction() as transaction:
        await transaction.withhold_due(1, paused.key.job_id, NOON, "paused")
    assert await store.hold_back(paused.worker, [_held(paused)]) == [False]
    for each in (claim, cancelled, paused):
        kept = await _kept(store, each)
        assert (kept.state, kept.held_by) == (State.RUNNING, None)


async def test_what_is_held_is_never_ready_earlier_than_it_was(desk: Desk, store: Store) -> None:
    worker, claim = await _claimed(desk)
    early = dataclasses.replace(_held(claim), ready_at=NOON - HOUR)
    assert await store.hold_back(worker, [early]) == [True]
    assert (await _kept(store, claim)).ready_at == claim.ready_at


async def test_those_that_wait_for_a_target_are_counted_and_released(desk: Desk, store: Store) -> None:
    held = [await _claimed(desk, f"job-{number}") for number in range(4)]
    for number, (worker, claim) in enumerate(held):
        target = TARGET if number else "shell"
        assert await store.hold_back(worker, [_held(claim, target)]) == [True]
    assert await store.count_held(1, [TARGET, "shell", "handler:x"], 10) == {
        TARGET: 3,
        "shell": 1,
        "handler:x": 0,
    }
    assert await store.count_held(1, [TARGET], 2) == {TARGET: 2}
    released_at = NOON + SECOND
    assert await store.release_held(1, TARGET, released_at, 2) == 2
    assert await store.release_held(1, TARGET, released_at, 2) == 1
    assert await store.release_held(1, TARGET, released_at, 2) == 0
    ready = [(await _kept(store, claim)).ready_at for _, claim in held]
    assert ready == [LATER, released_at, released_at, released_at]


async def test_a_limit_is_kept_changed_and_dropped(store: Store) -> None:
    limit = TargetLimit(1, TARGET, "5/s", None, breaker=True, created_at=NOON, updated_at=NOON)
    before = (await store.throttling(NOON, ["default"])).stamp
    assert await store.put_limit(limit) == (limit, True)
    stamps = [before, (await store.throttling(NOON, ["default"])).stamp]
    changed, is_new = await store.put_limit(dataclasses.replace(limit, rate=None, concurrency=3))
    assert (is_new, changed.rate, changed.concurrency, changed.created_at) == (False, None, 3, NOON)
    stamps.append((await store.throttling(NOON, ["default"])).stamp)
    assert await store.get_limit(1, TARGET) == changed
    assert await store.every_limit() == await store.list_limits(1, None, 10) == [changed]
    assert await store.list_limits(1, TARGET, 10) == []
    assert await store.drop_limit(1, TARGET)
    assert not await store.drop_limit(1, TARGET)
    stamps.append((await store.throttling(NOON, ["default"])).stamp)
    assert len(set(stamps[:3])) == 3
    assert stamps[3] == stamps[0]
    assert stamps[3] != stamps[2]


async def test_a_limit_is_shared_by_living_workers_of_the_same_pools(desk: Desk, store: Store) -> None:
    first, second = await desk.worker(), await desk.worker()
    assert set((await store.throttling(NOON, ["default", "x"])).workers) == {first, second}
    assert (await store.throttling(NOON, ["x"])).workers == ()
    await store.leave(first, NOON)
    assert (await store.throttling(NOON, ["default"])).workers == (second,)
    assert (await store.throttling(NOON + timedelta(days=36_500), ["default"])).workers == ()


async def test_what_was_found_out_of_a_host_later_stands(store: Store) -> None:
    ill = HostState(1, "a.example", "open", NOON, 5, 1, NOON + MINUTE, "no answer", NOON + SECOND)
    older = dataclasses.replace(ill, state="closed", changed_at=NOON)
    well = dataclasses.replace(ill, state="closed", error=None, changed_at=NOON + MINUTE)
    await store.note_hosts([ill])
    await store.note_hosts([older])
    assert await store.get_host(1, "a.example") == ill
    assert await store.changed_hosts(NOON + 2 * SECOND) == []
    assert await store.close_host(1, "a.example", NOON)
    closed = await store.get_host(1, "a.example")
    assert closed is not None
    assert (closed.state, closed.failures) == ("closed", 0)
    assert closed.changed_at > ill.changed_at, "also where our clock is behind: workers must hear of it"
    assert not await store.close_host(1, "a.example", NOON)
    await store.note_hosts([well])
    assert await store.list_hosts(1, "open", None, 10) == []
    [shown] = await store.list_hosts(1, "closed", None, 10)
    assert (shown.error, shown.changed_at) == ("no answer", NOON + MINUTE)
    await store.forget(keys_before=NOON, workers_before=NOON + HOUR)
    assert await store.list_hosts(1, None, None, 10) == []


async def test_what_is_held_back_leaves_its_place_in_a_group_and_counts_once_in_its_minute(
    desk: Desk, store: Store
) -> None:
    group = ("warehouse", 1)
    await desk.staged(await desk.job("first"), NOON - MINUTE, group=group)
    await desk.staged(await desk.job("second"), NOON, group=group)
    assert await store.change_tenant("default", None, {"executions_per_minute": 3}) is not None
    await store.gate_waiting()
    [first] = await through(desk)
    assert await store.hold_back(
        first.worker, [dataclasses.replace(_held(first), ready_at=NOON + SECOND)]
    ) == [True]
    [second] = await through(desk)
    assert second.key != first.key
    await store.complete([ended(second)])
    [again] = await through(desk, now=NOON + SECOND)
    assert (again.key, again.is_back) == (first.key, True)
    await store.complete([ended(again)])
    # Two have begun in this minute, one of them twice: there is room for one more.
    await desk.staged(await desk.job("third"), NOON + SECOND)
    await store.gate_waiting()
    assert len(await through(desk, now=NOON + SECOND)) == 1
