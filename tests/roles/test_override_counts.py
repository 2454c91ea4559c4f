"""Overrides of jobs that count their runs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cronwell import errors
from cronwell.control.overrides import Decision
from cronwell.model.execution import State
from cronwell.runtime.clock import ManualClock
from tests.roles.overrides import (
    DAY,
    HOUR,
    HOURLY,
    MINUTE,
    NOON,
    claim_at,
    end_at,
    put_override,
    row_of,
    rows_told,
    stage_all,
    states_of,
)
from tests.support.house import CALLER, SECOND, TENANT, House


async def test_a_skipped_slot_uses_up_no_run(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule={"cron": HOURLY, "max_runs": 2})
    await put_override(still_house, job, NOON + HOUR)
    ran: list[datetime] = []
    for _ in range(5):
        clock.advance(HOUR)
        await stage_all(still_house)
        for claimed in await claim_at(still_house, clock.now()):
            ran.append(claimed.key.slot)
            await end_at(still_house, claimed, clock.now())
    await still_house.finishing().run_once()
    assert ran == [NOON + 2 * HOUR, NOON + 3 * HOUR]
    assert (await still_house.jobs.get(TENANT, str(job))).state == "finished"


async def test_the_last_run_passes_to_the_next_slot_when_its_own_is_skipped(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule={"cron": "*/10 * * * * *", "max_runs": 2})
    assert await rows_told(still_house, job) == [(10 / 60, "pending", None), (20 / 60, "pending", None)]
    await put_override(still_house, job, NOON + 20 * SECOND)
    states = [(each.key.slot - NOON, each.state) for each in await still_house.history(job)]
    assert states == [
        (10 * SECOND, State.PENDING),
        (20 * SECOND, State.SKIPPED),
        (30 * SECOND, State.PENDING),
    ]
    await still_house.overrides.remove(TENANT, str(job), NOON + 20 * SECOND)
    assert await rows_told(still_house, job) == [(10 / 60, "pending", None), (20 / 60, "pending", None)]


async def test_a_slot_behind_the_last_run_cannot_be_decided_about(still_house: House) -> None:
    job = await still_house.create(schedule={"cron": HOURLY, "max_runs": 2})
    with pytest.raises(errors.Invalid, match="max_runs"):
        await put_override(still_house, job, NOON + 3 * HOUR)
    await put_override(still_house, job, NOON + HOUR)
    move = Decision("move", NOON + 30 * MINUTE)
    await put_override(still_house, job, NOON + 3 * HOUR, move)
    await still_house.overrides.remove(TENANT, str(job), NOON + HOUR)
    # Its run is needed before, so that it must not run as well.
    assert await row_of(still_house, job, NOON + 3 * HOUR) is None
    assert await states_of(still_house, job) == {NOON + 3 * HOUR: "not_a_slot"}


async def test_edits_do_not_change_how_often_a_job_with_decisions_runs(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule={"cron": "*/10 * * * * *", "max_runs": 3})
    await put_override(still_house, job, NOON + 20 * SECOND)
    await put_override(still_house, job, NOON + 30 * SECOND, Decision("move", NOON + 5 * SECOND))
    [claimed] = await claim_at(still_house, NOON + 5 * SECOND)
    assert claimed.key.slot == NOON + 30 * SECOND
    for n in range(3):
        await still_house.jobs.patch(CALLER, str(job), {"payload": n}, revision=None)
    states = [((each.key.slot - NOON) // SECOND, str(each.state)) for each in await still_house.history(job)]
    assert states == [(10, "pending"), (20, "skipped"), (30, "running"), (40, "pending")]


async def test_a_decision_behind_the_last_run_is_left_waiting_without_staging_anew(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule={"cron": "0 3 * * *", "max_runs": 3})
    slots = [datetime(2026, 5, 6, 3, tzinfo=UTC) + n * DAY for n in range(4)]
    await put_override(still_house, job, slots[0])
    await put_override(still_house, job, slots[3], Decision("payload", payload="1"))
    await still_house.overrides.remove(TENANT, str(job), slots[0])
    assert await states_of(still_house, job) == {slots[3]: "not_a_slot"}
    for slot in slots[:3]:
        clock.advance(slot - 30 * SECOND - clock.now())
        await stage_all(still_house)
        assert await still_house.overriding().run_once() == 0
    assert await row_of(still_house, job, slots[3]) is None


async def test_a_far_decision_of_a_job_that_counts_its_runs_is_written_when_it_comes_near(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule={"cron": "0 3 * * *", "max_runs": 3})
    slots = [datetime(2026, 5, 6, 3, tzinfo=UTC) + n * DAY for n in range(4)]
    await put_override(still_house, job, slots[2])
    clock.advance(slots[1] - NOON + MINUTE)
    await stage_all(still_house)
    assert await still_house.overriding().run_once() == 1
    clock.advance(2 * DAY)
    await stage_all(still_house)
    found = [(each.key.slot, each.state) for each in await still_house.history(job)]
    assert (slots[2], State.SKIPPED) in found
    assert found[-1] == (slots[3], State.PENDING)
