"""Gates: however many workers come at once and however they end, no more go through than there is room for."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from cronwell.model.execution import State
from cronwell.model.planning import PlannedSlot
from cronwell.store.port import Claimed, ExecutionFilter, NewJob
from cronwell.store.work_port import LINES
from cronwell.worker.gated import Gated
from tests.contract.desk import DAY, HOUR, MINUTE, NOON, OTHER_TENANT, SECOND, TENANT, Desk, ended, move

ALL = {TENANT: 1000, OTHER_TENANT: 1000}


async def through(
    desk: Desk, worker: UUID | None = None, *, places: int = 1000, now: datetime = NOON
) -> list[Claimed]:
    """Claim at the gates until none is another's, or was not there yet."""
    worker = worker or await desk.worker()
    found: list[Claimed] = []
    while True:
        lines = await desk.store.waiting_lines(["default"], now)
        claims, is_contended = await desk.store.claim_gated(
            worker, lines, places=places - len(found), shares=ALL, ready_by=now, now=now
        )
        found += claims
        if not is_contended:
            return found


async def quota(desk: Desk, **quotas: int | None) -> None:
    assert await desk.store.change_tenant("default", None, quotas) is not None
    await desk.store.gate_waiting()


async def test_a_group_lets_through_as_many_as_its_limit_whatever_jobs_they_are_of(desk: Desk) -> None:
    group = ("warehouse", 3)
    for n in range(5):
        await desk.staged(await desk.job(), NOON - n * SECOND, NOON - MINUTE - n * SECOND, group=group)
    assert await desk.claim() == [], "a claim that does not know of gates finds none of them"
    claims = await through(desk)
    assert [claim.key.slot for claim in sorted(claims, key=lambda claim: claim.ready_at)] == [
        NOON - MINUTE - n * SECOND for n in (4, 3, 2)
    ], "in the order of time"
    assert {(claim.gate, claim.is_awaited, claim.priority) for claim in claims} == {("warehouse", True, 1)}
    assert await through(desk) == []
    await desk.store.complete([ended(claims[0], State.SUCCEEDED)])
    assert len(await through(desk)) == 1
    assert await through(desk) == []


@pytest.mark.parametrize("is_quota", [False, True])
async def test_a_gate_that_is_full_is_known_before_it_is_locked(desk: Desk, is_quota: bool) -> None:
    if is_quota:
        await quota(desk, running=2)
    await desk.staged(
        await desk.job(), *(NOON - n * SECOND for n in range(5)), group=None if is_quota else ("warehouse", 2)
    )
    await desk.store.gate_waiting()

    async def has_room() -> bool:
        [line] = await desk.store.waiting_lines(["default"], NOON)
        return line.has_room

    assert await has_room()
    first, _ = await through(desk)
    assert not await has_room()
    gated = Gated(desk.store, ["default"])
    assert await gated.claim(await desk.worker(), 10, ready_by=NOON, now=NOON) == []
    await desk.store.complete([ended(first, State.SUCCEEDED)])
    assert await has_room(), "although nobody has forgotten who went through"
    gated.hasten()
    assert len(await gated.claim(await desk.worker(), 10, ready_by=NOON, now=NOON)) == 1


async def test_one_that_may_not_start_leaves_its_room_to_lines_behind_it(desk: Desk) -> None:
    """Else the last missed slot, a tier below, and the next one, which waits for it, would stand there for ever."""
    job = await desk.job()
    group = ("warehouse", 1)
    missed = PlannedSlot(NOON - MINUTE, NOON - MINUTE, State.PENDING, "catch_up")
    following = PlannedSlot(NOON, NOON)
    async with desk.store.transaction() as transaction:
        await transaction.record([move(job, [missed, following], running_limit=1, group=group)], NOON)
    [claim] = await through(desk)
    assert claim.key.slot == NOON - MINUTE
    assert await through(desk) == []
    await desk.store.complete([ended(claim, State.SUCCEEDED)])
    [claim] = await through(desk)
    assert claim.key.slot == NOON


async def test_a_job_whose_turn_has_not_come_leaves_its_tenants_quota_to_others(desk: Desk) -> None:
    await quota(desk, running=3)
    queued = await desk.job()
    await desk.staged(queued, NOON - MINUTE, NOON - SECOND, running_limit=1, priority=0)
    others = [await desk.job() for _ in range(3)]
    for other in others:
        await desk.staged(other, NOON, running_limit=1, priority=2)
    await desk.store.gate_waiting()
    claims = await through(desk)
    assert Counter(claim.priority for claim in claims) == {0: 1, 2: 2}
    first = next(claim for claim in claims if claim.priority == 0)
    rest = [claim for claim in claims if claim.priority == 2]
    await desk.store.complete([ended(claim, State.SUCCEEDED) for claim in rest])
    assert [claim.priority for claim in await through(desk)] == [2]
    assert first.key.slot == NOON - MINUTE


async def test_groups_of_other_names_and_tenants_are_others(desk: Desk) -> None:
    await desk.staged(await desk.job(), NOON - SECOND, NOON, group=("a", 1))
    await desk.staged(await desk.job(), NOON, group=("b", 1))
    await desk.staged(await desk.job(tenant_id=OTHER_TENANT), NOON, group=("a", 1))
    claims = await through(desk)
    assert Counter((claim.tenant_id, claim.gate) for claim in claims) == {
        (TENANT, "a"): 1,
        (TENANT, "b"): 1,
        (OTHER_TENANT, "a"): 1,
    }


@pytest.mark.parametrize("end", ["lost", "retrying", "handed back", "cancelled", "failed"])
async def test_who_ends_in_whatever_way_leaves_its_place(desk: Desk, end: str) -> None:
    job = await desk.job()
    await desk.staged(job, NOON - SECOND, NOON, group=("warehouse", 1))
    [first] = await through(desk)
    claim = (TENANT, first.key, first.fence)
    if end == "handed back":
        await desk.store.hand_back(first.worker, [claim])
    else:
        state = {"cancelled": State.CANCELLED, "failed": State.FAILED}.get(end, State.RETRYING)
        await desk.store.complete([ended(first, state, ready_at=NOON + MINUTE)])
    [second] = await through(desk)
    assert second.key != first.key or end == "handed back"
    assert await through(desk, now=NOON + MINUTE) == [], "and one that is tried again waits for it anew"


async def test_the_limit_of_a_group_is_that_of_whoever_wants_to_start(desk: Desk) -> None:
    await desk.staged(await desk.job(), *(NOON - n * SECOND for n in range(1, 5)), group=("db", 3))
    alone = await desk.job()
    await desk.staged(alone, NOON - MINUTE, group=("db", 1))
    [first] = await through(desk)
    assert first.key.job_id == alone.id, "the first in line"
    assert len(await through(desk)) == 2, "others may run beside it"


async def test_ten_workers_at_once_never_let_more_through(desk: Desk) -> None:
    jobs = [await desk.job() for _ in range(4)]
    for job in jobs:
        await desk.staged(job, *(NOON - n * SECOND for n in range(10)), group=("warehouse", 3))
    workers = [await desk.worker() for _ in range(10)]
    running: set[tuple[object, int]] = set()
    done = 0
    most = 0

    async def work(worker: UUID) -> None:
        nonlocal most, done
        while done < 40:
            lines = await desk.store.waiting_lines(["default"], NOON)
            claims, _ = await desk.store.claim_gated(
                worker, lines, places=5, shares=ALL, ready_by=NOON, now=NOON
            )
            for claim in claims:
                running.add((claim.key, claim.fence))
                most = max(most, len(running))
            await asyncio.sleep(0)
            for claim in claims:
                running.discard((claim.key, claim.fence))
                assert await desk.store.complete([ended(claim, State.SUCCEEDED)]) == [State.SUCCEEDED]
                done += 1

    async with asyncio.timeout(60):
        await asyncio.gather(*map(work, workers))
    assert most == 3
    assert done == 40


async def test_a_tenant_runs_as_many_as_its_quota_and_others_are_free(desk: Desk) -> None:
    await desk.staged(await desk.job(), NOON - SECOND, NOON)
    await quota(desk, running=2)
    await desk.staged(await desk.job(), NOON - SECOND * 3, NOON - SECOND * 2)
    await desk.manual(await desk.job(), NOON)
    await desk.staged(await desk.job(tenant_id=OTHER_TENANT), NOON - SECOND, NOON)
    assert len(await desk.claim()) == 2, "the other's"
    claims = await through(desk)
    assert [claim.ready_at for claim in claims] == [NOON - SECOND * 3, NOON - SECOND * 2], "in order"
    assert await through(desk) == []
    await quota(desk, running=3)
    assert len(await through(desk)) == 1
    await quota(desk, running=None)
    assert len(await through(desk)) == 2, "all of them, when there is no quota any more"


async def test_a_tenant_begins_as_many_in_a_minute_as_its_quota(desk: Desk) -> None:
    await quota(desk, executions_per_minute=3)
    await desk.staged(await desk.job(), *(NOON - n * SECOND for n in range(5)))
    first = await through(desk)
    assert len(first) == 3
    await desk.store.complete([ended(claim, State.SUCCEEDED) for claim in first])
    assert await through(desk, now=NOON + SECOND * 59) == []
    assert len(await through(desk, now=NOON + MINUTE)) == 2


async def test_a_retry_is_no_new_execution_of_the_minute(desk: Desk) -> None:
    await quota(desk, executions_per_minute=1)
    await desk.staged(await desk.job(), NOON)
    [claim] = await through(desk)
    await desk.store.complete([ended(claim, State.RETRYING, ready_at=NOON + SECOND)])
    assert await through(desk, now=NOON + SECOND) == [], "but it waits for its turn, in order"
    [again] = await through(desk, now=NOON + MINUTE)
    assert again.attempt == 2
    await desk.staged(await desk.job(), NOON + SECOND)
    assert len(await through(desk, now=NOON + MINUTE + SECOND)) == 1, "the retry used up none"


async def test_a_group_within_a_tenant_with_a_quota_waits_for_both(desk: Desk) -> None:
    await quota(desk, running=2)
    await desk.staged(await desk.job(), *(NOON - n * SECOND for n in range(3)), group=("db", 1))
    await desk.staged(await desk.job(), *(NOON - n * SECOND for n in range(3)), group=("web", 5))
    claims = await through(desk)
    assert len(claims) == 2
    assert Counter(claim.gate for claim in claims)["db"] <= 1


async def test_a_job_s_own_limit_holds_within_a_group(desk: Desk) -> None:
    job = await desk.job()
    await desk.staged(job, NOON - SECOND, NOON, group=("db", 5), running_limit=1, queueing="queue_all")
    [claim] = await through(desk)
    assert claim.key.slot == NOON - SECOND


async def test_what_it_waits_for_is_told(desk: Desk) -> None:
    await quota(desk, running=2, executions_per_minute=5)
    _, second = await desk.staged(await desk.job(), NOON - SECOND, NOON, group=("db", 1))
    await through(desk)
    halt = await desk.store.why_waiting(TENANT, second, NOON)
    assert halt is not None
    assert (halt.group, halt.group_limit, halt.group_running) == ("db", 1, 1)
    assert (halt.max_running, halt.running, halt.max_per_minute, halt.begun) == (2, 1, 5, 1)
    await quota(desk, running=None, executions_per_minute=None)
    [free] = await desk.staged(await desk.job(), NOON)
    assert await desk.store.why_waiting(TENANT, free, NOON) is None
    assert await desk.store.why_waiting(OTHER_TENANT, second, NOON) is None


async def test_of_one_that_may_wait_others_are_skipped(desk: Desk) -> None:
    job = await desk.job()
    keys = await desk.staged(
        job, *(NOON - n * MINUTE for n in (4, 3, 2, 1)), running_limit=1, queueing="queue_one"
    )
    [claim] = await desk.claim()
    assert await desk.store.settle_blocked(["default"], NOON) == (2, set())
    assert await desk.states(keys) == [State.RUNNING, State.PENDING, State.SKIPPED, State.SKIPPED]
    assert await desk.store.settle_blocked(["default"], NOON) == (0, set())
    await desk.store.complete([ended(claim, State.SUCCEEDED)])
    assert [claim.key for claim in await desk.claim()] == [keys[1]]


async def test_one_may_wait_behind_another_that_has_not_begun_either(desk: Desk) -> None:
    job = await desk.job()
    keys = await desk.staged(
        job, *(NOON - n * MINUTE for n in (3, 2, 1)), running_limit=1, queueing="queue_one", group=("db", 1)
    )
    assert await desk.store.settle_blocked(["default"], NOON) == (1, set())
    assert await desk.states(keys) == [State.PENDING, State.PENDING, State.SKIPPED]


async def test_all_wait_in_order_where_the_job_says_so(desk: Desk) -> None:
    job = await desk.job()
    keys = await desk.staged(
        job, *(NOON - n * MINUTE for n in (4, 3, 2, 1)), running_limit=1, queueing="queue_all"
    )
    for key in keys:
        assert await desk.store.settle_blocked(["default"], NOON) == (0, set())
        [claim] = await desk.claim()
        assert claim.key == key
        await desk.store.complete([ended(claim, State.SUCCEEDED)])


async def test_the_newest_takes_the_place_of_what_runs_and_of_what_waits(desk: Desk) -> None:
    job = await desk.job()
    keys = await desk.staged(
        job, *(NOON - n * MINUTE for n in (3, 2, 1)), running_limit=1, queueing="cancel_running"
    )
    worker = await desk.worker()
    [claim] = await desk.claim(worker)
    assert await desk.store.settle_blocked(["default"], NOON) == (1, {worker})
    assert await desk.states(keys) == [State.RUNNING, State.SKIPPED, State.PENDING]
    assert [key for _, key, _ in await desk.store.cancels(worker)] == [keys[0]]
    assert await desk.store.settle_blocked(["default"], NOON) == (0, set()), "once"
    assert await desk.claim() == []
    await desk.store.complete([ended(claim, State.CANCELLED)])
    assert [claim.key for claim in await desk.claim()] == [keys[2]]


async def test_of_several_that_run_the_oldest_makes_room_and_a_retry_ends_at_once(desk: Desk) -> None:
    job = await desk.job()
    keys = await desk.staged(
        job, *(NOON - n * MINUTE for n in (3, 2)), running_limit=2, queueing="cancel_running"
    )
    claims = {claim.key: claim for claim in await desk.claim()}
    assert len(claims) == 2
    await desk.store.complete([ended(claims[keys[0]], State.RETRYING, ready_at=NOON + DAY)])
    [newest] = await desk.staged(job, NOON, running_limit=2, queueing="cancel_running")
    assert await desk.store.settle_blocked(["default"], NOON) == (0, set())
    assert await desk.states([*keys, newest]) == [State.CANCELLED, State.RUNNING, State.PENDING]
    assert [claim.key for claim in await desk.claim()] == [newest]


async def rebase(desk: Desk, job: NewJob, priority: int = 1, group: tuple[str, int] | None = None) -> None:
    async with desk.store.transaction() as transaction:
        revision = await transaction.update_job(job, "active", NOON)
        await transaction.rebase_open(job, revision, priority, group)


async def test_an_edit_leaves_what_waits_at_its_gate(desk: Desk) -> None:
    job = await desk.job()
    await desk.staged(job, *(NOON - n * SECOND for n in range(3)), group=("db", 1))
    await rebase(desk, job, 0, ("db", 1))
    assert await desk.claim(priority=0) == []
    assert [(claim.gate, claim.priority) for claim in await through(desk)] == [("db", 0)]


async def test_an_edit_has_what_waits_go_by_the_new_group_and_what_runs_when_it_is_tried_again(
    desk: Desk,
) -> None:
    job, other = await desk.job(), await desk.job()
    running, waiting = await desk.staged(job, NOON - SECOND, NOON)
    [claim] = await desk.claim(limit=1)
    assert claim.key == running
    await rebase(desk, job, 1, ("db", 1))
    await desk.staged(other, NOON - MINUTE, group=("db", 1))
    assert await desk.claim() == []
    [before] = await through(desk)
    assert before.key.job_id == other.id
    await desk.store.complete([ended(claim, State.RETRYING, ready_at=NOON)])
    assert await desk.claim() == []
    assert await through(desk) == []
    await desk.store.complete([ended(before)])
    assert len(await through(desk)) == 1
    await rebase(desk, job)
    assert len(await desk.claim()) == 1, "in no group any more"
    assert await desk.states([running, waiting]) == [State.RUNNING, State.RUNNING]


async def test_an_edit_of_a_tenant_s_job_leaves_what_waits_for_its_quotas(desk: Desk) -> None:
    job = await desk.job()
    await quota(desk, running=1)
    await desk.staged(job, NOON - SECOND, NOON)
    await rebase(desk, job)
    assert await desk.claim() == []
    assert len(await through(desk)) == 1


@pytest.mark.parametrize("how", ["retried", "redriven", "rerun"])
async def test_what_is_run_again_waits_for_what_its_job_is_in_now(desk: Desk, how: str) -> None:
    spec = '{"name":"job","target":{"handler":{"name":"work"}},"group":{"key":"db"}}'
    job, other = await desk.job(spec=spec), await desk.job()
    dead = await desk.dead(job)
    await desk.staged(other, NOON, group=("db", 1))
    [running] = await through(desk)
    later = NOON + MINUTE
    if how == "retried":
        await desk.store.revive_execution(TENANT, dead, later)
    elif how == "redriven":
        await desk.store.redrive(
            TENANT, ExecutionFilter(), limit=10, rate=1.0, start=later, dead_by=NOON + MINUTE
        )
    else:
        async with desk.store.transaction() as transaction:
            await transaction.rerun(TENANT, dead, later, is_followed=False)
    assert await desk.claim(ready_by=later) == []
    assert await through(desk, now=later) == []
    await desk.store.complete([ended(running)])
    assert [claim.key for claim in await through(desk, now=later)] == [dead]


async def test_what_is_run_again_waits_for_its_tenant_s_new_quota_and_no_group_any_more(desk: Desk) -> None:
    job = await desk.job()
    [key] = await desk.staged(job, NOON, group=("db", 1))
    [claim] = await through(desk)
    await desk.store.complete([ended(claim, State.FAILED)])
    await desk.store.revive_execution(TENANT, key, NOON)
    [again] = await desk.claim()
    assert (again.key, again.gate) == (key, None)
    await desk.store.complete([ended(again, State.FAILED)])
    await quota(desk, running=1)
    await desk.store.revive_execution(TENANT, key, NOON)
    assert await desk.claim() == []
    assert [claim.gate for claim in await through(desk)] == [""]


async def test_messages_of_alerts_do_not_wait_for_a_quota_that_is_set_later(desk: Desk) -> None:
    await desk.manual(await desk.job(), NOON, reason="alert")
    await quota(desk, running=1)
    assert len(await desk.claim()) == 1


async def test_the_minute_of_a_quota_does_not_go_back(desk: Desk) -> None:
    await quota(desk, executions_per_minute=2)
    await desk.staged(await desk.job(), *(NOON - n * SECOND for n in range(1, 9)))
    assert len(await through(desk, now=NOON)) == 2
    late = NOON - timedelta(milliseconds=5)
    assert await through(desk, now=late) == [], "a worker that asked just before the minute began"
    assert await through(desk, now=NOON) == []
    assert len(await through(desk, now=NOON + MINUTE)) == 2


async def test_who_waits_behind_many_full_groups_is_looked_at_too(desk: Desk) -> None:
    crowd = await desk.job()
    names = [f"g{n:04}" for n in range(LINES + 5)]
    async with desk.store.transaction() as transaction:
        for n, name in enumerate(names):
            slots = [PlannedSlot(NOON - timedelta(milliseconds=2 * n + m), NOON - HOUR) for m in (0, 1)]
            await transaction.record([move(crowd, slots, group=(name, 1))], NOON)
    await desk.staged(await desk.job(tenant_id=OTHER_TENANT), NOON, group=("db", 1))
    gated = Gated(desk.store, ["default"])
    worker = await desk.worker()
    tenants: Counter[int] = Counter()
    for _ in range(12):
        gated.hasten()
        claims = await gated.claim(worker, 3000, ready_by=NOON, now=NOON)
        tenants += Counter(claim.tenant_id for claim in claims)
    assert tenants == {TENANT: len(names), OTHER_TENANT: 1}


@pytest.mark.parametrize("age", [timedelta(), MINUTE])
async def test_low_priority_does_not_wait_for_ever_behind_higher_ones_at_gates(
    desk: Desk, age: timedelta
) -> None:
    for n in range(3):
        slots = [NOON - SECOND * m for m in range(40)]
        await desk.staged(await desk.job(), *slots, group=(f"g{n}", 1000), priority=0)
    [old] = await desk.staged(await desk.job(), NOON - HOUR, group=("g0", 1000), priority=2)
    gated = Gated(desk.store, ["default"], age)
    worker = await desk.worker()
    await desk.store.claim_gated(
        worker,
        await desk.store.waiting_lines(["default"], NOON),
        places=0,
        shares={},
        ready_by=NOON,
        now=NOON,
    )
    found: list[Claimed] = []
    for _ in range(12):
        gated.hasten()
        found += await gated.claim(worker, 5, ready_by=NOON, now=NOON)
    assert len(found) == 60
    assert (old in [claim.key for claim in found]) is bool(age)
