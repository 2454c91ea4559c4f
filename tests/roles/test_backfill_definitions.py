"""By which definition a backfill runs a slot: the one of its time, or the current one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from cronwell import errors
from cronwell.control.backfills import Asked
from cronwell.model.execution import State
from cronwell.runtime.clock import ManualClock
from tests.roles.backfills import (
    HOUR,
    MINUTE,
    NOON,
    backfilled,
    chore_of,
    run_through,
    start_backfill,
    until_over,
)
from tests.support.house import CALLER, SECOND, TENANT, House


async def test_each_slot_is_run_by_the_definition_of_its_time(house: House) -> None:
    seen: dict[datetime, Any] = {}
    house.registry.add(lambda context: seen.__setitem__(context.slot, context.payload), "work")
    now = house.clock.now().replace(microsecond=0)
    job = await house.create(schedule="0 * * * * *", payload="old")
    await house.jobs.patch(CALLER, str(job), {"schedule": "30 * * * * *", "payload": "middle"}, revision=None)
    await house.jobs.patch(CALLER, str(job), {"schedule": "0 0 0 * * *", "payload": "new"}, revision=None)
    begin = (now - HOUR).replace(second=0)
    await house.database.execute(
        "update jobs set created_at = $1, defined_at = $2", begin, begin + 4 * MINUTE
    )
    await house.database.execute(
        "update job_revisions set valid_from = $1, valid_to = $2 where revision = 1",
        begin,
        begin + 2 * MINUTE,
    )
    await house.database.execute(
        "update job_revisions set valid_from = $1, valid_to = $2 where revision = 2",
        begin + 2 * MINUTE,
        begin + 4 * MINUTE,
    )
    made = await start_backfill(
        house, job, begin - HOUR, begin + 6 * MINUTE, definition="then", concurrency=10, rate=100
    )
    async with house.working(), chore_of(house):
        await until_over(house, made)
    assert seen == {
        # The slot at the very instant of an edit was the old definition's.
        begin + MINUTE: "old",
        begin + 2 * MINUTE: "old",
        begin + 2 * MINUTE + 30 * SECOND: "middle",
        begin + 3 * MINUTE + 30 * SECOND: "middle",
    }
    assert [each.revision for each in await backfilled(house, job)] == [1, 1, 2, 2]


async def test_no_other_definition_is_run_where_the_one_of_the_time_is_gone(house: House) -> None:
    house.registry.add(lambda: None, "work")
    now = house.clock.now()
    job = await house.create(schedule="* * * * * *")
    await start_backfill(house, job, now - 3 * SECOND, now - 2 * SECOND)
    await house.backfilling().run_once()
    await house.database.execute("update executions set revision = 99 where kind = 'backfill'")
    [row] = await backfilled(house, job)
    async with house.working():
        ended = await house.until_state(row.key, State.SUCCEEDED, State.CANCELLED)
    assert (ended.state, ended.error_kind) == (State.CANCELLED, "no_job")


async def test_by_the_current_definition_slots_before_the_job_was_made_are_run(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="every 1h")
    then = await still_house.backfills.preview(
        TENANT, str(job), Asked(NOON - 3 * HOUR, NOON, definition="then")
    )
    assert (then.count, then.first, then.last) == (0, None, None)
    assert any("was made at" in each for each in then.warnings)
    with pytest.raises(errors.Invalid, match="there is no slot"):
        await start_backfill(still_house, job, NOON - 3 * HOUR, NOON, definition="then")
    current = await still_house.backfills.preview(TENANT, str(job), Asked(NOON - 3 * HOUR, NOON))
    assert (current.count, current.first, current.last) == (3, NOON - 3 * HOUR, NOON - HOUR)


async def test_a_finished_job_is_backfilled_by_its_last_schedule(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule={"cron": "0 * * * *", "end": "2026-05-05T13:30:00Z"})
    clock.advance(3 * HOUR)
    await still_house.staging().run_once()
    await still_house.database.execute("update executions set state = 'succeeded', finished_at = slot")
    await still_house.finishing().run_once()
    assert (await still_house.jobs.get(TENANT, str(job))).state == "finished"
    await still_house.jobs.patch(CALLER, str(job), {"timeout": "1m"}, revision=None)
    backfill = await start_backfill(still_house, job, NOON - 3 * HOUR, NOON)
    assert await run_through(still_house, clock, backfill) == [NOON - n * HOUR for n in (3, 2, 1)]


async def test_an_edit_leaves_then_alone_and_reaches_current(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="0 * * * *")
    clock.advance(5 * HOUR)
    await start_backfill(still_house, job, NOON + HOUR, NOON + 3 * HOUR, definition="then", concurrency=10)
    await start_backfill(still_house, job, NOON + 3 * HOUR, NOON + 5 * HOUR, concurrency=10)
    await still_house.backfilling().run_once()
    await still_house.jobs.patch(
        CALLER, str(job), {"payload": 2, "priority": "high", "pool": "other"}, revision=None
    )
    rows = await backfilled(still_house, job)
    assert [(each.revision, each.priority, each.pool) for each in rows] == [
        (1, 2, "other"),
        (1, 2, "other"),
        (2, 2, "other"),
        (2, 2, "other"),
    ]
