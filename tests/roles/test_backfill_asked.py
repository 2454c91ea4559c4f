"""What a backfill is asked for: counted first, refused where it cannot be, and told."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cronwell import errors
from cronwell.config import Settings
from cronwell.control.backfills import Asked
from cronwell.model.execution import Kind
from cronwell.runtime.clock import ManualClock
from tests.roles.backfills import (
    DAY,
    HOUR,
    MINUTE,
    NOON,
    backfilled,
    run_through,
    start_backfill,
    view_of,
)
from tests.support.house import SECOND, TENANT, House


async def test_a_dry_run_counts_and_stores_nothing(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="*/5 * * * *")
    made = await start_backfill(still_house, job, NOON - HOUR, NOON - HOUR / 2, concurrency=10)
    await still_house.backfilling().run_once()
    plan = await still_house.backfills.preview(
        TENANT, str(job), Asked(NOON - HOUR, NOON, rate="6/m", concurrency=2)
    )
    assert (plan.count, plan.first, plan.last) == (12, NOON - HOUR, NOON - 5 * MINUTE)
    assert (plan.already, plan.load_per_minute, plan.takes) == (6, 6.0, "2m")
    assert any(str(made) in each for each in plan.warnings)
    assert any("no worker serves" in each for each in plan.warnings)
    assert len(await still_house.store.list_backfills(TENANT, job, None, None, 10)) == 1


@pytest.mark.parametrize(
    ("asked", "field", "part"),
    [
        ({"begin": NOON - HOUR, "end": NOON + SECOND}, "to", "future"),
        ({"begin": NOON - HOUR, "end": NOON - 2 * HOUR}, "from", "not before"),
        ({"begin": NOON, "end": NOON}, "from", "not before"),
        ({"begin": NOON - timedelta(days=36_500)}, "from", "history is kept for 30d"),
        ({"begin": NOON - 31 * DAY}, "from", "2026-04-05"),
        ({"begin": NOON - HOUR, "rate": "fast"}, "rate", "10/s"),
        ({"begin": NOON - HOUR, "rate": "5000/s"}, "rate", "too fast"),
        ({"begin": NOON - HOUR, "rate": "0/s"}, "rate", "too slow"),
        ({"begin": NOON - HOUR, "payload": float("nan")}, "payload", "finite"),
        ({"begin": NOON - 10 * SECOND, "end": NOON - 5 * SECOND}, "from", "no slot"),
    ],
)
async def test_what_cannot_be_backfilled_is_refused_by_field(
    still_house: House, asked: dict[str, Any], field: str, part: str
) -> None:
    job = await still_house.create(schedule="* * * * *")
    with pytest.raises(errors.Invalid) as refused:
        await still_house.backfills.start(TENANT, str(job), Asked(**asked))
    [problem] = refused.value.problems
    assert problem.field == field
    assert part in str(problem)
    assert await still_house.store.list_backfills(TENANT, None, None, None, 1) == []


async def test_a_hundred_years_of_seconds_are_refused_in_bounded_time(
    migrated_url: str, clock: ManualClock
) -> None:
    settings = Settings()
    settings = dataclasses.replace(
        settings, retention=dataclasses.replace(settings.retention, executions=timedelta(days=36_500))
    )
    house = await House.open(migrated_url, settings, clock)
    clock.set(datetime(2080, 1, 1, tzinfo=UTC))
    job = await house.create(schedule="* * * * * *")
    async with asyncio.timeout(20):
        with pytest.raises(errors.Invalid, match="slots in that range"):
            await house.backfills.preview(TENANT, str(job), Asked(datetime(1981, 1, 1, tzinfo=UTC)))
    await house.close()


@pytest.mark.parametrize(
    ("schedule", "part"), [(None, "no schedule"), ("every 1h after finish", "after each execution")]
)
async def test_a_job_without_known_slots_has_nothing_to_backfill(
    still_house: House, schedule: str | None, part: str
) -> None:
    job = await still_house.create(**({} if schedule is None else {"schedule": schedule}))
    with pytest.raises(errors.IllegalState, match=part):
        await start_backfill(still_house, job, NOON - HOUR)


async def test_a_payload_of_its_own_goes_with_each_execution(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="0 * * * *", payload=1)
    made = await start_backfill(still_house, job, NOON - 2 * HOUR, NOON, payload={"again": True}, note="why")
    await run_through(still_house, clock, made)
    assert {each.payload for each in await backfilled(still_house, job)} == {'{"again":true}'}
    shown = await view_of(still_house, made)
    assert (shown.payload, shown.note) == ({"again": True}, "why")


async def test_explain_shows_the_backfill_of_a_slot(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="0 * * * *")
    await run_through(still_house, clock, await start_backfill(still_house, job, NOON - HOUR, NOON))
    found = await still_house.explain.explain(TENANT, str(job), "2026-05-05T11:00:00Z")
    assert [each.kind for each in found.others] == [Kind.BACKFILL]
