"""A claim that was not started in time is asked for anew, and is had only where nothing has come in between."""

from __future__ import annotations

from uuid import uuid4

from cronwell.model.execution import State
from cronwell.store.port import Confirmed, Report, Store
from tests.contract.desk import MINUTE, NOON, SECOND, TENANT, Desk, ended

LATER = NOON + SECOND
MAY_START = Confirmed(State.RUNNING, is_cancelled=False)


async def test_a_claim_that_stands_may_start_and_counts_as_claimed_now(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    assert await store.confirm(claim.worker, [(TENANT, claim.key, claim.fence)], LATER) == [MAY_START]
    found = await desk.get(claim.key)
    assert (found.state, found.claimed_at, found.fence, found.attempt) == (
        State.RUNNING,
        LATER,
        claim.fence,
        claim.attempt,
    )


async def test_a_claim_may_be_had_for_a_time_ahead(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    await store.confirm(claim.worker, [(TENANT, claim.key, claim.fence)], LATER, ahead=SECOND)
    assert (await desk.get(claim.key)).claimed_at == LATER + SECOND


async def test_who_changes_the_job_is_told_to_wait_from_the_confirmation_on(desk: Desk, store: Store) -> None:
    job = await desk.job()
    claim = await desk.claimed(job)
    await store.confirm(claim.worker, [(TENANT, claim.key, claim.fence)], NOON + MINUTE)
    async with store.transaction() as transaction:
        [touched] = await transaction.withhold_due(TENANT, job.id, NOON + MINUTE, "paused")
    assert touched.starts_at == NOON + MINUTE


async def test_what_a_pause_reached_does_not_start_any_more(desk: Desk, store: Store) -> None:
    job = await desk.job()
    claim = await desk.claimed(job)
    async with store.transaction() as transaction:
        await transaction.withhold_due(TENANT, job.id, NOON, "paused")
    [confirmed] = await store.confirm(claim.worker, [(TENANT, claim.key, claim.fence)], LATER)
    assert confirmed == Confirmed(State.SKIPPED, is_cancelled=False)
    found = await desk.get(claim.key)
    assert (found.state, found.reason, found.finished_at, found.attempt) == (
        State.SKIPPED,
        "paused",
        LATER,
        0,
    )
    assert await store.complete([ended(claim)]) == [None]


async def test_what_a_delete_reached_says_so(desk: Desk, store: Store) -> None:
    job = await desk.job()
    claim = await desk.claimed(job)
    async with store.transaction() as transaction:
        await transaction.withhold_due(TENANT, job.id, NOON, "deleted")
        await transaction.set_job_state(TENANT, job.id, "deleted", NOON)
    await store.confirm(claim.worker, [(TENANT, claim.key, claim.fence)], LATER)
    assert (await desk.get(claim.key)).reason == "deleted"


async def test_a_cancel_is_told(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    await store.cancel_execution(TENANT, claim.key, NOON)
    [confirmed] = await store.confirm(claim.worker, [(TENANT, claim.key, claim.fence)], LATER)
    assert confirmed == Confirmed(State.RUNNING, is_cancelled=True)


async def test_what_is_no_longer_the_workers_is_not_had(desk: Desk, store: Store) -> None:
    claim = await desk.claimed(await desk.job())
    done = await desk.claimed(await desk.job())
    begun = await desk.claimed(await desk.job())
    await store.complete([ended(done)])
    await store.report([Report(TENANT, begun.key, begun.fence, begun.worker, NOON, None)])
    for worker, asked in (
        (uuid4(), (TENANT, claim.key, claim.fence)),
        (claim.worker, (TENANT, claim.key, claim.fence + 1)),
        (done.worker, (TENANT, done.key, done.fence)),
        (begun.worker, (TENANT, begun.key, begun.fence)),
    ):
        assert await store.confirm(worker, [asked], LATER) == [None]


async def test_each_of_many_has_its_own_answer(desk: Desk, store: Store) -> None:
    worker = await desk.worker()
    job, other = await desk.job(), await desk.job()
    await desk.staged(job, NOON)
    await desk.staged(other, NOON)
    claims = {claim.key.job_id: claim for claim in await desk.claim(worker)}
    first, second = claims[job.id], claims[other.id]
    async with store.transaction() as transaction:
        await transaction.withhold_due(TENANT, job.id, NOON, "paused")
    asked = [
        (TENANT, second.key, second.fence),
        (TENANT, first.key, first.fence),
        (TENANT, second.key, 99),
    ]
    assert await store.confirm(worker, asked, LATER) == [
        MAY_START,
        Confirmed(State.SKIPPED, is_cancelled=False),
        None,
    ]
