"""What is told of a job while it runs."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from cronwell.model.execution import State
from tests.support.house import TENANT, House


async def test_the_status_leaves_out_what_a_worker_holds_for_an_instant_ahead(house: House) -> None:
    house.registry.add(lambda: None, "work")
    job = await house.create(schedule="in 5s", overlap="allow")
    [ahead] = await house.history(job)
    async with house.working(pre_claim=timedelta(seconds=10)):
        await house.until_state(ahead.key, State.RUNNING)
        assert (await house.outlook.status(TENANT, str(job))).status is None
        earlier = await house.trigger()
        await house.until_state(earlier, State.SUCCEEDED)
        status = await house.outlook.status(TENANT, str(job))
    assert status.last_execution is not None
    assert (status.status, status.last_execution.id) == (State.SUCCEEDED, str(earlier))


async def test_a_run_is_never_told_to_have_begun_before_its_instant(house: House) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        began.set()
        await release.wait()

    house.registry.add(work, "work")
    job = await house.create(schedule="in 1s")
    async with house.working(heartbeat=timedelta(seconds=20)):
        await began.wait()
        status = await house.outlook.status(TENANT, str(job))
        release.set()
    assert status.last_execution is not None
    assert status.last_execution.started_at is None, "its worker has not told yet"
    assert status.last_run == status.last_execution.ready_at


async def test_no_more_slots_are_shown_than_the_job_may_still_run(still_house: House) -> None:
    job = await still_house.create(schedule={"cron": "*/30 * * * * *", "max_runs": 3})
    assert len((await still_house.outlook.upcoming(TENANT, str(job), 10)).items) == 3
    assert len((await still_house.outlook.upcoming(TENANT, str(job), 2)).items) == 2


async def test_of_a_job_that_waits_for_the_end_only_the_next_slot_is_shown(still_house: House) -> None:
    job = await still_house.create(schedule="every 10s after finish")
    [shown] = (await still_house.outlook.upcoming(TENANT, str(job), 10)).items
    assert shown.slot == still_house.clock.now() + timedelta(seconds=10)
    assert shown.note is not None
    assert "known when this has finished" in shown.note
