"""What was decided about a slot holds when the rules of its zone change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from cronwell.control.overrides import Decision
from cronwell.model.execution import State
from cronwell.runtime.clock import ManualClock
from tests.roles.test_tzdata import BEFORE, WEST, Releases, releases, town
from tests.support.house import SECOND, TENANT, House

__all__ = ["releases", "town"]

FIVE = datetime(2026, 5, 5, 17, tzinfo=UTC)


async def _run(house: House, clock: ManualClock, until: datetime) -> None:
    while clock.now() < until:
        clock.advance(min(30 * SECOND, until - clock.now()))
        while await house.staging().run_once():
            pass


async def _found(house: House, job: UUID) -> list[tuple[int, State]]:
    return [((each.key.slot - FIVE) // SECOND, each.state) for each in await house.history(job)]


async def test_a_skipped_slot_uses_up_no_run_when_the_rules_are_others_but_not_the_slots(
    town: House, clock: ManualClock, releases: Releases
) -> None:
    often = {"cron": "*/10 * * * * *", "timezone": "Europe/Berlin", "max_runs": 3}
    job = await town.create(schedule={**often, "start": "2026-05-05T18:00:00"})
    await town.overrides.put(TENANT, str(job), FIVE + 10 * SECOND, Decision("skip"))
    releases.install("2026b", BEFORE)
    await _run(town, clock, FIVE + timedelta(minutes=5))
    assert await _found(town, job) == [
        (0, State.PENDING), (10, State.SKIPPED), (20, State.PENDING), (30, State.PENDING)
    ]  # fmt: skip


async def test_slots_that_are_staged_anew_keep_what_was_decided_about_them(
    town: House, clock: ManualClock, releases: Releases
) -> None:
    # By the first release five o'clock in UTC is six there, by the second it is five: a slot by both.
    schedule = {
        "cron": "*/10 0 17,18 * * *",
        "timezone": "Europe/Berlin",
        "start": "2026-05-05T17:30:00",
        "max_runs": 8,
    }
    job = await town.create(schedule=schedule)
    await town.overrides.put(TENANT, str(job), FIVE + 10 * SECOND, Decision("skip"))
    await town.overrides.put(TENANT, str(job), FIVE + 20 * SECOND, Decision("payload", payload='{"n":1}'))
    await _run(town, clock, FIVE - 5 * SECOND)
    assert len(await _found(town, job)) == 6, "all of them are staged ahead"
    releases.install("2026b", WEST)
    await town.tzdata.settle(TENANT, "apply")
    await _run(town, clock, FIVE + timedelta(minutes=5))
    found = await _found(town, job)
    assert [seconds for seconds, _ in found] == [0, 10, 20, 30, 40, 50]
    assert [seconds for seconds, state in found if state is State.SKIPPED] == [10]
    assert await town.database.fetchval("select runs_left from cursors") == 3
    changed = {each.key.slot: each.payload for each in await town.history(job)}
    assert changed[FIVE + 20 * SECOND] == '{"n":1}'
