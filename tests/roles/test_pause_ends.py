"""A pause that ends by itself: which slots it takes, and which it leaves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cronwell.model import instants
from cronwell.runtime.clock import ManualClock
from tests.support.house import SECOND, TENANT, House

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def test_only_the_slots_of_a_pause_are_shown_as_paused(still_house: House) -> None:
    job = await still_house.create(schedule="*/30 * * * *")
    await still_house.jobs.pause(TENANT, str(job), until=NOON + HOUR)
    ahead = (await still_house.outlook.upcoming(TENANT, str(job), 4)).items
    assert [(each.slot - NOON, each.note) for each in ahead] == [
        (30 * MINUTE, "paused"), (60 * MINUTE, None), (90 * MINUTE, None), (120 * MINUTE, None),
    ]  # fmt: skip
    await still_house.jobs.pause(TENANT, str(job))
    ahead = (await still_house.outlook.upcoming(TENANT, str(job), 4)).items
    assert [each.note for each in ahead] == ["paused"] * 4


async def test_a_slot_at_the_very_end_of_a_pause_is_run(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="*/30 * * * *")
    await still_house.jobs.pause(TENANT, str(job), until=NOON + HOUR)
    clock.advance(HOUR + SECOND)
    await still_house.resuming().run_once()
    found = [(each.key.slot - NOON, str(each.state)) for each in await still_house.history(job)]
    assert found == [(HOUR, "pending")]
    taken = await still_house.explain.explain(TENANT, str(job), instants.write(NOON + 30 * MINUTE))
    assert (taken.verdict, taken.reason) == ("skipped", "paused")


async def test_a_pause_that_nobody_ended_in_time_fires_nothing_of_the_past(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="*/30 * * * *")
    await still_house.jobs.pause(TENANT, str(job), until=NOON + HOUR)
    clock.advance(2 * HOUR + MINUTE)
    await still_house.resuming().run_once()
    assert await still_house.history(job) == []
    view = await still_house.jobs.get(TENANT, str(job))
    assert view.next_fire_at == NOON + 150 * MINUTE
