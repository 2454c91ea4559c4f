"""Overrides: one slot is skipped, moved or given another payload, whenever that is decided, and no other slot is."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cronwell.control.overrides import Decision
from cronwell.model import instants
from cronwell.model.execution import State
from cronwell.runtime.clock import ManualClock
from tests.roles.overrides import (
    DAY,
    HOUR,
    HOURLY,
    MINUTE,
    NOON,
    SKIP,
    claim_at,
    end_at,
    put_override,
    row_of,
    rows_told,
    stage_all,
    states_of,
)
from tests.support.house import CALLER, SECOND, TENANT, House


async def test_a_skipped_slot_is_not_run_and_says_why(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule=HOURLY)
    view = await put_override(still_house, job, NOON + HOUR)
    assert (view.state, view.action, view.note, view.author) == ("applied", "skip", "books are closed", "ana")
    clock.advance(2 * HOUR - 30 * SECOND)
    await stage_all(still_house)
    assert await rows_told(still_house, job) == [(60, "skipped", "override"), (120, "pending", None)]
    found = await still_house.explain.explain(TENANT, str(job), instants.write(NOON + HOUR))
    assert (found.verdict, found.reason) == ("skipped", "override")
    assert found.sentence == "The slot is skipped: an override by ana skips it (books are closed)."
    assert found.override is not None


@pytest.mark.parametrize("to", [NOON + 30 * MINUTE, NOON + 90 * MINUTE])
async def test_a_moved_slot_starts_where_it_was_moved_to_and_only_there(
    still_house: House, clock: ManualClock, to: datetime
) -> None:
    job = await still_house.create(schedule=HOURLY)
    await put_override(still_house, job, NOON + HOUR, Decision("move", to, note="load", author="ben"))
    row = await row_of(still_house, job, NOON + HOUR)
    assert row is not None
    assert (row.ready_at, row.state, row.reason) == (to, State.PENDING, "moved")
    begun: list[tuple[datetime, datetime]] = []
    while clock.now() < NOON + 3 * HOUR:
        clock.advance(30 * MINUTE)
        await stage_all(still_house)
        for claimed in await claim_at(still_house, clock.now()):
            begun.append((claimed.key.slot, clock.now()))
            await end_at(still_house, claimed, clock.now())
    assert begun == sorted(
        [(NOON + HOUR, to), (NOON + 2 * HOUR, NOON + 2 * HOUR), (NOON + 3 * HOUR, NOON + 3 * HOUR)]
    )
    found = await still_house.explain.explain(TENANT, str(job), instants.write(NOON + HOUR))
    assert found.verdict == "executed"
    assert found.sentence.startswith("It started on time where it was moved to")
    assert "An override by ben moves it to" in found.sentence


async def test_another_payload_is_that_of_one_slot(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule=HOURLY, payload={"n": 1})
    await put_override(still_house, job, NOON + HOUR, Decision("payload", payload='{"n": 2}'))
    clock.advance(HOUR)
    await stage_all(still_house)
    [claimed] = await claim_at(still_house, clock.now())
    assert (claimed.payload, claimed.ready_at) == ('{"n": 2}', NOON + HOUR)
    await end_at(still_house, claimed, clock.now())
    detail = await still_house.executions.get(TENANT, str(claimed.key))
    assert detail.payload == {"n": 2}
    assert detail.override is not None
    clock.advance(HOUR)
    await stage_all(still_house)
    [claimed] = await claim_at(still_house, clock.now())
    assert claimed.payload is None


async def test_a_slot_that_is_staged_already_is_changed_at_once(still_house: House) -> None:
    job = await still_house.create(schedule="*/10 * * * * *")
    await put_override(still_house, job, NOON + 20 * SECOND)
    await put_override(still_house, job, NOON + 30 * SECOND, Decision("move", NOON + 35 * SECOND))
    found = {each.key.slot: each for each in await still_house.history(job)}
    assert found[NOON + 20 * SECOND].state is State.SKIPPED
    assert found[NOON + 30 * SECOND].ready_at == NOON + 35 * SECOND
    assert found[NOON + 40 * SECOND].reason is None


async def test_a_decision_far_ahead_is_kept_and_written_when_it_comes_near(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule=HOURLY)
    slot = NOON + 10 * DAY
    assert (await put_override(still_house, job, slot)).state == "waiting"
    assert await row_of(still_house, job, slot) is None
    clock.advance(9 * DAY - SECOND)
    assert await still_house.overriding().run_once() == 0
    clock.advance(2 * SECOND)
    assert await still_house.overriding().run_once() == 1
    row = await row_of(still_house, job, slot)
    assert row is not None
    assert row.state is State.SKIPPED
    assert await still_house.overriding().run_once() == 0
    assert await states_of(still_house, job) == {slot: "applied"}


async def test_a_far_slot_that_is_moved_to_soon_is_written_at_once(still_house: House) -> None:
    job = await still_house.create(schedule="0 3 * * 1")
    slot = datetime(2026, 5, 18, 3, tzinfo=UTC)
    await put_override(still_house, job, slot, Decision("move", NOON + HOUR))
    row = await row_of(still_house, job, slot)
    assert row is not None
    assert row.ready_at == NOON + HOUR
    assert (await still_house.jobs.get(TENANT, str(job))).next_fire_at == NOON + HOUR


async def test_an_expired_decision_does_nothing(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule=HOURLY)
    slot = NOON + 10 * DAY
    await put_override(still_house, job, slot, Decision("skip", expires_at=NOON + DAY))
    clock.advance(9 * DAY + HOUR)
    assert await still_house.overriding().run_once() == 0
    assert await row_of(still_house, job, slot) is None
    assert await states_of(still_house, job) == {slot: "expired"}
    found = await still_house.explain.explain(TENANT, str(job), instants.write(slot))
    assert found.verdict == "planned"
    assert "has expired" in found.sentence


async def test_a_decision_that_was_applied_outlives_its_expiry(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule=HOURLY)
    await put_override(still_house, job, NOON + 3 * HOUR, Decision("skip", expires_at=NOON + HOUR))
    clock.advance(2 * HOUR)
    await still_house.jobs.patch(CALLER, str(job), {"payload": 1}, revision=None)
    row = await row_of(still_house, job, NOON + 3 * HOUR)
    assert row is not None
    assert row.state is State.SKIPPED


@pytest.mark.parametrize("minutes", [0.5, 60])
async def test_a_removed_decision_leaves_the_slot_as_it_would_have_been(
    still_house: House, clock: ManualClock, minutes: float
) -> None:
    job = await still_house.create(schedule="*/30 * * * * *" if minutes < 1 else HOURLY)
    slot = NOON + minutes * MINUTE
    before = await rows_told(still_house, job)
    for decision in (SKIP, Decision("move", slot + 5 * SECOND), Decision("payload", payload="1")):
        await put_override(still_house, job, slot, decision)
        await still_house.overrides.remove(TENANT, str(job), slot)
        assert await rows_told(still_house, job) == before
    clock.advance(slot - NOON)
    await stage_all(still_house)
    [claimed] = await claim_at(still_house, clock.now())
    assert (claimed.key.slot, claimed.ready_at, claimed.payload) == (slot, slot, None)


async def test_a_moved_slot_holds_up_no_other_until_it_is_ready(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule=HOURLY)
    await put_override(still_house, job, NOON + HOUR, Decision("move", NOON + 150 * MINUTE))
    clock.advance(2 * HOUR)
    await stage_all(still_house)
    assert await still_house.store.settle_blocked(["default"], clock.now()) == (0, set())
    [claimed] = await claim_at(still_house, clock.now())
    assert claimed.key.slot == NOON + 2 * HOUR
    clock.advance(30 * MINUTE)
    # It waits for the one that runs: the job allows one at a time.
    assert await claim_at(still_house, clock.now()) == []
    assert await still_house.store.settle_blocked(["default"], clock.now()) == (0, set())
    await end_at(still_house, claimed, clock.now())
    [claimed] = await claim_at(still_house, clock.now())
    assert claimed.key.slot == NOON + HOUR


async def test_a_slot_that_began_before_its_time_holds_up_those_before_it(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule=HOURLY)
    await put_override(still_house, job, NOON + 3 * HOUR, Decision("move", NOON + 30 * MINUTE))
    clock.advance(30 * MINUTE)
    [moved] = await claim_at(still_house, clock.now())
    assert moved.key.slot == NOON + 3 * HOUR
    clock.advance(30 * MINUTE)
    await stage_all(still_house)
    assert await claim_at(still_house, clock.now()) == []
    assert await still_house.store.settle_blocked(["default"], clock.now()) == (1, set())
    assert await rows_told(still_house, job) == [(60, "skipped", "overlap"), (180, "running", "moved")]


async def test_a_trigger_is_not_refused_for_a_slot_that_was_moved_away(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule=HOURLY)
    await put_override(still_house, job, NOON + HOUR, Decision("move", NOON + 90 * MINUTE))
    clock.advance(65 * MINUTE)
    await stage_all(still_house)
    assert (await still_house.trigger()).job_id == job


async def test_a_slot_that_was_moved_to_before_its_time_waits_for_what_runs_and_is_not_skipped(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule=HOURLY)
    await put_override(still_house, job, NOON + 2 * HOUR, Decision("move", NOON + 70 * MINUTE))
    clock.advance(HOUR)
    await stage_all(still_house)
    [running] = await claim_at(still_house, clock.now())
    assert running.key.slot == NOON + HOUR
    clock.advance(10 * MINUTE)
    assert await claim_at(still_house, clock.now()) == []
    assert await still_house.store.settle_blocked(["default"], clock.now()) == (0, set())
    await end_at(still_house, running, clock.now())
    [moved] = await claim_at(still_house, clock.now())
    assert moved.key.slot == NOON + 2 * HOUR
