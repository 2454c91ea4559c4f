"""Explain: every instant of a job has an answer, and the answer is the one that the history gives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from cronwell import errors
from cronwell.control.explain import Explanation
from cronwell.model import instants
from cronwell.model.execution import State
from cronwell.runtime.clock import ManualClock
from tests.support.house import CALLER, SECOND, TENANT, House

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def _explain(house: House, job: UUID, at: datetime | str) -> Explanation:
    text = at if isinstance(at, str) else instants.write(at)
    return await house.explain.explain(TENANT, str(job), text)


async def _stage(house: House) -> None:
    while await house.staging().run_once():
        pass


async def test_a_slot_is_planned_then_staged_then_executed(house: House) -> None:
    house.registry.add(lambda: None, "work")
    job = await house.create(schedule="in 1s")
    [execution] = await house.history(job)
    staged = await _explain(house, job, execution.key.slot)
    assert staged.verdict == "staged"
    assert "starts in" in staged.sentence
    async with house.working():
        await house.until_state(execution.key, State.SUCCEEDED)
    done = await _explain(house, job, execution.key.slot)
    assert (done.verdict, done.reason) == ("executed", None)
    assert done.execution is not None
    assert done.lateness_ms is not None
    assert "succeeded at the first attempt" in done.sentence


async def test_a_coming_slot_a_time_between_slots_and_a_time_before_the_job(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 * * * *")
    planned = await _explain(still_house, job, NOON + 5 * HOUR)
    assert (planned.verdict, planned.previous_slot, planned.next_slot) == (
        "planned",
        NOON + 4 * HOUR,
        NOON + 6 * HOUR,
    )
    between = await _explain(still_house, job, NOON + 5 * HOUR + MINUTE)
    assert (between.verdict, between.previous_slot, between.next_slot) == (
        "not_a_slot",
        NOON + 5 * HOUR,
        NOON + 6 * HOUR,
    )
    before = await _explain(still_house, job, NOON - HOUR)
    assert (before.verdict, before.reason) == ("not_a_slot", "not_created")
    assert "did not exist yet" in before.sentence


@pytest.mark.parametrize(
    ("schedule", "at", "verdict", "reason", "part"),
    [
        ({"cron": "0 * * * *", "except": "0 15 * * *"}, NOON + 3 * HOUR, "skipped", "except", "left out"),
        ({"cron": "0 * * * *", "end": "2026-05-05T14:00:00Z"}, NOON + 3 * HOUR, "not_a_slot", "ended", "ended at"),
        ({"cron": "0 * * * *", "start": "2026-05-05T16:00:00Z"}, NOON + 3 * HOUR, "not_a_slot", "not_started", "begins at"),
        (None, NOON + HOUR, "not_a_slot", "no_schedule", "no schedule"),
        ("every 1h after finish", NOON + 3 * HOUR, "not_a_slot", "after_finish", "after each execution"),
    ],
)  # fmt: skip
async def test_what_the_schedule_itself_says(
    still_house: House, schedule: Any, at: datetime, verdict: str, reason: str, part: str
) -> None:
    job = await still_house.create(**({} if schedule is None else {"schedule": schedule}))
    found = await _explain(still_house, job, at)
    assert (found.verdict, found.reason) == (verdict, reason)
    assert part in found.sentence


@pytest.mark.parametrize(
    ("gap", "verdict", "part", "following"),
    [
        (None, "not_a_slot", "it fires at 03:00 instead", "2027-03-28T01:00:00Z"),
        ("skip", "skipped", "left out", "2027-03-29T00:30:00Z"),
        ("shift", "not_a_slot", "it fires at 03:30 instead", "2027-03-28T01:30:00Z"),
    ],
)
async def test_a_time_that_the_clock_jumps_over(
    still_house: House, gap: str | None, verdict: str, part: str, following: str
) -> None:
    schedule: dict[str, Any] = {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}
    if gap is not None:
        schedule["dst"] = {"gap": gap}
    job = await still_house.create(schedule=schedule)
    found = await _explain(still_house, job, "2027-03-28T02:30")
    assert (found.verdict, found.reason) == (verdict, "dst_gap")
    assert part in found.sentence
    assert found.next_slot == instants.parse(following)
    assert found.previous_slot == instants.parse("2027-03-27T01:30:00Z")


async def test_skipped_slots_are_told_from_rows_ranges_and_the_pause_that_lasts(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="* * * * *", catch_up="none")
    clock.advance(10 * MINUTE)
    await _stage(still_house)
    missed = await _explain(still_house, job, NOON + 5 * MINUTE)
    assert (missed.verdict, missed.reason) == ("skipped", "catch_up")
    await still_house.jobs.pause(TENANT, str(job), note="maintenance")
    clock.advance(10 * MINUTE)
    lasting = await _explain(still_house, job, clock.now() - MINUTE)
    assert (lasting.verdict, lasting.reason) == ("skipped", "paused")
    assert "maintenance" in lasting.sentence
    await still_house.jobs.resume(TENANT, str(job))
    over = await _explain(still_house, job, clock.now() - MINUTE)
    assert (over.verdict, over.reason) == ("skipped", "paused")


async def test_the_definition_that_held_then_is_the_one_that_is_asked(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="* * * * *")
    clock.advance(5 * MINUTE)
    await _stage(still_house)
    await still_house.jobs.patch(CALLER, str(job), {"schedule": "0 0 * * *"}, revision=None)
    old = await _explain(still_house, job, NOON + MINUTE)
    assert (old.revision, old.verdict) == (1, "staged")
    assert old.schedule is not None
    assert old.schedule.startswith("Every minute")
    new = await _explain(still_house, job, NOON + 9 * MINUTE)
    assert (new.revision, new.verdict) == (2, "not_a_slot")
    await still_house.jobs.delete(TENANT, str(job))
    gone = await _explain(still_house, job, clock.now() + SECOND)
    assert (gone.verdict, gone.reason) == ("not_a_slot", "deleted")


async def test_an_overlap_is_told_as_one(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="* * * * *")
    await still_house.database.execute(
        "update executions set state = 'skipped', reason = 'overlap', finished_at = $1", NOON
    )
    found = await _explain(still_house, job, NOON + MINUTE)
    assert (found.verdict, found.reason) == ("skipped", "overlap")
    assert "was not finished" in found.sentence


async def test_a_time_that_is_none_is_refused(still_house: House) -> None:
    job = await still_house.create(schedule="* * * * *")
    with pytest.raises(errors.Invalid, match="is not a time"):
        await _explain(still_house, job, "yesterday")


async def test_after_its_last_slot_a_job_is_told_to_have_ended(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule={"cron": "* * * * *", "max_runs": 1})
    await still_house.database.execute("update executions set state = 'succeeded', finished_at = $1", NOON)
    assert await still_house.finishing().run_once() == 1
    clock.advance(HOUR)
    found = await _explain(still_house, job, NOON + 30 * MINUTE)
    assert (found.verdict, found.reason) == ("not_a_slot", "ended")


async def test_the_instant_of_a_trigger_is_told_like_a_slot(house: House) -> None:
    house.registry.add(lambda: "done", "work")
    await house.create("hand")
    key = await house.trigger("hand")
    waiting = await house.explain.explain(TENANT, "name:hand", key.slot.isoformat())
    assert (waiting.verdict, waiting.execution and waiting.execution.id) == ("staged", str(key))
    advice = "No worker serves the pool default: start one with `cronwell worker --pool default`."
    assert waiting.sentence.endswith(advice)
    async with house.working():
        await house.until_state(key, State.SUCCEEDED)
    told = await house.explain.explain(TENANT, "name:hand", key.slot.isoformat())
    assert told.verdict == "executed"
    assert "succeeded at the first attempt" in told.sentence


async def test_what_was_triggered_to_run_beside_others_waits_for_none_of_them(house: House) -> None:
    await house.create("hand", overlap="queue_all")
    first = await house.trigger("hand")
    worker = await house.enter()
    now = house.clock.now()
    [claimed] = await house.store.claim(worker.id, "default", 1, ready_by=now, limit=1, now=now)
    assert claimed.key == first
    in_order = await house.trigger("hand")
    beside = await house.trigger("hand", overlap="allow")
    turn = f"It waits for its turn: execution {first} of the job is not finished."
    told = [
        (await house.explain.explain(TENANT, "name:hand", key.slot.isoformat())).sentence
        for key in (in_order, beside)
    ]
    assert [turn in sentence for sentence in told] == [True, False]
