"""A job that is changed inside the look-ahead is right at once, and nothing of the past fires unless asked for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cronwell import errors
from cronwell.model.execution import State
from cronwell.runtime.clock import ManualClock
from tests.support.house import CALLER, HANDLER, SECOND, TENANT, House
from tests.support.waiting import until

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
EVERY_10S = "*/10 * * * * *"


async def _slots(house: House, job: Any, state: State = State.PENDING) -> list[float]:
    """Seconds after noon of the job's slots in a state."""
    found = await house.history(job)
    return [(each.key.slot - NOON).total_seconds() for each in found if each.state is state]


async def test_an_edit_replaces_the_staged_slots(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule=EVERY_10S)
    clock.advance(5 * SECOND)
    view = await still_house.jobs.patch(CALLER, str(job), {"schedule": "*/15 * * * * *"}, revision=1)
    assert view.revision == 2
    assert await _slots(still_house, job) == [15, 30, 45, 60]
    assert {each.revision for each in await still_house.history(job)} == {2}
    assert view.next_fire_at == NOON + 15 * SECOND


async def test_an_edit_gives_what_is_due_and_waiting_the_new_definition(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule=EVERY_10S, pool="slow")
    clock.advance(11 * SECOND)
    await still_house.jobs.patch(CALLER, str(job), {"pool": "quick", "priority": "high"}, revision=None)
    found = await still_house.history(job)
    assert found[0].key.slot == NOON + 10 * SECOND
    assert {(each.pool, each.priority, each.revision) for each in found} == {("quick", 0, 2)}


async def test_an_edit_never_fires_the_past(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="0 11 * * *")
    await still_house.jobs.patch(CALLER, str(job), {"schedule": "0 12 * * *"}, revision=None)
    clock.advance(timedelta(hours=1))
    await still_house.jobs.patch(CALLER, str(job), {"schedule": "30 12 * * *"}, revision=None)
    assert await still_house.history(job) == []


async def test_an_edit_of_something_else_does_not_count_a_delay_anew(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="in 5m")
    clock.advance(timedelta(minutes=3))
    view = await still_house.jobs.patch(CALLER, str(job), {"payload": {"n": 1}}, revision=None)
    assert view.next_fire_at == NOON + timedelta(minutes=5)
    assert view.schedule == "in 5m"


async def test_an_edit_after_an_outage_first_settles_what_the_old_schedule_missed(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 * * * *", catch_up="none")
    clock.advance(timedelta(hours=3, minutes=30))
    await still_house.jobs.patch(CALLER, str(job), {"schedule": "15 * * * *"}, revision=None)
    assert await _slots(still_house, job, State.SKIPPED) == [3600, 7200, 10800]


@pytest.mark.parametrize("change", ["edit", "pause", "delete"])
async def test_a_change_after_an_outage_settles_all_that_was_missed_also_more_than_one_plan_takes(
    still_house: House, clock: ManualClock, change: str
) -> None:
    job = await still_house.create(
        schedule="every 1s", catch_up="all", catch_up_limit=5000, catch_up_window="3h"
    )
    clock.advance(timedelta(hours=1))
    if change == "edit":
        await still_house.jobs.patch(CALLER, str(job), {"schedule": "@daily"}, revision=None)
    elif change == "pause":
        await still_house.jobs.pause(TENANT, str(job))
    else:
        await still_house.jobs.delete(TENANT, str(job))
    rows = await still_house.database.fetch(
        "select slot from executions where job_id = $1 and slot <= $2 order by slot", job, clock.now()
    )
    assert [row["slot"] for row in rows] == [NOON + number * SECOND for number in range(1, 3601)]


async def test_a_change_settles_the_one_slot_of_a_job_that_waits_for_its_executions_end(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="every 2m after finish")
    clock.advance(timedelta(minutes=10))
    await still_house.jobs.patch(CALLER, str(job), {"schedule": "@daily"}, revision=None)
    assert [each.key.slot for each in await still_house.history(job)] == [NOON + timedelta(minutes=2)]


async def test_a_stale_revision_changes_nothing(still_house: House) -> None:
    job = await still_house.create(schedule=EVERY_10S)
    before = await still_house.history(job)
    with pytest.raises(errors.RevisionMismatch):
        await still_house.jobs.patch(CALLER, str(job), {"schedule": "@daily"}, revision=7)
    assert await still_house.history(job) == before


async def test_a_bad_edit_changes_nothing(still_house: House) -> None:
    job = await still_house.create(schedule=EVERY_10S)
    before = await still_house.history(job)
    with pytest.raises(errors.Invalid):
        await still_house.jobs.patch(CALLER, str(job), {"schedule": "61 * * * *"}, revision=None)
    assert await still_house.history(job) == before
    assert (await still_house.jobs.get(TENANT, str(job))).revision == 1


async def test_what_a_job_was_is_kept_with_its_time(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule=EVERY_10S)
    clock.advance(5 * SECOND)
    await still_house.jobs.patch(CALLER, str(job), {"schedule": "@daily"}, revision=None)
    [row] = await still_house.database.fetch("select * from job_revisions where job_id = $1", job)
    assert (row["revision"], row["valid_from"], row["valid_to"]) == (1, NOON, NOON + 5 * SECOND)
    assert EVERY_10S in row["spec"]


async def test_a_pause_unstages_what_is_ahead_and_skips_what_waits(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule=EVERY_10S)
    clock.advance(25 * SECOND)
    view = await still_house.jobs.pause(TENANT, str(job), note="maintenance")
    assert view.state == "paused"
    assert view.next_fire_at is None
    assert view.pause is not None
    assert view.pause.note == "maintenance"
    assert await _slots(still_house, job) == []
    assert await _slots(still_house, job, State.SKIPPED) == [10, 20]
    assert {each.reason for each in await still_house.history(job)} == {"paused"}


async def test_a_resume_goes_on_with_the_next_slot_and_accounts_for_the_rest(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule=EVERY_10S)
    await still_house.jobs.pause(TENANT, str(job))
    clock.advance(timedelta(minutes=5))
    view = await still_house.jobs.resume(TENANT, str(job))
    assert view.next_fire_at == NOON + timedelta(minutes=5, seconds=10)
    assert await _slots(still_house, job) == [310, 320, 330, 340, 350, 360]
    [row] = await still_house.database.fetch("select * from skips where job_id = $1", job)
    assert (row["reason"], row["from_slot"], row["to_slot"]) == ("paused", NOON + 10 * SECOND, clock.now())


@pytest.mark.parametrize(("asked", "run"), [("last", [300]), ("all", [60, 120, 180, 240, 300])])
async def test_a_resume_fires_what_was_missed_when_asked(
    still_house: House, clock: ManualClock, asked: Any, run: list[int]
) -> None:
    job = await still_house.create(schedule="* * * * *", catch_up="none")
    await still_house.jobs.pause(TENANT, str(job))
    clock.advance(timedelta(minutes=5, seconds=30))
    await still_house.jobs.resume(TENANT, str(job), fire_missed=asked)
    assert [slot for slot in await _slots(still_house, job) if slot <= 330] == run
    skipped = await _slots(still_house, job, State.SKIPPED)
    assert sorted([*skipped, *run]) == [60, 120, 180, 240, 300]


async def test_a_pause_with_an_end_ends_by_itself(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule=EVERY_10S)
    await still_house.jobs.pause(TENANT, str(job), until=NOON + timedelta(minutes=1))
    assert await still_house.resuming().run_once() == 0
    clock.advance(timedelta(minutes=1))
    assert await still_house.resuming().run_once() == 1
    assert (await still_house.jobs.get(TENANT, str(job))).state == "active"


async def test_an_edit_of_a_paused_job_leaves_it_paused(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule=EVERY_10S)
    await still_house.jobs.pause(TENANT, str(job))
    view = await still_house.jobs.patch(CALLER, str(job), {"schedule": "*/20 * * * * *"}, revision=None)
    assert view.state == "paused"
    assert await _slots(still_house, job) == []
    clock.advance(SECOND)
    await still_house.jobs.resume(TENANT, str(job))
    assert await _slots(still_house, job) == [20, 40, 60]


async def test_a_deleted_job_fires_no_more_and_frees_its_name(still_house: House) -> None:
    job = await still_house.create("nightly", schedule=EVERY_10S)
    await still_house.jobs.delete(TENANT, str(job))
    assert await _slots(still_house, job) == []
    with pytest.raises(errors.NotFound):
        await still_house.jobs.find(TENANT, "name:nightly")
    again = await still_house.create("nightly", schedule=EVERY_10S)
    assert again != job


async def test_a_slot_that_was_cancelled_stays_so_when_its_job_is_edited(still_house: House) -> None:
    job = await still_house.create(schedule=EVERY_10S)
    first = (await still_house.history(job))[0]
    await still_house.executions.cancel(TENANT, str(first.key))
    await still_house.jobs.patch(CALLER, str(job), {"payload": 1}, revision=None)
    assert (await still_house.get(first.key)).state is State.CANCELLED
    assert await _slots(still_house, job) == [20, 30, 40, 50, 60]


async def test_a_finished_job_that_gets_a_new_schedule_is_active_again(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="in 10s")
    clock.advance(11 * SECOND)
    await still_house.database.execute("update executions set state = 'succeeded'")
    await still_house.finishing().run_once()
    view = await still_house.jobs.replace(
        CALLER, str(job), {"name": "job", "target": HANDLER, "schedule": EVERY_10S}, revision=None
    )
    assert view.state == "active"
    assert (await _slots(still_house, job))[0] == 20


async def test_a_job_without_a_schedule_runs_only_when_triggered(still_house: House) -> None:
    job = await still_house.create()
    assert (await still_house.jobs.get(TENANT, str(job))).next_fire_at is None
    key = await still_house.trigger(payload={"n": 2})
    [execution] = await still_house.history(job)
    assert (execution.key, execution.payload) == (key, '{"n":2}')


async def test_a_trigger_respects_overlap_unless_told_otherwise(
    still_house: House, clock: ManualClock
) -> None:
    await still_house.create()
    await still_house.trigger()
    clock.advance(SECOND)
    with pytest.raises(errors.IllegalState, match="unfinished"):
        await still_house.trigger()
    await still_house.trigger(overlap="allow")


async def test_a_trigger_just_before_a_slot_that_a_worker_holds_already_does_not_run_beside_it(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule={"at": (clock.now() + SECOND / 4).isoformat()})
    worker = await still_house.enter()
    held = await still_house.store.claim(
        worker.id, "default", 1, ready_by=clock.now() + SECOND / 2, limit=10, now=clock.now()
    )
    assert [each.key.job_id for each in held] == [job]
    with pytest.raises(errors.IllegalState, match="unfinished"):
        await still_house.trigger()
    await still_house.trigger(overlap="allow")


async def test_a_trigger_waits_for_a_claim_that_is_under_way_and_does_not_run_beside_it(house: House) -> None:
    job = await house.create(schedule="in 2s", overlap="skip")
    [execution] = await house.history(job)
    worker = await house.enter()
    await until(lambda: house.clock.now() > execution.key.slot - timedelta(milliseconds=450))
    async with house.database.transaction() as claiming:
        # What a claim writes, and has not committed yet.
        await claiming.execute(
            "update executions set state = 'running', fence = fence + 1, attempt = attempt + 1, worker = $1,"
            " claimed_at = now() where job_id = $2",
            worker.id,
            job,
        )
        trigger = asyncio.create_task(house.trigger())
        done, _ = await asyncio.wait({trigger}, timeout=0.3)
        assert not done
    with pytest.raises(errors.IllegalState, match="unfinished"):
        await trigger


async def test_what_is_about_to_be_claimed_is_not_claimed_while_a_trigger_decides(house: House) -> None:
    job = await house.create(schedule="in 1s", overlap="skip")
    worker = await house.enter()
    [execution] = await house.history(job)
    await until(lambda: house.clock.now() > execution.key.slot - timedelta(milliseconds=450))
    async with house.store.transaction() as transaction:
        now = house.clock.now()
        assert await transaction.make_way(TENANT, job, now) is None
        soon = now + timedelta(seconds=1)
        assert await house.store.claim(worker.id, "default", 1, ready_by=soon, limit=10, now=now) == []
    assert len(await house.store.claim(worker.id, "default", 1, ready_by=soon, limit=10, now=now)) == 1
