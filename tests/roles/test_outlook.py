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
