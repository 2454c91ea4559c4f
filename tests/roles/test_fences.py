"""Claims and results of workers that live, are slow, or are gone: what is not theirs any more they cannot change."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from cronwell.model.execution import Result, State
from cronwell.store.port import Claimed, Ended, Report
from cronwell.targets.handler import Context
from tests.support.house import SECOND, TENANT, House
from tests.support.waiting import until, until_async

QUICK = {"initial_delay": "50ms", "max_delay": "50ms", "jitter": 0}
SHORT = timedelta(milliseconds=300)


def _succeeded(claim: Claimed, now: datetime, output: str | None = None) -> Ended:
    return Ended(
        TENANT,
        claim.key,
        claim.fence,
        claim.worker,
        State.SUCCEEDED,
        Result.SUCCEEDED,
        now,
        now,
        output=output,
    )


async def _rescue(house: House) -> None:
    await until_async(house.rescue().run_once)


# A result without output is written by a statement of its own.
@pytest.mark.parametrize("output", ["zombie", None])
async def test_a_lost_workers_executions_are_rescued_and_its_late_result_is_refused(
    house: House, output: str | None
) -> None:
    """A worker that falls silent: claim by hand, let the lease end, rescue, then let the zombie speak."""
    await house.create(retry=QUICK)
    key = await house.trigger()
    zombie = await house.enter(lease=SHORT)
    [claim] = await house.claim(zombie)
    assert await house.rescue().run_once() == 0, "a living worker keeps what it holds"
    await _rescue(house)
    assert house.clock.now() >= zombie.lease_until
    lost = await house.get(key)
    assert (lost.state, lost.fence) == (State.RETRYING, claim.fence)

    late = _succeeded(claim, house.clock.now(), output)
    assert await house.store.complete([late]) == [None], "while it waits for the next attempt"
    assert (await house.get(key)).state is State.RETRYING

    began, release = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        began.set()
        await release.wait()
        return "the second"

    house.registry.add(work, "work")
    async with house.working():
        await began.wait()
        assert await house.store.complete([late]) == [None], "while the next attempt runs"
        running = await house.get(key)
        assert (running.state, running.fence) == (State.RUNNING, claim.fence + 1)
        release.set()
        done = await house.until_state(key, State.SUCCEEDED)
    assert await house.store.complete([late]) == [None], "after it has ended"
    assert (done.output, done.fence) == ("the second", claim.fence + 1)
    assert (await house.get(key)).output == "the second"


async def test_what_a_lost_worker_reports_or_hands_back_changes_nothing(house: House) -> None:
    await house.create(retry=QUICK)
    key = await house.trigger()
    [lost] = await house.claim(await house.enter(lease=SHORT))
    await house.store.report([Report(TENANT, key, lost.fence, lost.worker, house.clock.now(), None)])
    await _rescue(house)
    await until(lambda: house.clock.now() > lost.ready_at + SECOND)
    [claim] = await house.claim(await house.enter())
    before = await house.get(key)
    assert before.started_at is None, "the next attempt has not started"
    await house.store.report([Report(TENANT, key, lost.fence, lost.worker, house.clock.now(), '"zombie"')])
    await house.store.hand_back(lost.worker, [(TENANT, key, lost.fence)])
    assert await house.get(key) == before
    await house.store.report([Report(TENANT, key, claim.fence, claim.worker, house.clock.now(), '"mine"')])
    await house.store.hand_back(claim.worker, [(TENANT, key, claim.fence)])
    after = await house.get(key)
    assert (after.state, after.progress) == (State.RUNNING, '"mine"'), "what has started is not handed back"


async def test_only_a_living_worker_may_claim_or_lengthen_its_lease(house: House) -> None:
    await house.create()
    await house.trigger()
    silent = await house.enter(lease=SHORT)
    await until(lambda: house.clock.now() > silent.lease_until)
    assert await house.claim(silent) == [], "its lease has ended, although nobody has noticed"
    await house.rescue().run_once()
    assert await house.claim(silent) == [], "it was given up"
    now = house.clock.now()
    assert not await house.store.heartbeat(silent.id, now, now + SECOND, running=1, is_draining=False)
    assert await house.claim(silent) == [], "it cannot come back under that name"
    gone = await house.enter()
    await house.store.leave(gone.id, house.clock.now())
    assert await house.claim(gone) == [], "it has left"
    assert len(await house.claim(await house.enter())) == 1


async def test_workers_that_claim_at_once_share_nothing(house: House) -> None:
    await house.create(overlap="allow")
    keys = {await house.trigger() for _ in range(200)}
    workers = [await house.enter() for _ in range(6)]

    async def claim_all(number: int) -> list[Claimed]:
        mine: list[Claimed] = []
        while claims := await house.claim(workers[number], limit=7):
            mine += claims
        return mine

    claims = [claim for mine in await asyncio.gather(*map(claim_all, range(6))) for claim in mine]
    assert len(claims) == len(keys)
    assert {claim.key for claim in claims} == keys
    assert {claim.fence for claim in claims} == {1}


async def test_a_claim_does_not_wait_for_what_another_is_claiming(house: House) -> None:
    await house.create(overlap="allow")
    first, second = [await house.trigger() for _ in range(2)]
    worker = await house.enter()
    async with house.database.transaction() as connection:
        await connection.execute("select from executions where slot = $1 for update", first.slot)
        async with asyncio.timeout(5):
            [claim] = await house.claim(worker)
    assert claim.key == second


async def test_a_lost_attempt_is_tried_again_by_the_policy_of_its_job(house: House) -> None:
    await house.create(retry={"max_attempts": 2, **QUICK})
    key = await house.trigger()
    await house.claim(await house.enter(lease=SHORT))
    await _rescue(house)
    first = await house.get(key)
    [lost] = await house.store.list_attempts(TENANT, key)
    assert (lost.fence, lost.result) == (1, Result.WORKER_LOST)
    assert lost.finished_at is not None
    assert (first.state, first.ready_at) == (State.RETRYING, lost.finished_at + timedelta(milliseconds=50))
    await until(lambda: house.clock.now() >= first.ready_at)
    [claim] = await house.claim(await house.enter(lease=SHORT))
    assert (claim.attempt, claim.fence) == (2, 2)
    await _rescue(house)
    assert (await house.get(key)).state is State.FAILED


@pytest.mark.parametrize("attempts", [1, 4])
async def test_a_lost_attempt_that_was_cancelled_is_neither_tried_again_nor_a_dead_letter(
    house: House, attempts: int
) -> None:
    await house.create(retry={"max_attempts": attempts, **QUICK})
    key = await house.trigger()
    await house.claim(await house.enter(lease=SHORT))
    await house.executions.cancel(TENANT, str(key))
    await _rescue(house)
    assert (await house.get(key)).state is State.CANCELLED


async def test_what_a_stopped_worker_left_behind_is_rescued(house: House) -> None:
    await house.create(retry=QUICK)
    key = await house.trigger()
    worker = await house.enter()
    await house.claim(worker)
    await house.store.leave(worker.id, house.clock.now())
    assert await house.rescue().run_once() == 1
    assert (await house.get(key)).state is State.RETRYING


async def test_what_was_cancelled_while_it_was_held_is_not_handed_back_to_run_elsewhere(house: House) -> None:
    await house.create()
    key = await house.trigger()
    worker = await house.enter()
    [claim] = await house.claim(worker)
    await house.executions.cancel(TENANT, str(key))
    await house.store.hand_back(claim.worker, [(TENANT, key, claim.fence)])
    assert await house.claim(await house.enter()) == []
    await house.store.leave(worker.id, house.clock.now())
    await house.rescue().run_once()
    assert (await house.get(key)).state is State.CANCELLED


@pytest.mark.parametrize("attempts", [1, 4])
async def test_an_attempt_that_fails_after_its_cancel_is_neither_tried_again_nor_a_dead_letter(
    house: House, attempts: int
) -> None:
    began = asyncio.Event()

    async def work(ctx: Context) -> None:
        began.set()
        await until(lambda: ctx.cancelled)
        raise ValueError("it broke while it was stopping")

    house.registry.add(work, "work")
    await house.create(retry={"max_attempts": attempts, **QUICK})
    async with house.working():
        key = await house.trigger()
        await began.wait()
        await house.executions.cancel(TENANT, str(key))
        done = await house.until_state(key, State.CANCELLED, State.RETRYING, State.FAILED)
    assert (done.state, done.attempt) == (State.CANCELLED, 1)


async def test_a_retry_is_not_taken_up_where_the_cancel_reached_only_the_database(house: House) -> None:
    """The worker sends `retrying` because it has not heard of the cancel yet."""
    await house.create(retry=QUICK)
    key = await house.trigger()
    [claim] = await house.claim(await house.enter())
    await house.executions.cancel(TENANT, str(key))
    now = house.clock.now()
    again = Ended(
        TENANT, key, claim.fence, claim.worker, State.RETRYING, Result.FAILED, now, now, ready_at=now
    )
    assert await house.store.complete([again]) == [State.CANCELLED]
    assert await house.claim(await house.enter()) == []
