"""Overrides where they are seen: upcoming, the next fire, history; and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from cronwell import errors
from cronwell.control.overrides import Decision
from cronwell.model.execution import State
from cronwell.runtime.clock import ManualClock
from cronwell.store.port import ExecutionFilter
from tests.roles.overrides import (
    DAY,
    HOUR,
    HOURLY,
    MINUTE,
    NOON,
    claim_at,
    end_at,
    put_override,
    stage_all,
    states_of,
    upcoming_of,
)
from tests.support.house import SECOND, TENANT, House


async def test_upcoming_marks_what_was_decided_and_follows_a_move(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule=HOURLY)
    await put_override(still_house, job, NOON + HOUR)
    await put_override(still_house, job, NOON + 2 * HOUR, Decision("move", NOON + 150 * MINUTE, author="ben"))
    first, second, third = await upcoming_of(still_house, job)
    assert first.override is not None
    assert (first.override.action, first.override.note, first.override.author) == (
        "skip",
        "books are closed",
        "ana",
    )
    assert second.override is not None
    assert (second.effective_at, second.override.to) == (NOON + 150 * MINUTE, NOON + 150 * MINUTE)
    assert (third.override, third.effective_at) == (None, NOON + 3 * HOUR)
    clock.advance(2 * HOUR + MINUTE)
    await stage_all(still_house)
    late, following, _ = await upcoming_of(still_house, job)
    assert (late.slot, late.effective_at) == (NOON + 2 * HOUR, NOON + 150 * MINUTE)
    assert following.slot == NOON + 3 * HOUR


async def test_the_next_fire_minds_what_was_decided(still_house: House) -> None:
    job = await still_house.create(schedule="0 3 * * *")

    async def following() -> datetime | None:
        return (await still_house.jobs.get(TENANT, str(job))).next_fire_at

    tomorrow = datetime(2026, 5, 6, 3, tzinfo=UTC)
    await put_override(still_house, job, tomorrow + DAY, Decision("payload", payload="1"))
    assert await following() == tomorrow
    await put_override(still_house, job, tomorrow)
    assert await following() == tomorrow + DAY
    await put_override(still_house, job, tomorrow + DAY)
    assert await following() == tomorrow + 2 * DAY
    await put_override(still_house, job, tomorrow + 2 * DAY, Decision("move", tomorrow + 2 * DAY + HOUR))
    assert await following() == tomorrow + 2 * DAY + HOUR
    await put_override(still_house, job, tomorrow, Decision("move", NOON + HOUR))
    assert await following() == NOON + HOUR


@pytest.mark.parametrize(
    ("fold", "first", "second"),
    [("both", True, True), ("first", True, False), ("second", False, True)],
)
async def test_the_two_passes_of_a_doubled_hour_are_decided_about_apart(
    still_house: House, clock: ManualClock, fold: str, first: bool, second: bool
) -> None:
    clock.advance(datetime(2026, 10, 24, 12, tzinfo=UTC) - NOON)
    schedule = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "dst": {"fold": fold}}
    job = await still_house.create(schedule=schedule)
    passes = [datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)]
    for slot, is_slot in zip(passes, (first, second), strict=True):
        if is_slot:
            assert (await put_override(still_house, job, slot)).local.startswith("2026-10-25T02:30:00")
        else:
            with pytest.raises(errors.Invalid, match="is not a slot"):
                await put_override(still_house, job, slot)
    found = [each.key.slot for each in await still_house.history(job) if each.state is State.SKIPPED]
    assert found == [slot for slot, is_slot in zip(passes, (first, second), strict=True) if is_slot]


@pytest.mark.parametrize(
    ("schedule", "slot", "part"),
    [
        (HOURLY, NOON + 30 * MINUTE, "the nearest: 2026-05-05T13:00:00Z"),
        (HOURLY, NOON + 90 * MINUTE, "2026-05-05T13:00:00Z and 2026-05-05T14:00:00Z"),
        (HOURLY, NOON - HOUR, "has passed"),
        (HOURLY, NOON, "has passed"),
        (None, NOON + HOUR, "has no schedule"),
        ("every 1h after finish", NOON + HOUR, "none is known ahead"),
        ("at 2026-05-05T13:00:00Z", NOON + 2 * HOUR, "the nearest: 2026-05-05T13:00:00Z"),
    ],
)
async def test_what_is_no_coming_slot_is_refused_with_the_nearest(
    still_house: House, schedule: Any, slot: datetime, part: str
) -> None:
    job = await still_house.create(**({} if schedule is None else {"schedule": schedule}))
    with pytest.raises(errors.Invalid, match=part):
        await put_override(still_house, job, slot)
    assert await states_of(still_house, job) == {}


async def test_a_finished_job_and_a_passed_slot_are_left_alone(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="in 30s")
    slot = NOON + 30 * SECOND
    await put_override(still_house, job, slot)
    await still_house.finishing().run_once()
    with pytest.raises(errors.IllegalState, match="is finished"):
        await put_override(still_house, job, slot)
    with pytest.raises(errors.IllegalState, match="is finished"):
        await still_house.overrides.remove(TENANT, str(job), slot)
    clock.advance(MINUTE)
    with pytest.raises(errors.IllegalState, match="has passed"):
        await still_house.overrides.remove(TENANT, str(job), slot)
    assert await states_of(still_house, job) == {slot: "applied"}


async def test_a_job_has_only_so_many_decisions_ahead(
    still_house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cronwell.control.overrides.MOST_AHEAD", 2)
    job = await still_house.create(schedule=HOURLY)
    await put_override(still_house, job, NOON + HOUR)
    await put_override(still_house, job, NOON + 2 * HOUR)
    await put_override(still_house, job, NOON + 2 * HOUR)
    with pytest.raises(errors.IllegalState, match="2 overrides ahead"):
        await put_override(still_house, job, NOON + 3 * HOUR)


async def test_old_decisions_are_forgotten_with_their_history(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule=HOURLY)
    await put_override(still_house, job, NOON + HOUR)
    clock.advance(30 * DAY)
    await still_house.overriding().run_once()
    assert len(await states_of(still_house, job)) == 1
    clock.advance(2 * HOUR)
    await still_house.overriding().run_once()
    assert await states_of(still_house, job) == {}


async def test_what_began_before_its_slot_is_seen_in_the_history_of_its_job(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 3 * * *")
    slot = datetime(2026, 5, 7, 3, tzinfo=UTC)
    await put_override(still_house, job, slot, Decision("move", NOON + HOUR))
    where = ExecutionFilter(job_id=job)

    async def seen() -> tuple[list[datetime], list[datetime], State | None]:
        page = await still_house.executions.page(TENANT, where, cursor=None, limit=10)
        detail = await still_house.jobs.get(TENANT, str(job))
        status = await still_house.outlook.status(TENANT, str(job))
        return (
            [each.slot for each in page.items],
            [each.slot for each in detail.latest_executions],
            status.status,
        )

    assert await seen() == ([], [], None)
    clock.advance(HOUR)
    [claimed] = await claim_at(still_house, clock.now())
    await end_at(still_house, claimed, clock.now())
    assert await seen() == ([slot], [slot], State.SUCCEEDED)


async def test_a_slot_that_was_moved_by_days_is_what_fires_next(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 0 6 * *")
    slot = datetime(2026, 5, 6, tzinfo=UTC)
    await put_override(still_house, job, slot, Decision("move", slot + 10 * DAY))
    clock.advance(5 * DAY)
    await stage_all(still_house)
    assert (await still_house.jobs.get(TENANT, str(job))).next_fire_at == slot + 10 * DAY
