"""Long work: what is told under a fence is kept with it, and what waits for its callback is nobody's to lose."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from cronwell.model.access import Quotas
from cronwell.model.execution import ExecutionKey, Result, State
from cronwell.store.port import Awaited, Called, Claimed, Ended, Store, Told
from tests.contract.desk import DAY, HOUR, MINUTE, NOON, OTHER_TENANT, SECOND, Desk, ended


def parked(claim: Claimed, *, heartbeat: timedelta | None = None, **fields: Any) -> Ended:
    """A result that says: it waits for its callback, since noon, for two hours."""
    waits = Awaited(NOON + 2 * HOUR, heartbeat)
    return ended(claim, State.SUCCEEDED, finished_at=NOON, started_at=NOON, awaits=waits, **fields)


def told(claim: Claimed, **fields: Any) -> Told:
    return dataclasses.replace(Told(1, claim.key, claim.fence, claim.worker), **fields)


async def overdue(store: Store, at: Any) -> list[Called]:
    async with store.transaction() as transaction:
        return await transaction.lock_overdue(at, 10)


async def test_what_waits_for_its_callback_is_running_and_no_workers(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    assert await store.complete([parked(claim)]) == [State.RUNNING]
    kept = await desk.get(claim.key)
    assert (kept.state, kept.worker, kept.finished_at) == (State.RUNNING, None, None)
    assert (kept.started_at, kept.callback_until) == (NOON, NOON + 2 * HOUR)
    assert await store.held_by(claim.worker) == []
    # Its worker dies, is forgotten, and is looked for: nothing of that reaches it.
    assert claim.worker in await store.lose_workers(NOON + 40 * DAY)
    assert await store.orphans(10) == []
    await store.forget(keys_before=NOON, workers_before=NOON + 40 * DAY)
    assert await store.abandoned(NOON + 40 * DAY, 10) == []
    assert not await store.drop_day(NOON.date())
    assert await store.complete([ended(claim, output="done")]) == [State.SUCCEEDED]
    kept = await desk.get(claim.key)
    assert (kept.state, kept.worker, kept.callback_until) == (State.SUCCEEDED, claim.worker, None)


async def test_parking_twice_is_parking_once_and_a_callback_may_be_faster(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    assert await store.complete([parked(claim), parked(claim)]) == [State.RUNNING, State.RUNNING]
    assert await store.complete([ended(claim)]) == [State.SUCCEEDED]
    assert await store.complete([parked(claim)]) == [State.SUCCEEDED]
    assert (await desk.get(claim.key)).state is State.SUCCEEDED


async def test_a_batch_may_hold_what_ended_and_what_waits(desk: Desk, store: Store) -> None:
    job = await desk.job()
    claims = [await desk.claimed(job, NOON - MINUTE * minute) for minute in range(4)]
    stranger = dataclasses.replace(parked(claims[3]), worker=uuid4())
    results = [ended(claims[0]), parked(claims[1]), ended(claims[2], State.FAILED), stranger]
    assert await store.complete(results) == [State.SUCCEEDED, State.RUNNING, State.FAILED, None]


@pytest.mark.parametrize("output", ["late", None])
async def test_a_callback_of_an_attempt_that_is_over_changes_nothing(
    desk: Desk, store: Store, output: str | None
) -> None:
    first = await desk.claimed(await desk.job())
    await store.complete([parked(first)])
    again = ended(first, State.RETRYING, Result.TIMED_OUT, ready_at=NOON)
    assert await store.complete([again]) == [State.RETRYING]
    assert await store.hear([told(first, checkpoint='"late"')], NOON) == [False]
    assert await store.complete([ended(first, output=output)]) == [None]
    [second] = await desk.claim()
    # The same fence in the hands of another, as a promoted server may give it: that is not ours either.
    for stale in (told(first), told(second, worker=first.worker)):
        assert await store.hear([dataclasses.replace(stale, progress='"late"')], NOON) == [False]
    assert await store.complete([parked(first), ended(first, output=output)]) == [None, None]
    kept = await desk.get(first.key)
    assert (kept.fence, kept.worker, kept.progress, kept.checkpoint) == (2, second.worker, None, None)
    [attempt] = await store.list_attempts(1, first.key)
    assert (attempt.result, attempt.worker) == (Result.TIMED_OUT, first.worker)


async def test_a_checkpoint_is_given_to_the_next_attempt_and_survives_a_redrive(
    desk: Desk, store: Store
) -> None:
    first = await desk.claimed(await desk.job())
    assert first.checkpoint is None
    assert await store.hear([told(first, checkpoint='{"page": 1}')], NOON) == [True]
    assert await store.hear([told(first, checkpoint='{"page": 2}', progress="7")], NOON) == [True]
    assert await store.hear([told(first)], NOON) == [True]
    kept = await desk.get(first.key)
    assert (kept.checkpoint, kept.progress) == ('{"page": 2}', "7")
    await store.complete([ended(first, State.RETRYING, Result.WORKER_LOST, ready_at=NOON)])
    [second] = await desk.claim()
    assert (second.fence, second.checkpoint) == (2, '{"page": 2}')
    await store.complete([ended(second, State.FAILED)])
    await store.revive_execution(1, first.key, NOON)
    [third] = await desk.claim()
    assert (third.attempt, third.checkpoint) == (1, '{"page": 2}')


async def test_each_sign_of_life_gives_time_until_the_next_one_but_not_beyond_the_deadline(
    desk: Desk, store: Store
) -> None:
    claim = await desk.claimed(await desk.job())
    assert await store.hear([told(claim)], NOON) == [True]
    assert (await desk.get(claim.key)).callback_until is None, "it is still its worker's"
    await store.complete([parked(claim, heartbeat=10 * MINUTE)])
    assert (await desk.get(claim.key)).callback_until == NOON + 10 * MINUTE
    await store.hear([told(claim)], NOON + 5 * MINUTE)
    assert (await desk.get(claim.key)).callback_until == NOON + 15 * MINUTE
    await store.hear([told(claim)], NOON + 119 * MINUTE)
    assert (await desk.get(claim.key)).callback_until == NOON + 2 * HOUR


async def test_what_is_overdue_is_found_the_longest_first_and_what_is_told_meanwhile_counts(
    desk: Desk, store: Store
) -> None:
    job = await desk.job()
    claims = [await desk.claimed(job, NOON - MINUTE * minute) for minute in range(3)]
    for claim, minutes in zip(claims, (9, 5, 30), strict=True):
        await store.complete([parked(claim, heartbeat=minutes * MINUTE)])
    found = await overdue(store, NOON + 10 * MINUTE)
    assert [each.key for each in found] == [claims[1].key, claims[0].key]
    assert [(each.fence, each.worker, each.state) for each in found] == [
        (1, claims[1].worker, State.RUNNING),
        (1, claims[0].worker, State.RUNNING),
    ]
    assert (found[0].until, found[0].deadline) == (NOON + 5 * MINUTE, NOON + 2 * HOUR)
    assert await overdue(store, NOON + 4 * MINUTE) == []
    async with store.transaction() as transaction:
        assert len(await transaction.lock_overdue(NOON + 10 * MINUTE, 1)) == 1
        assert len(await overdue(store, NOON + 10 * MINUTE)) == 1, (
            "another scheduler passes over what is locked"
        )
    await store.hear([told(claims[1])], NOON + 9 * MINUTE)
    assert [each.key for each in await overdue(store, NOON + 10 * MINUTE)] == [claims[0].key]


async def test_a_cancel_ends_what_waits_for_its_callback(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    await store.complete([parked(claim)])
    touched = await store.cancel_execution(1, claim.key, NOON + SECOND)
    assert touched is not None
    assert touched.state is State.CANCELLED
    kept = await desk.get(claim.key)
    assert (kept.state, kept.finished_at, kept.started_at) == (State.CANCELLED, NOON + SECOND, NOON)
    [attempt] = await store.list_attempts(1, claim.key)
    assert (attempt.result, attempt.worker) == (Result.CANCELLED, claim.worker)
    assert await store.complete([ended(claim)]) == [None]


async def test_a_cancel_that_came_before_it_waited_is_found(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    await store.cancel_execution(1, claim.key, NOON)
    await store.complete([parked(claim)])
    [found] = await overdue(store, NOON)
    assert (found.key, found.is_cancelled) == (claim.key, True)
    [late] = await overdue(store, NOON + 3 * HOUR)
    assert late.key == claim.key, "overdue too, and found once"


async def test_what_callbacks_are_signed_with_is_the_same_for_all_and_kept(desk: Desk, store: Store) -> None:
    terms = await store.callback_terms(1)
    assert terms is not None
    assert (len(terms[0]), terms[1]) == (32, Quotas())
    assert await desk.another_process().callback_terms(OTHER_TENANT) == terms
    assert await store.callback_terms(77) is None


async def test_a_called_execution_says_what_decides_its_end(desk: Desk, store: Store) -> None:
    job = await desk.job("called")
    claim = await desk.claimed(job)
    found = await store.get_called(1, claim.key)
    assert found is not None
    assert (found.job_name, found.attempt, found.until) == ("called", 1, None)
    assert found.is_held(claim.fence, claim.worker)
    assert not found.is_held(claim.fence + 1, claim.worker)
    assert not found.is_held(claim.fence, uuid4())
    assert await store.get_called(OTHER_TENANT, claim.key) is None
    assert await store.get_called(1, ExecutionKey(job.id, claim.key.kind, NOON + DAY)) is None
