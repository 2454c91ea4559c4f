"""The store keeps what processes tell of themselves, what they are asked, and what the scanner found."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from cronwell.model.execution import State
from cronwell.store.port import Finding, NewJob, Node, Suspect
from tests.contract.desk import DAY, HOUR, MINUTE, NOON, SECOND, TENANT, Desk, cursor_of, ended


def new_node(**fields: object) -> Node:
    made = Node(id=uuid4(), role="worker", name="host:1", version="1.0", started_at=NOON, seen_at=NOON)
    return dataclasses.replace(made, **fields)  # type: ignore[arg-type]  # a test names real fields


async def test_a_process_is_shown_as_it_was_last_seen(desk: Desk) -> None:
    node = new_node()
    assert await desk.store.see_node(node) is None
    later = dataclasses.replace(node, seen_at=NOON + MINUTE)
    assert await desk.store.see_node(later) is None
    assert await desk.store.list_nodes(NOON) == [later]
    assert await desk.store.list_nodes(NOON + HOUR) == []


async def test_a_process_hears_that_it_was_asked_to_drain_and_since_when(desk: Desk) -> None:
    node, other = new_node(), new_node()
    for each in (node, other):
        await desk.store.see_node(each)
    assert await desk.store.ask_to_drain(node.id, NOON + SECOND) == NOON + SECOND
    assert await desk.store.ask_to_drain(node.id, NOON + MINUTE) == NOON + SECOND, "asked once"
    assert await desk.store.see_node(node) == NOON + SECOND
    assert await desk.store.see_node(other) is None


async def test_a_process_that_ended_cannot_be_asked_and_comes_last(desk: Desk) -> None:
    gone, here = new_node(role="api"), new_node(role="worker")
    for each in (gone, here):
        await desk.store.see_node(each)
    await desk.store.stop_node(gone.id, NOON + SECOND)
    assert await desk.store.ask_to_drain(gone.id, NOON + MINUTE) is None
    assert await desk.store.ask_to_drain(uuid4(), NOON + MINUTE) is None
    assert await desk.store.list_nodes(NOON) == [
        here,
        dataclasses.replace(gone, seen_at=NOON + SECOND, stopped_at=NOON + SECOND),
    ]


async def test_a_process_that_was_forgotten_enters_itself_again(desk: Desk) -> None:
    node = new_node()
    await desk.store.see_node(node)
    await desk.store.forget_nodes(NOON)
    assert await desk.store.list_nodes(NOON - DAY) == [node], "it was seen at that very time"
    await desk.store.forget_nodes(NOON + SECOND)
    assert await desk.store.list_nodes(NOON - DAY) == []
    await desk.store.see_node(node)
    assert await desk.store.list_nodes(NOON - DAY) == [node]


async def test_a_worker_tells_which_process_it_belongs_to(desk: Desk) -> None:
    process = UUID(int=7)
    worker = await desk.worker(node=process)
    other = await desk.worker()
    found = {each.id: each.node for each in await desk.store.list_workers(NOON)}
    assert found == {worker: process, other: None}


async def test_every_process_sees_the_same_incarnation(desk: Desk) -> None:
    told = await desk.store.incarnation()
    assert told
    assert await desk.another_process().incarnation() == told


async def test_a_walks_findings_take_the_place_of_the_ones_before(desk: Desk) -> None:
    first = [Finding("no_slot", 3, 2, ("a", "b"), NOON), Finding("stuck", 1, 0, (), NOON)]
    await desk.store.put_findings(first)
    assert await desk.store.list_findings() == first
    second = Finding("no_slot", 0, 0, (), NOON + HOUR)
    await desk.store.put_findings([second])
    assert await desk.store.list_findings() == [second, first[1]]


FIRST = (0, UUID(int=0))
LAST = (1000, UUID(int=(1 << 128) - 1))


async def _suspects(
    desk: Desk, *, due_before: datetime = NOON, ended_before: datetime = NOON
) -> dict[UUID, Suspect]:
    found = await desk.store.suspects(FIRST, LAST, due_before=due_before, ended_before=ended_before)
    return {each.job_id: each for each in found}


async def _put(desk: Desk, job: NewJob, next_slot: datetime | None, **how: Any) -> None:
    async with desk.store.transaction() as transaction:
        await transaction.put_cursor(cursor_of(job), next_slot, **how)


async def _drop_cursor(desk: Desk, job: NewJob) -> None:
    async with desk.store.transaction() as transaction:
        await transaction.drop_cursor(job.tenant_id, job.id)


async def test_jobs_are_walked_through_in_slices_that_leave_none_out(desk: Desk) -> None:
    jobs = [await desk.job() for _ in range(7)] + [await desk.job(tenant_id=2) for _ in range(4)]
    keys = sorted((job.tenant_id, job.id) for job in jobs)
    place, ends = FIRST, []
    while (end := await desk.store.slice_end(place, 3)) is not None:
        ends.append(end)
        place = end
    assert ends == [keys[2], keys[5], keys[8]]
    assert await desk.store.slice_end(keys[7], 3) == keys[10]


async def test_a_job_that_stands_ahead_is_not_suspect(desk: Desk) -> None:
    ahead = await desk.job(next_slot=NOON)
    late = await desk.job(next_slot=NOON - SECOND)
    assert set(await _suspects(desk)) == {late.id}
    assert ahead.id in await _suspects(desk, due_before=NOON + SECOND)


async def test_a_slice_has_only_its_own_jobs(desk: Desk) -> None:
    jobs = sorted([await desk.job(next_slot=NOON - DAY) for _ in range(5)], key=lambda job: job.id)
    found = await desk.store.suspects(
        (TENANT, jobs[0].id), (TENANT, jobs[3].id), due_before=NOON, ended_before=NOON
    )
    assert {each.job_id for each in found} == {job.id for job in jobs[1:4]}


async def test_an_active_job_without_a_cursor_is_suspect_if_it_has_a_schedule(desk: Desk) -> None:
    def spec(schedule: str) -> str:
        return f'{{"name": "job", "schedule": {schedule}}}'

    lost, without, null = [
        await desk.job(spec=text) for text in (spec('"@daily"'), '{"name": "x"}', spec("null"))
    ]
    for job in (lost, without, null):
        await _drop_cursor(desk, job)
    [found] = (await _suspects(desk)).values()
    assert (found.job_id, found.has_cursor, found.plan) == (lost.id, False, None)


async def test_a_cursor_that_is_held_or_has_no_slot_is_suspect_and_told_apart(desk: Desk) -> None:
    held, ended_one = await desk.job(), await desk.job()
    await _put(desk, held, None, is_held=True)
    await _put(desk, ended_one, None)
    found = await _suspects(desk)
    assert {each.job_id: (each.is_held, each.has_cursor) for each in found.values()} == {
        held.id: (True, True),
        ended_one.id: (False, True),
    }


async def test_a_cursor_of_a_job_that_is_not_active_is_suspect_unless_it_is_held(desk: Desk) -> None:
    paused, stray = await desk.job(), await desk.job()
    for job in (paused, stray):
        async with desk.store.transaction() as transaction:
            await transaction.set_job_state(TENANT, job.id, "paused", NOON)
    await _put(desk, paused, None, is_held=True)
    found = await _suspects(desk)
    assert {job: each.state for job, each in found.items()} == {stray.id: "paused"}


async def test_a_cursor_that_awaits_is_suspect_once_its_execution_has_ended_for_a_while(desk: Desk) -> None:
    job = await desk.job()
    claim = await desk.claimed(job)
    await _put(desk, job, NOON, awaits=True)
    later = NOON + HOUR
    assert await _suspects(desk, ended_before=later) == {}
    await desk.store.complete([ended(claim, State.SUCCEEDED)])
    assert await _suspects(desk, ended_before=NOON + SECOND * 5) == {}, "it ended just then"
    assert set(await _suspects(desk, ended_before=later)) == {job.id}
    gone = await desk.job()
    await _put(desk, gone, NOON, awaits=True)
    assert gone.id in await _suspects(desk, ended_before=later), "there is nothing that it could await"


async def test_one_job_is_looked_at_again_by_itself(desk: Desk) -> None:
    late, other, fine = (
        await desk.job(next_slot=NOON - DAY),
        await desk.job(next_slot=NOON - DAY),
        await desk.job(),
    )
    async with desk.store.transaction() as transaction:
        for job, is_found in ((late, True), (other, True), (fine, False)):
            found = await transaction.suspect((TENANT, job.id), due_before=NOON, ended_before=NOON)
            assert (found is not None and found.job_id == job.id) is is_found
        assert await transaction.suspect((TENANT, uuid4()), due_before=NOON, ended_before=NOON) is None


async def test_what_gone_workers_hold_is_found_and_that_of_living_ones_is_not(desk: Desk) -> None:
    workers = [await desk.worker(lease_until=NOON + MINUTE) for _ in range(3)]
    for worker in workers:
        job = await desk.job()
        await desk.staged(job, NOON)
        assert len(await desk.claim(worker)) == 1
    living, stopped, lost = workers
    await desk.store.leave(stopped, NOON + MINUTE)
    assert lost in await desk.store.lose_workers(NOON + MINUTE * 2)
    found = {each.worker: each for each in await desk.store.abandoned(NOON + MINUTE * 3, 5)}
    assert living not in found or not found[living].is_unknown
    assert {stopped, lost} <= set(found)
    assert (found[lost].held, len(found[lost].jobs), found[lost].is_unknown) == (1, 1, False)
    assert await desk.store.abandoned(NOON, 5) == [], "what was claimed since is not looked at"


async def test_what_waits_in_pools_that_nobody_serves_is_counted(desk: Desk) -> None:
    for pool in ("a", "b", "b", "c", "d", "e"):
        await desk.staged(await desk.job(pool=pool), NOON)
    await desk.staged(await desk.job(pool="f"), NOON + MINUTE)
    assert await desk.store.unserved(["d", "a", "nowhere"], NOON) == {"b": 2, "c": 1, "e": 1}
    assert await desk.store.unserved([], NOON) == {"a": 1, "b": 2, "c": 1, "d": 1, "e": 1}


async def test_an_unknown_workers_executions_are_rescued_once_it_is_entered_as_lost(desk: Desk) -> None:
    worker = uuid4()
    job = await desk.job()
    await desk.staged(job, NOON)
    known = await desk.worker()
    [claim] = await desk.claim(known)
    await desk.forget_worker(known)
    [found] = await desk.store.abandoned(NOON + MINUTE, 5)
    assert (found.worker, found.is_unknown, found.jobs) == (known, True, (str(job.id),))
    assert await desk.store.orphans(10) == []
    await desk.store.enter_lost([known, worker], NOON)
    await desk.store.enter_lost([known], NOON)
    [orphan] = await desk.store.orphans(10)
    assert (orphan.key, orphan.fence) == (claim.key, claim.fence)
