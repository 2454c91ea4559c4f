"""Results: only the holder of the fence may write one, once, and what it leads to respects cancels and pauses."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from cronwell.model.execution import ExecutionKey, Kind, Result, State
from cronwell.store.port import Report, Store
from tests.contract.desk import DAY, HOUR, MINUTE, NOON, SECOND, Desk, ended


async def test_a_result_is_kept_with_all_that_it_tells(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    result = ended(claim, output="done", output_truncated=True)
    assert await store.complete([result]) == [State.SUCCEEDED]
    kept = await desk.get(claim.key)
    assert (kept.state, kept.fence, kept.attempt) == (State.SUCCEEDED, 1, 1)
    assert (kept.started_at, kept.finished_at) == (NOON + SECOND, NOON + SECOND * 5)
    assert (kept.output, kept.output_truncated, kept.error) == ("done", True, None)


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.RETRYING], ids=str)
async def test_results_are_recorded_whole_where_one_of_them_is_being_changed(
    desk: Desk, store: Store, state: State
) -> None:
    """Also where there are days before them, which PostgreSQL leaves out: 18.4 then finds nothing after the one that was changed."""
    await desk.staged(await desk.job(), NOON - 5 * DAY)
    jobs = [await desk.job() for _ in range(5)]
    claims = [await desk.claimed(job) for job in jobs]
    result = Result.SUCCEEDED if state is State.SUCCEEDED else Result.FAILED
    results = [ended(claim, state, result, ready_at=NOON + HOUR) for claim in claims]
    async with store.transaction() as transaction:
        await transaction.rebase_open(jobs[1], 2, 1)
        recording = asyncio.create_task(store.complete(results))
        waiting, _ = await asyncio.wait({recording}, timeout=0.3)
        assert not waiting
    assert await recording == [state] * 5
    assert await desk.states([claim.key for claim in claims]) == [state] * 5


async def test_a_first_try_success_leaves_no_attempt_behind(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    await store.complete([ended(claim)])
    assert await store.list_attempts(1, claim.key) == []


@pytest.mark.parametrize("result", [each for each in Result if each is not Result.SUCCEEDED])
async def test_what_did_not_succeed_leaves_its_attempt(desk: Desk, store: Store, result: Result) -> None:
    worker = await desk.worker()
    job = await desk.job()
    await desk.staged(job, NOON)
    [claim] = await desk.claim(worker)
    told = ended(claim, State.FAILED, result, error_kind="status", error="503", output="oops")
    assert await store.complete([told]) == [State.FAILED]
    [attempt] = await store.list_attempts(1, claim.key)
    assert (attempt.attempt, attempt.fence, attempt.result, attempt.worker) == (1, 1, result, worker)
    assert (attempt.ready_at, attempt.claimed_at) == (NOON, NOON)
    assert (attempt.started_at, attempt.finished_at) == (NOON + SECOND, NOON + SECOND * 5)
    assert (attempt.error_kind, attempt.error, attempt.output) == ("status", "503", "oops")
    kept = await desk.get(claim.key)
    assert (kept.error_kind, kept.error, kept.output) == ("status", "503", "oops")


async def test_attempts_are_listed_in_their_order(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    for number in range(1, 4):
        await store.complete([ended(claim, State.RETRYING, ready_at=NOON, error=f"try {number}")])
        [claim] = await desk.claim()
    await store.complete([ended(claim)])
    attempts = await store.list_attempts(1, claim.key)
    assert [(each.attempt, each.fence, each.error) for each in attempts] == [
        (1, 1, "try 1"),
        (2, 2, "try 2"),
        (3, 3, "try 3"),
    ]


async def test_a_retry_waits_for_its_time(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    again = ended(claim, State.RETRYING, ready_at=NOON + MINUTE)
    assert await store.complete([again]) == [State.RETRYING]
    assert (await desk.get(claim.key)).ready_at == NOON + MINUTE
    assert await desk.claim(ready_by=NOON + MINUTE - SECOND) == []
    [second] = await desk.claim(ready_by=NOON + MINUTE)
    assert (second.key, second.attempt, second.fence) == (claim.key, 2, 2)
    kept = await desk.get(claim.key)
    assert kept.started_at is None, "the new attempt has not started"


async def test_a_result_with_an_old_fence_changes_nothing(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    await store.complete([ended(claim, State.RETRYING, Result.WORKER_LOST, ready_at=NOON)])
    [second] = await desk.claim()
    before = await desk.get(claim.key), await store.list_attempts(1, claim.key)
    for state in (State.SUCCEEDED, State.FAILED, State.RETRYING, State.CANCELLED):
        assert await store.complete([ended(claim, state, ready_at=NOON, output="late")]) == [None]
    assert (await desk.get(claim.key), await store.list_attempts(1, claim.key)) == before
    assert await store.complete([ended(second)]) == [State.SUCCEEDED]


async def test_a_fence_that_was_never_given_out_is_refused(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    ahead = dataclasses.replace(ended(claim), fence=claim.fence + 1)
    assert await store.complete([ahead]) == [None]
    assert (await desk.get(claim.key)).state is State.RUNNING


async def test_a_result_after_the_claim_was_handed_back_is_refused(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    await store.hand_back(claim.worker, [(1, claim.key, claim.fence)])
    assert await store.complete([ended(claim)]) == [None]
    assert (await desk.get(claim.key)).state is State.PENDING


async def test_the_same_result_twice_is_written_once(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    failed = ended(claim, State.FAILED, error="first")
    assert await store.complete([failed]) == [State.FAILED]
    before = await desk.get(claim.key), await store.list_attempts(1, claim.key)
    assert await store.complete([failed]) == [None]
    assert await store.complete([ended(claim)]) == [None], "the first result stands"
    assert (await desk.get(claim.key), await store.list_attempts(1, claim.key)) == before


async def test_one_result_twice_in_a_batch_is_written_once(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    failed = ended(claim, State.FAILED)
    assert await store.complete([failed, failed]) == [State.FAILED, State.FAILED]
    assert len(await store.list_attempts(1, claim.key)) == 1


async def test_of_many_results_for_one_claim_one_wins(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    results = [ended(claim, State.FAILED, error=str(n)) for n in range(10)]
    answers = await asyncio.gather(*(store.complete([result]) for result in results))
    winners = [n for n, answer in enumerate(answers) if answer == [State.FAILED]]
    assert len(winners) == 1
    [attempt] = await store.list_attempts(1, claim.key)
    assert attempt.error == (await desk.get(claim.key)).error == str(winners[0])


async def test_a_batch_is_answered_in_its_own_order(desk: Desk, store: Store) -> None:
    job = await desk.job()
    claims = [await desk.claimed(job, NOON - n * MINUTE) for n in range(4)]
    gone = dataclasses.replace(claims[0], key=ExecutionKey(job.id, Kind.SCHEDULED, NOON - DAY))
    batch = [
        ended(claims[2], State.FAILED),
        dataclasses.replace(ended(claims[1]), fence=9),
        ended(claims[0]),
        ended(gone),
        ended(claims[3], State.RETRYING, ready_at=NOON),
        dataclasses.replace(ended(claims[0]), key=ExecutionKey(job.id, Kind.MANUAL, claims[0].key.slot)),
    ]
    assert await store.complete(batch) == [State.FAILED, None, State.SUCCEEDED, None, State.RETRYING, None]
    assert await store.complete([]) == []


async def test_a_thousand_results_go_in_at_once(desk: Desk, store: Store) -> None:
    job = await desk.job()
    await desk.staged(job, *(NOON - n * SECOND for n in range(1000)))
    claims = await desk.claim()
    assert await store.complete([ended(claim) for claim in claims]) == [State.SUCCEEDED] * 1000


async def test_no_retry_after_a_cancel(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    await store.cancel_execution(1, claim.key, NOON)
    assert await store.complete([ended(claim, State.RETRYING, ready_at=NOON + HOUR)]) == [State.CANCELLED]
    kept = await desk.get(claim.key)
    assert (kept.state, kept.ready_at) == (State.CANCELLED, NOON)
    assert await desk.claim(ready_by=NOON + DAY) == []


async def test_what_succeeded_before_the_cancel_reached_it_has_succeeded(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    await store.cancel_execution(1, claim.key, NOON)
    assert await store.complete([ended(claim)]) == [State.SUCCEEDED]


async def test_the_attempt_that_runs_during_a_pause_is_the_last(desk: Desk, store: Store) -> None:
    job = await desk.job()
    claim = await desk.claimed(job)
    async with store.transaction() as transaction:
        await transaction.withhold_due(1, job.id, NOON, "paused")
    assert await store.complete([ended(claim, State.RETRYING, ready_at=NOON + HOUR)]) == [State.FAILED]
    assert (await desk.get(claim.key)).ready_at == NOON
    assert await desk.claim(ready_by=NOON + DAY) == []


async def test_a_start_that_was_reported_is_kept_where_the_result_has_none(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    await store.report([Report(1, claim.key, claim.fence, claim.worker, NOON + SECOND * 2, None)])
    lost = ended(claim, State.FAILED, Result.WORKER_LOST, started_at=None)
    await store.complete([lost])
    assert (await desk.get(claim.key)).started_at == NOON + SECOND * 2
    assert (await store.list_attempts(1, claim.key))[0].started_at == NOON + SECOND * 2


@pytest.mark.parametrize("prepare", ["pending", "retrying"])
async def test_what_has_not_started_is_cancelled_at_once(desk: Desk, store: Store, prepare: str) -> None:
    claim = await desk.claimed(await desk.job())
    if prepare == "pending":
        await store.hand_back(claim.worker, [(1, claim.key, claim.fence)])
    else:
        await store.complete([ended(claim, State.RETRYING, ready_at=NOON)])
    touched = await store.cancel_execution(1, claim.key, NOON + SECOND)
    assert touched is not None
    assert touched.state is State.CANCELLED
    kept = await desk.get(claim.key)
    assert (kept.state, kept.reason, kept.finished_at) == (State.CANCELLED, "cancelled", NOON + SECOND)
    assert kept.cancel_requested_at == NOON + SECOND
    assert await desk.claim() == []


async def test_a_cancel_of_what_runs_is_a_request_and_its_first_moment_counts(
    desk: Desk, store: Store
) -> None:
    claim = await desk.claimed(await desk.job())
    await store.cancel_execution(1, claim.key, NOON + SECOND)
    await store.cancel_execution(1, claim.key, NOON + MINUTE)
    kept = await desk.get(claim.key)
    assert (kept.state, kept.cancel_requested_at) == (State.RUNNING, NOON + SECOND)
    assert (kept.reason, kept.finished_at) == (None, None)


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.CANCELLED])
async def test_what_has_ended_cannot_be_cancelled(desk: Desk, store: Store, state: State) -> None:
    claim = await desk.claimed(await desk.job())
    await store.complete([ended(claim, state)])
    before = await desk.get(claim.key)
    assert await store.cancel_execution(1, claim.key, NOON) is None
    assert await desk.get(claim.key) == before


async def test_a_cancel_and_a_claim_at_once_agree(desk: Desk, store: Store) -> None:
    """Whichever comes first: it was cancelled before anybody had it, or its holder is told."""
    job = await desk.job()
    keys = await desk.staged(job, *(NOON - n * SECOND for n in range(30)))
    worker = await desk.worker()
    claims, touched = await asyncio.gather(
        desk.claim(worker), asyncio.gather(*(store.cancel_execution(1, key, NOON) for key in keys))
    )
    states = dict(zip(keys, await desk.states(keys), strict=True))
    assert all(each is not None for each in touched)
    assert {claim.key for claim in claims} == {key for key in keys if states[key] is State.RUNNING}
    assert {key for _, key, _ in await store.cancels(worker)} == {claim.key for claim in claims}


async def test_a_lost_workers_executions_are_orphans_until_they_are_ended(desk: Desk, store: Store) -> None:
    job = await desk.job()
    worker = await desk.worker(lease_until=NOON + MINUTE)
    await desk.staged(job, NOON - MINUTE, NOON)
    one, other = await desk.claim(worker)
    await store.cancel_execution(1, other.key, NOON)
    assert await store.lose_workers(NOON + MINUTE) == []
    assert await store.orphans(10) == []
    assert await store.lose_workers(NOON + MINUTE + SECOND) == [worker]
    orphans = {orphan.key: orphan for orphan in await store.orphans(10)}
    assert set(orphans) == {one.key, other.key}
    found = orphans[one.key]
    assert (found.fence, found.attempt, found.worker, found.spec) == (1, 1, worker, job.spec)
    assert (found.is_cancelled, orphans[other.key].is_cancelled) == (False, True)
    assert len(await store.orphans(1)) == 1
    await store.complete([ended(one, State.RETRYING, Result.WORKER_LOST, ready_at=NOON), ended(other)])
    assert await store.orphans(10) == []
    assert [each.key for each in await desk.claim()] == [one.key]


async def test_what_a_worker_left_behind_when_it_stopped_is_an_orphan_too(desk: Desk, store: Store) -> None:
    worker = await desk.worker()
    await desk.staged(await desk.job(), NOON)
    await desk.claim(worker)
    await store.leave(worker, NOON)
    assert len(await store.orphans(10)) == 1
