"""The scanner: what it finds, what it mends, and what it leaves to others."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from cronwell import meters
from cronwell.control.rearming import Rearming
from cronwell.model.execution import State
from cronwell.runtime.clock import ManualClock
from cronwell.scheduler.chores.scan import KINDS, REST, STEP, Scan
from cronwell.store.port import Finding
from tests.support.house import TENANT, House

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def _scan(house: House, **how: Any) -> Scan:
    rearm = Rearming(house.store, house.clock, house.settings.scheduler, house.calendars)
    return Scan(house.store, house.clock, rearm, **how)


async def _found(house: House) -> dict[str, Finding]:
    """What a whole walk finds, by kind."""
    scan = _scan(house)
    await scan.run_once()
    assert scan.every == REST
    return {each.kind: each for each in await house.store.list_findings() if each.found}


async def _next_slot(house: House, job: UUID) -> datetime | None:
    slot: datetime | None = await house.database.fetchval(
        "select next_slot from cursors where job_id = $1", job
    )
    return slot


async def test_a_sound_house_has_no_findings(still_house: House, clock: ManualClock) -> None:
    await still_house.create("hourly", schedule="@hourly")
    await still_house.create("by-hand")
    await still_house.create("counted", schedule={"cron": "@hourly", "max_runs": 3})
    await still_house.create("following", schedule="every 1h after finish")
    await still_house.create("once", schedule={"at": (clock.now() + timedelta(seconds=5)).isoformat()})
    await still_house.create("paused", schedule="@daily")
    await still_house.jobs.pause(TENANT, "name:paused")
    assert await _found(still_house) == {}
    kept = await still_house.store.list_findings()
    assert {each.kind for each in kept} == set(KINDS)
    assert {each.walked_at for each in kept} == {clock.now()}


@pytest.mark.parametrize(
    ("kind", "break_it"),
    [
        ("no_cursor", "delete from cursors"),
        ("no_slot", "update cursors set next_slot = null"),
        ("held", "update cursors set next_slot = null, is_held = true"),
    ],
)
async def test_a_job_that_lost_its_next_slot_is_armed_anew_and_what_it_passed_is_accounted_for(
    still_house: House, clock: ManualClock, kind: str, break_it: str
) -> None:
    job = await still_house.create("hourly", schedule="@hourly")
    other = await still_house.create("by-hand")
    await still_house.enter(lease=timedelta(days=1))
    clock.advance(HOUR)
    await still_house.staging().run_once()
    assert [each.key.slot.hour for each in await still_house.history(job)] == [13]
    await still_house.database.execute(break_it)
    clock.advance(3 * HOUR + MINUTE)
    before = await still_house.history(job)
    found = await _found(still_house)
    assert {name: (each.found, each.mended, each.examples) for name, each in found.items()} == {
        kind: (1, 1, (str(job),))
    }
    assert await _next_slot(still_house, job) == datetime.fromisoformat("2026-05-05T17:00:00+00:00")
    assert await still_house.history(job) == before, "nothing that is past due was made"
    assert await _next_slot(still_house, other) is None
    explained = await still_house.explain.explain(TENANT, str(job), "2026-05-05T15:00:00Z")
    assert (explained.verdict, explained.reason) == ("skipped", "rearmed")
    assert await _found(still_house) == {}, "once"
    clock.set(datetime.fromisoformat("2026-05-05T16:59:30+00:00"))
    await still_house.staging().run_once()
    assert (await still_house.history(job))[-1].key.slot.hour == 17


async def test_a_count_of_runs_that_was_lost_is_not_begun_again(
    still_house: House, clock: ManualClock
) -> None:
    await still_house.create("counted", schedule={"cron": "@hourly", "max_runs": 3})
    await still_house.database.execute("delete from cursors")
    found = await _found(still_house)
    assert (found["no_cursor"].found, found["no_cursor"].mended) == (1, 0)
    assert await still_house.database.fetchval("select count(*) from cursors") == 0


async def test_runs_that_are_left_stay_as_many(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create("counted", schedule={"cron": "* * * * *", "max_runs": 10})
    clock.advance(3 * MINUTE)
    await still_house.staging().run_once()
    left = "select runs_left from cursors"
    before = await still_house.database.fetchval(left)
    staged = len(await still_house.history(job))
    await still_house.database.execute("update cursors set next_slot = null")
    assert (await _found(still_house))["no_slot"].mended == 1
    after = await still_house.database.fetchval(left)
    assert before + staged == after + len(await still_house.history(job)) == 10


async def test_a_job_in_five_minutes_that_lost_its_cursor_is_not_counted_anew(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create("once", schedule="in 5m")
    await still_house.database.execute("delete from cursors")
    clock.advance(HOUR)
    await _found(still_house)
    assert await _next_slot(still_house, job) is None
    assert await still_house.history(job) == []
    await still_house.finishing().run_once()
    assert (await still_house.jobs.get(TENANT, str(job))).state == "finished"


async def test_a_job_that_waits_for_its_calendar_is_left_alone(
    still_house: House, clock: ManualClock
) -> None:
    await still_house.calendars.put(TENANT, "open", {"dates": ["2026-05-06/2026-05-30"]})
    await still_house.create("closed", schedule={"cron": "@daily", "only": ["open"]})
    await still_house.calendars.put(TENANT, "open", {"dates": ["2020-01-01"]})
    await still_house.following_calendars().run_once()
    assert await still_house.database.fetchval("select is_held from cursors")
    assert await _found(still_house) == {}


async def test_a_late_cursor_is_told_and_left_to_its_owner(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create("hourly", schedule="@hourly")
    clock.advance(HOUR + MINUTE)
    assert await _found(still_house) == {}, "a minute is not long"
    clock.advance(MINUTE)
    slot = await _next_slot(still_house, job)
    found = await _found(still_house)
    assert (found["stuck"].found, found["stuck"].mended) == (1, 0)
    assert await _next_slot(still_house, job) == slot


async def test_a_paused_job_that_would_fire_is_told(still_house: House) -> None:
    job = await still_house.create("hourly", schedule="@hourly")
    await still_house.database.execute("update jobs set state = 'paused'")
    assert (await _found(still_house))["stray"].examples == (str(job),)


async def test_one_that_awaits_what_has_ended_is_told(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create("following", schedule="every 1m after finish")
    clock.advance(2 * MINUTE)
    await still_house.database.execute(
        "update executions set state = 'succeeded', finished_at = $1", clock.now()
    )
    assert await _found(still_house) == {}
    clock.advance(MINUTE)
    assert (await _found(still_house))["awaiting_ended"].examples == (str(job),)
    await still_house.following().run_once()
    assert "awaiting_ended" not in await _found(still_house)


async def test_what_waits_where_no_worker_is_is_told(still_house: House, clock: ManualClock) -> None:
    await still_house.create("a", pool="nowhere")
    await still_house.create("b")
    await still_house.enter(lease=HOUR)
    for name in ("a", "b"):
        await still_house.trigger(name)
    clock.advance(2 * MINUTE)
    found = await _found(still_house)
    assert {name: (each.found, each.examples) for name, each in found.items()} == {
        "unserved": (1, ("nowhere",))
    }


async def test_what_runs_under_an_unknown_worker_is_rescued_after_two_walks(
    still_house: House, clock: ManualClock
) -> None:
    await still_house.create("a", retry={"initial_delay": "0s"})
    key = await still_house.trigger("a")
    worker = await still_house.enter()
    assert len(await still_house.claim(worker)) == 1
    await still_house.database.execute("delete from workers")
    clock.advance(MINUTE)
    scan = _scan(still_house)
    for walk in range(2):
        await still_house.rescue().run_once()
        assert (await still_house.get(key)).state is State.RUNNING, walk
        await scan.run_once()
        clock.advance(MINUTE)
    await still_house.rescue().run_once()
    assert (await still_house.get(key)).state is State.RETRYING
    [found] = [each for each in await still_house.store.list_findings() if each.kind == "orphaned"]
    assert (found.found, found.mended) == (1, 1)


async def test_a_job_that_cannot_be_understood_does_not_hide_the_others(still_house: House) -> None:
    bad = await still_house.create("bad", schedule="@hourly")
    good = await still_house.create("good", schedule="@hourly")
    await still_house.database.execute("update cursors set next_slot = null")
    await still_house.database.execute("update cursors set plan = '{}' where job_id = $1", bad)
    found = (await _found(still_house))["no_slot"]
    assert (found.found, found.mended, set(found.examples)) == (2, 1, {str(bad), str(good)})


async def test_a_walk_goes_on_slice_by_slice_and_tells_at_its_end(still_house: House) -> None:
    for number in range(5):
        await still_house.create(f"job-{number}", schedule="@hourly")
    await still_house.database.execute("update cursors set next_slot = null")
    counted = meters.FINDINGS.labels("no_slot")._value.get()
    scan = _scan(still_house, size=2)
    for _ in range(2):
        assert await scan.run_once() == 2
        assert scan.every == STEP
        assert await still_house.store.list_findings() == []
    assert await scan.run_once() == 1
    assert scan.every == REST
    [found] = [each for each in await still_house.store.list_findings() if each.found]
    assert (found.kind, found.found, found.mended) == ("no_slot", 5, 5)
    assert meters.FINDINGS.labels("no_slot")._value.get() == counted + 5
