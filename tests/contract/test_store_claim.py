"""Claiming: each execution goes to one living worker at a time, in order, and no job runs more than it may."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from cronwell.model.execution import State
from cronwell.store.port import Claimed, Report, Store
from tests.contract.desk import DAY, HOUR, MINUTE, NOON, SECOND, Desk, ended


async def test_a_claim_takes_what_is_due_and_raises_its_fence(desk: Desk) -> None:
    job = await desk.job()
    [key] = await desk.staged(job, NOON)
    worker = await desk.worker()
    [claim] = await desk.claim(worker)
    assert (claim.key, claim.tenant_id, claim.ready_at) == (key, 1, NOON)
    assert (claim.fence, claim.attempt, claim.revision, claim.priority) == (1, 1, 1, 1)
    kept = await desk.get(key)
    assert (kept.state, kept.worker, kept.claimed_at) == (State.RUNNING, worker, NOON)
    assert (kept.fence, kept.attempt, kept.started_at) == (1, 1, None)
    assert await desk.claim(worker) == []


async def test_the_fence_grows_with_each_claim_and_never_goes_back(desk: Desk) -> None:
    job = await desk.job()
    claim = await desk.claimed(job)
    fences = [claim.fence]
    for _ in range(3):
        await desk.store.complete([ended(claim, State.RETRYING, ready_at=NOON)])
        [claim] = await desk.claim()
        fences.append(claim.fence)
    await desk.store.hand_back(claim.worker, [(1, claim.key, claim.fence)])
    [claim] = await desk.claim()
    fences.append(claim.fence)
    await desk.store.complete([ended(claim, State.FAILED)])
    await desk.store.revive_execution(1, claim.key, NOON)
    [claim] = await desk.claim()
    fences.append(claim.fence)
    assert fences == sorted(set(fences))
    assert claim.attempt == 1, "a dead letter gets a new set of attempts"


async def test_twenty_claimers_at_once_never_share_an_execution(desk: Desk) -> None:
    job = await desk.job()
    keys = await desk.staged(job, *(NOON - n * SECOND for n in range(300)))
    workers = [await desk.worker() for _ in range(20)]

    async def work(worker: UUID) -> list[Claimed]:
        mine: list[Claimed] = []
        while claims := await desk.claim(worker, limit=7):
            mine += claims
        return mine

    taken = await asyncio.gather(*map(work, workers))
    found = Counter(claim.key for claims in taken for claim in claims)
    assert found == dict.fromkeys(keys, 1)
    assert all(claim.fence == 1 for claims in taken for claim in claims)
    for worker, claims in zip(workers, taken, strict=True):
        held = await desk.store.held_by(worker)
        assert sorted(map(str, held)) == sorted(str((1, claim.key, claim.fence)) for claim in claims)


async def test_the_earliest_come_first_up_to_the_limit(desk: Desk) -> None:
    job = await desk.job()
    slots = [NOON - n * MINUTE for n in (3, 1, 4, 2, 5)]
    await desk.staged(job, *slots)
    worker = await desk.worker()
    first, second = await desk.claim(worker, limit=2), await desk.claim(worker, limit=9)
    assert {claim.ready_at for claim in first} == set(sorted(slots)[:2])
    assert {claim.ready_at for claim in second} == set(sorted(slots)[2:])


async def test_earliest_ready_comes_first_whatever_the_day_of_its_slot(desk: Desk) -> None:
    job = await desk.job()
    for days, minutes in ((2, 2), (1, 3), (0, 1), (3, 0)):
        await desk.staged(job, NOON - DAY * days, ready_at=NOON - MINUTE * minutes)
    worker = await desk.worker()
    taken = [(await desk.claim(worker, limit=1))[0].ready_at for _ in range(4)]
    assert taken == sorted(taken)


async def test_a_claim_passes_over_what_another_holds_and_does_not_wait(desk: Desk, store: Store) -> None:
    held, free = await desk.job(), await desk.job()
    await desk.staged(held, NOON - MINUTE)
    [key] = await desk.staged(free, NOON)
    worker = await desk.worker()
    async with asyncio.timeout(5), store.transaction() as transaction:
        await transaction.rebase_open(held, 2, 1)
        assert [claim.key for claim in await desk.claim(worker)] == [key]
    assert [claim.key.job_id for claim in await desk.claim(worker)] == [held.id]


async def test_what_is_not_ready_by_then_is_left(desk: Desk) -> None:
    job = await desk.job()
    early, _late = await desk.staged(job, NOON, NOON + timedelta(microseconds=1))
    assert [claim.key for claim in await desk.claim(ready_by=NOON)] == [early]


async def test_readiness_counts_and_not_the_slot(desk: Desk) -> None:
    job = await desk.job()
    [key] = await desk.staged(job, NOON, ready_at=NOON + MINUTE)
    assert await desk.claim(ready_by=NOON) == []
    assert [claim.key for claim in await desk.claim(ready_by=NOON + MINUTE)] == [key]


@pytest.mark.parametrize(("asked", "is_taken"), [("gpu", True), ("default", False), ("gp", False)])
async def test_only_the_pool_that_was_asked_for_is_served(desk: Desk, asked: str, is_taken: bool) -> None:
    await desk.staged(await desk.job(pool="gpu"), NOON)
    assert bool(await desk.claim(pool=asked)) is is_taken


@pytest.mark.parametrize("priority", [0, 1, 2])
async def test_only_the_priority_that_was_asked_for_is_served(desk: Desk, priority: int) -> None:
    job = await desk.job()
    slots = [NOON - n * SECOND for n in range(3)]
    for tier, slot in enumerate(slots):
        await desk.staged(job, slot, priority=tier)
    assert [claim.key.slot for claim in await desk.claim(priority=priority)] == [slots[priority]]


async def test_a_claim_carries_what_was_asked_for_at_the_trigger(desk: Desk) -> None:
    await desk.manual(await desk.job(), payload='{"a": [1, "ä"]}', revision=7)
    [claim] = await desk.claim()
    assert (claim.payload, claim.revision) == ('{"a": [1, "ä"]}', 7)


async def test_only_a_living_worker_is_given_work(desk: Desk, store: Store) -> None:
    await desk.staged(await desk.job(), NOON)
    draining, gone, silent = [await desk.worker() for _ in range(3)]
    await store.heartbeat(draining, NOON, NOON + HOUR, running=0, is_draining=True)
    await store.leave(gone, NOON)
    await store.heartbeat(silent, NOON - HOUR, NOON - MINUTE, running=0, is_draining=False)
    lapsed = await desk.worker(lease_until=NOON)
    for worker in (draining, gone, lapsed, silent, uuid4()):
        assert await desk.claim(worker) == []
    await store.lose_workers(NOON)
    assert await desk.claim(silent) == []
    assert len(await desk.claim()) == 1


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.CANCELLED])
async def test_what_has_ended_is_not_claimed(desk: Desk, state: State) -> None:
    claim = await desk.claimed(await desk.job())
    await desk.store.complete([ended(claim, state)])
    assert await desk.claim(ready_by=NOON + DAY) == []


@pytest.mark.parametrize(("limit", "running"), [(1, 1), (2, 2), (3, 3), (None, 5)])
async def test_a_job_runs_no_more_than_it_may_and_the_oldest_first(
    desk: Desk, limit: int | None, running: int
) -> None:
    job = await desk.job()
    keys = await desk.staged(job, *(NOON - n * MINUTE for n in range(5, 0, -1)), running_limit=limit)
    claims = await desk.claim()
    assert {claim.key for claim in claims} == set(keys[:running])
    assert await desk.claim() == []


async def test_the_next_one_may_start_when_one_has_ended(desk: Desk) -> None:
    job = await desk.job()
    keys = await desk.staged(job, *(NOON - n * MINUTE for n in (3, 2, 1)), running_limit=1)
    worker = await desk.worker()
    done = []
    while claims := await desk.claim(worker):
        [claim] = claims
        done.append(claim.key)
        await desk.store.complete([ended(claim)])
    assert done == keys


async def test_one_that_waits_for_its_retry_still_counts(desk: Desk) -> None:
    job = await desk.job()
    first, second = await desk.staged(job, NOON - MINUTE, NOON, running_limit=1)
    [claim] = await desk.claim()
    await desk.store.complete([ended(claim, State.RETRYING, ready_at=NOON + HOUR)])
    assert await desk.claim(ready_by=NOON + MINUTE) == []
    assert [each.key for each in await desk.claim(ready_by=NOON + HOUR)] == [first]
    assert (await desk.get(second)).state is State.PENDING


async def test_jobs_do_not_count_for_each_other(desk: Desk) -> None:
    for _ in range(3):
        await desk.staged(await desk.job(), NOON - MINUTE, NOON, running_limit=1)
    assert len(await desk.claim()) == 3


# Also a hair more than a day, claimed half a second before the later one's instant: a worker claims early.
APART = (
    *(MINUTE, HOUR, DAY - SECOND, DAY, DAY + timedelta(milliseconds=100), DAY + timedelta(milliseconds=400)),
    *(DAY + SECOND, DAY + HOUR, DAY * 3, DAY * 20),
)


@pytest.mark.parametrize("apart", APART, ids=str)
async def test_an_unfinished_one_holds_back_a_later_one_however_far_apart(
    desk: Desk, apart: timedelta
) -> None:
    job = await desk.job()
    earlier = await desk.claimed(job, NOON - apart, running_limit=1)
    [later] = await desk.staged(job, NOON, running_limit=1)
    half_a_second = timedelta(milliseconds=500)
    assert await desk.claim(ready_by=NOON, now=NOON - half_a_second) == []
    assert await desk.claim(ready_by=NOON + HOUR, now=NOON + HOUR) == []
    await desk.store.complete([ended(earlier)])
    assert [claim.key for claim in await desk.claim(ready_by=NOON, now=NOON - half_a_second)] == [later]


async def test_triggers_kept_apart_by_a_microsecond_count_for_each_other(desk: Desk) -> None:
    job = await desk.job()
    tick = timedelta(microseconds=1)
    await desk.manual(job, NOON - DAY, running_limit=1)
    assert len(await desk.claim()) == 1
    # Ready at noon but with a slot behind it, as the second trigger of one microsecond is.
    await desk.manual(job, NOON + tick, ready_at=NOON, running_limit=1)
    assert await desk.claim(ready_by=NOON) == []


async def test_the_limit_holds_under_twenty_claimers_also_days_apart(desk: Desk) -> None:
    jobs = [await desk.job() for _ in range(30)]
    slots = [NOON - DAY * 2, NOON - DAY - SECOND, NOON - HOUR, NOON - MINUTE, NOON]
    for job in jobs:
        await desk.staged(job, *slots, running_limit=1)
    workers = [await desk.worker() for _ in range(20)]
    finished: Counter[UUID] = Counter()
    for slot in slots:
        claims = [
            claim
            for each in await asyncio.gather(*(desk.claim(worker, limit=5) for worker in workers))
            for claim in each
        ]
        while more := await desk.claim(workers[0]):
            claims += more
        assert Counter(claim.key.job_id for claim in claims) == dict.fromkeys((job.id for job in jobs), 1)
        assert {claim.key.slot for claim in claims} == {slot}
        await desk.store.complete([ended(claim) for claim in claims])
        finished.update(claim.key.job_id for claim in claims)
    assert set(finished.values()) == {len(slots)}


async def test_the_limit_holds_while_results_come_in(desk: Desk) -> None:
    """Claims and completions race; at no moment does a job have two running."""
    jobs = [await desk.job() for _ in range(10)]
    for job in jobs:
        await desk.staged(job, *(NOON - n * SECOND for n in range(12)), running_limit=1)
    running: Counter[UUID] = Counter()
    done = 0

    async def work(worker: UUID) -> None:
        nonlocal done
        while done < 120:
            claims = await desk.claim(worker, limit=3)
            for claim in claims:
                running[claim.key.job_id] += 1
                assert running[claim.key.job_id] == 1
            for claim in claims:
                # Before the write, because another may claim as soon as it is in.
                running[claim.key.job_id] -= 1
                await desk.store.complete([ended(claim)])
                done += 1

    await asyncio.gather(*[work(await desk.worker()) for _ in range(8)])
    assert done == 120


async def test_what_is_blocked_is_skipped_and_says_why(desk: Desk, store: Store) -> None:
    job = await desk.job()
    running, second, third, ahead = await desk.staged(
        job, NOON - MINUTE * 2, NOON - MINUTE, NOON, NOON + MINUTE, running_limit=1
    )
    await desk.claim(limit=1)
    assert await store.settle_blocked(["default"], NOON) == (2, set())
    assert await desk.states([running, second, third, ahead]) == [
        State.RUNNING,
        State.SKIPPED,
        State.SKIPPED,
        State.PENDING,
    ]
    skipped = await desk.get(second)
    assert (skipped.reason, skipped.finished_at) == ("overlap", NOON)
    assert await store.settle_blocked(["default"], NOON) == (0, set())


async def test_skipping_leaves_alone_what_is_not_blocked(desk: Desk, store: Store) -> None:
    free = await desk.staged(await desk.job(), NOON - MINUTE, NOON, running_limit=2)
    boundless = await desk.staged(await desk.job(), NOON - MINUTE, NOON)
    elsewhere = await desk.staged(await desk.job(pool="gpu"), NOON - MINUTE, NOON, running_limit=1)
    assert await store.settle_blocked(["default"], NOON) == (0, set())
    assert set(await desk.states([*free, *boundless, *elsewhere])) == {State.PENDING}
    assert await store.settle_blocked(["default", "gpu"], NOON) == (1, set())
    assert await desk.states(elsewhere) == [State.PENDING, State.SKIPPED]


@pytest.mark.parametrize("priority", [0, 1, 2])
async def test_blocked_ones_of_every_priority_are_skipped(desk: Desk, store: Store, priority: int) -> None:
    await desk.staged(await desk.job(), NOON - DAY * 3, NOON, running_limit=1, priority=priority)
    assert await store.settle_blocked(["default"], NOON) == (1, set())


async def test_one_that_has_begun_is_retried_rather_than_skipped(desk: Desk, store: Store) -> None:
    job = await desk.job()
    claim = await desk.claimed(job, NOON, running_limit=1)
    await store.complete([ended(claim, State.RETRYING, ready_at=NOON)])
    [late] = await desk.staged(job, NOON - MINUTE, running_limit=1)
    assert await store.settle_blocked(["default"], NOON + SECOND * 2) == (1, set())
    assert await desk.states([claim.key, late]) == [State.RETRYING, State.SKIPPED]


async def test_skipping_and_claiming_at_once_give_each_one_verdict(desk: Desk, store: Store) -> None:
    jobs = [await desk.job() for _ in range(20)]
    keys = [key for job in jobs for key in await desk.staged(job, NOON - MINUTE, NOON, running_limit=1)]
    workers = [await desk.worker() for _ in range(5)]
    answers = await asyncio.gather(
        *(desk.claim(worker, limit=4) for worker in workers),
        *(_skip(store) for _ in workers),
    )
    claims = [claim for each in answers if isinstance(each, list) for claim in each]
    skipped = sum(each for each in answers if isinstance(each, int))
    states = Counter(await desk.states(keys))
    assert states[State.RUNNING] == len(claims) == 20
    assert states[State.SKIPPED] == skipped == 20


async def _skip(store: Store) -> int:
    skipped, _ = await store.settle_blocked(["default"], NOON)
    return skipped


async def test_handing_back_makes_a_claim_free_at_once(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    await store.hand_back(claim.worker, [(1, claim.key, claim.fence)])
    kept = await desk.get(claim.key)
    assert (kept.state, kept.attempt, kept.worker, kept.claimed_at) == (State.PENDING, 0, None, None)
    [again] = await desk.claim()
    assert (again.key, again.attempt, again.fence) == (claim.key, 1, claim.fence + 1)


async def test_a_later_attempt_is_handed_back_as_a_retry(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    await store.complete([ended(claim, State.RETRYING, ready_at=NOON)])
    [second] = await desk.claim()
    await store.hand_back(second.worker, [(1, second.key, second.fence)])
    kept = await desk.get(claim.key)
    assert (kept.state, kept.attempt) == (State.RETRYING, 1)


async def test_what_has_started_ended_or_changed_hands_is_not_handed_back(desk: Desk, store: Store) -> None:
    job = await desk.job()
    slots = [NOON - n * SECOND for n in range(5)]
    started, done, passed_on, cancelled, last = [await desk.claimed(job, slot) for slot in slots]
    await desk.store.report([_report(started)])
    await store.complete([ended(done)])
    await store.hand_back(passed_on.worker, [(1, passed_on.key, passed_on.fence)])
    await desk.claim()
    await store.cancel_execution(1, cancelled.key, NOON)
    everything = [started, done, passed_on, cancelled]
    before = [await desk.get(claim.key) for claim in everything]
    for claim in everything:
        await store.hand_back(claim.worker, [(1, claim.key, claim.fence)])
    assert [await desk.get(claim.key) for claim in everything] == before
    async with store.transaction() as transaction:
        await transaction.withhold_due(1, job.id, NOON, "paused")
    await store.hand_back(last.worker, [(1, last.key, last.fence)])
    assert (await desk.get(last.key)).state is State.RUNNING, "a paused job's claim must not start again"


def _report(claim: Claimed) -> Report:
    return Report(claim.tenant_id, claim.key, claim.fence, claim.worker, NOON + SECOND, None)


async def test_what_is_wanted_stopped_is_told_to_the_worker_that_holds_it(desk: Desk, store: Store) -> None:
    job = await desk.job()
    worker = await desk.worker()
    await desk.staged(job, NOON - SECOND, NOON)
    one, other = await desk.claim(worker)
    assert await store.cancels(worker) == []
    touched = await store.cancel_execution(1, one.key, NOON)
    assert touched is not None
    assert (touched.state, touched.worker) == (State.RUNNING, worker)
    assert await store.cancels(worker) == [(1, one.key, one.fence)]
    assert await store.cancels(uuid4()) == []
    assert sorted(map(str, await store.held_by(worker))) == sorted(
        str((1, each.key, each.fence)) for each in (one, other)
    )


async def test_reports_say_when_an_attempt_began_and_how_far_it_is(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    await store.report([_report(claim)])
    later = dataclasses.replace(_report(claim), started_at=NOON + HOUR, progress='{"done": 7}')
    await store.report([later])
    kept = await desk.get(claim.key)
    assert (kept.started_at, kept.progress) == (NOON + SECOND, '{"done": 7}')
    await store.report([_report(claim)])
    assert (await desk.get(claim.key)).progress == '{"done": 7}', "no news is no change"
    await store.report([dataclasses.replace(later, fence=claim.fence + 1, progress='"stale"')])
    assert (await desk.get(claim.key)).progress == '{"done": 7}'
