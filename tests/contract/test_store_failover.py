"""What a store keeps to when the database has become another: names, fences and signs of life."""

from __future__ import annotations

import dataclasses
from uuid import uuid4

from cronwell.model.execution import State
from cronwell.store.port import Pulse, Report, Store
from tests.contract.desk import NOON, SECOND, Desk, ended
from tests.support.incarnations import Replaceable


async def test_a_result_of_another_worker_changes_nothing_although_the_fence_is_the_same(
    desk: Desk, store: Store
) -> None:
    """After a failover that lost a claim, the next worker that claims is given the same fence."""
    claim = await desk.claimed(await desk.job())
    other = dataclasses.replace(claim, worker=uuid4())
    before = await desk.get(claim.key)
    for result in (
        ended(other),
        ended(other, output="said"),
        ended(other, State.FAILED),
        ended(other, State.RETRYING, ready_at=NOON),
    ):
        assert await store.complete([result]) == [None]
    await store.report([Report(1, other.key, other.fence, other.worker, NOON + SECOND, '"other"')])
    await store.hand_back(other.worker, [(1, other.key, other.fence)])
    assert await desk.get(claim.key) == before
    assert await store.list_attempts(1, claim.key) == []
    assert await store.complete([ended(claim)]) == [State.SUCCEEDED]


async def test_of_two_results_with_one_fence_that_of_the_holder_is_kept(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    other = dataclasses.replace(claim, worker=uuid4())
    states = await store.complete([ended(other, State.FAILED), ended(claim, output="mine")])
    assert states == [None, State.SUCCEEDED]
    assert (await desk.get(claim.key)).output == "mine"


async def test_a_worker_claims_only_in_the_incarnation_in_which_it_entered(
    desk: Desk, store: Store, replaceable: Replaceable
) -> None:
    job = await desk.job()
    keys = await desk.staged(job, NOON, NOON - SECOND)
    worker = await desk.worker()
    assert len(await desk.claim(worker, limit=1)) == 1
    await replaceable.become("7/00000002")
    assert await desk.claim(worker) == []
    assert await store.heartbeat(worker, NOON, NOON + SECOND, running=1, is_draining=False) == "7/00000002"
    assert len(await store.held_by(worker)) == 1, "what it holds is still its own"
    assert [claim.key for claim in await desk.claim()] == [keys[0]]


async def test_a_pulse_tells_which_was_there_before_and_who_has_it(
    store: Store, replaceable: Replaceable
) -> None:
    process, other = uuid4(), uuid4()
    first = await store.pulse(process, 1, NOON)
    assert (first.number, first.beat_at) == (None, None)
    await store.pulse(other, 9, NOON)
    assert await store.pulse(process, 2, NOON + SECOND) == Pulse(first.incarnation, 1, NOON)
    await replaceable.become("7/00000002")
    assert await store.pulse(process, 5, NOON) == Pulse("7/00000002", 2, NOON + SECOND)


async def test_pulses_of_processes_long_gone_are_forgotten(store: Store) -> None:
    gone, there = uuid4(), uuid4()
    await store.pulse(gone, 1, NOON - SECOND)
    await store.pulse(there, 1, NOON)
    await store.forget(keys_before=NOON, workers_before=NOON)
    assert (await store.pulse(gone, 2, NOON)).number is None
    assert (await store.pulse(there, 2, NOON)).number == 1
