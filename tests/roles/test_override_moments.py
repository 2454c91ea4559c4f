"""Overrides that are decided while something else happens: a claim, staging, an edit, a pause."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from cronwell import errors
from cronwell.control.overrides import Decision
from cronwell.model.execution import State
from cronwell.runtime.clock import ManualClock
from tests.roles.overrides import (
    HOUR,
    HOURLY,
    MINUTE,
    NOON,
    claim_at,
    end_at,
    put_override,
    row_of,
    rows_told,
    states_of,
)
from tests.support.house import CALLER, SECOND, TENANT, House


async def test_what_a_worker_has_cannot_be_decided_about_any_more(still_house: House) -> None:
    job = await still_house.create(schedule="*/10 * * * * *")
    slot = NOON + 10 * SECOND
    [claimed] = await claim_at(still_house, slot)
    with pytest.raises(errors.IllegalState, match="a worker has it already"):
        await put_override(still_house, job, slot)
    await end_at(still_house, claimed, slot)
    with pytest.raises(errors.IllegalState, match="it has succeeded already"):
        await put_override(still_house, job, slot)
    assert await states_of(still_house, job) == {}


async def test_a_decision_and_a_claim_at_the_same_moment_agree(house: House) -> None:
    jobs = [await house.create(f"job-{n}", schedule="in 20s") for n in range(12)]
    slots = {job: (await house.history(job))[0].key.slot for job in jobs}

    async def decide(job: UUID) -> bool:
        try:
            await put_override(house, job, slots[job])
        except errors.IllegalState:
            return False
        return True

    decided, claims = await asyncio.gather(
        asyncio.gather(*(decide(job) for job in jobs)), claim_at(house, max(slots.values()))
    )
    claimed = {each.key.job_id for each in claims}
    assert {job for job, done in zip(jobs, decided, strict=True) if not done} == claimed


async def test_a_decision_and_staging_at_the_same_moment_agree(house: House) -> None:
    jobs = [await house.create(f"job-{n}", schedule="in 61s") for n in range(12)]
    ahead = {job: (await house.jobs.get(TENANT, str(job))).next_fire_at for job in jobs}

    async def stage() -> None:
        late = ManualClock(house.clock.now() + 30 * SECOND)
        while await house.staging(late).run_once():
            pass

    async def decide(job: UUID) -> None:
        slot = ahead[job]
        assert slot is not None
        await put_override(house, job, slot)

    await asyncio.gather(stage(), *(decide(job) for job in jobs), stage())
    await stage()
    found = [(each.state, each.reason) for job in jobs for each in await house.history(job)]
    assert found == [(State.SKIPPED, "override")] * len(jobs)


async def test_of_two_decisions_at_once_one_holds_whole(house: House) -> None:
    job = await house.create(schedule="in 30s")
    slot = (await house.history(job))[0].key.slot
    move = Decision("move", slot + MINUTE, author="ben")
    for _ in range(5):
        await asyncio.gather(put_override(house, job, slot), put_override(house, job, slot, move))
        row = await row_of(house, job, slot)
        [kept] = (await house.overrides.page(TENANT, str(job), cursor=None, limit=10)).items
        assert row is not None
        assert (row.state, row.ready_at) == (
            (State.SKIPPED, slot) if kept.action == "skip" else (State.PENDING, slot + MINUTE)
        )
        assert kept.author == ("ana" if kept.action == "skip" else "ben")


async def test_an_edit_and_a_decision_at_once_both_hold(house: House) -> None:
    for n in range(6):
        job = await house.create(f"job-{n}", schedule="* * * * * *")
        slot = (await house.history(job))[-5].key.slot
        await asyncio.gather(
            house.jobs.patch(CALLER, str(job), {"payload": n}, revision=None), put_override(house, job, slot)
        )
        row = await row_of(house, job, slot)
        assert row is not None
        assert (row.state, row.reason, row.revision) == (State.SKIPPED, "override", 2)


async def test_an_edit_keeps_the_decisions_that_fit_and_tells_the_others(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="*/30 * * * *")
    await put_override(still_house, job, NOON + HOUR)
    await put_override(still_house, job, NOON + 90 * MINUTE)
    await still_house.jobs.patch(CALLER, str(job), {"schedule": HOURLY}, revision=None)
    assert await rows_told(still_house, job) == [(60, "skipped", "override")]
    assert await states_of(still_house, job) == {NOON + HOUR: "applied", NOON + 90 * MINUTE: "not_a_slot"}
    await still_house.jobs.patch(CALLER, str(job), {"schedule": "*/15 * * * *"}, revision=None)
    assert await rows_told(still_house, job) == [(60, "skipped", "override"), (90, "skipped", "override")]


async def test_a_pause_and_a_resume_keep_what_was_decided(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="*/10 * * * * *")
    await put_override(still_house, job, NOON + 40 * SECOND)
    await still_house.jobs.pause(TENANT, str(job))
    assert await rows_told(still_house, job) == []
    await put_override(still_house, job, NOON + 50 * SECOND, Decision("move", NOON + 2 * MINUTE))
    clock.advance(25 * SECOND)
    await still_house.jobs.resume(TENANT, str(job))
    found = {each.key.slot: each for each in await still_house.history(job)}
    assert found[NOON + 40 * SECOND].state is State.SKIPPED
    assert found[NOON + 50 * SECOND].ready_at == NOON + 2 * MINUTE
    assert found[NOON + 30 * SECOND].state is State.PENDING


async def test_what_is_fired_after_a_pause_leaves_out_what_was_to_be_skipped(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="* * * * *")
    await put_override(still_house, job, NOON + 2 * MINUTE)
    await still_house.jobs.pause(TENANT, str(job))
    clock.advance(3 * MINUTE + 30 * SECOND)
    await still_house.jobs.resume(TENANT, str(job), fire_missed="all")
    assert (await rows_told(still_house, job))[:3] == [
        (1, "pending", "catch_up"),
        (2, "skipped", "override"),
        (3, "pending", "catch_up"),
    ]


async def test_a_change_of_a_calendar_keeps_the_decisions_that_fit(still_house: House) -> None:
    await still_house.calendars.put(TENANT, "lunch", {"dates": ["2030-01-01"]})
    job = await still_house.create(schedule={"cron": "*/15 * * * * *", "exclude": "lunch"})
    await put_override(still_house, job, NOON + 15 * SECOND)
    await put_override(still_house, job, NOON + 45 * SECOND)
    closed = {"windows": [{"from": "2026-05-05T12:00:40Z", "to": "2026-05-05T12:00:50Z"}]}
    await still_house.calendars.put(TENANT, "lunch", closed)
    await still_house.following_calendars().run_once()
    assert await rows_told(still_house, job) == [
        (0.25, "skipped", "override"),
        (0.5, "pending", None),
        (1, "pending", None),
    ]
    assert await states_of(still_house, job) == {
        NOON + 15 * SECOND: "applied",
        NOON + 45 * SECOND: "not_a_slot",
    }
