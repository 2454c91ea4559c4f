"""Backfills in tests: started, staged, ended, and looked at."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from cronwell.control.backfill_views import STEP, BackfillView
from cronwell.control.backfills import Asked
from cronwell.model.execution import Kind, State
from cronwell.runtime.clock import ManualClock
from cronwell.scheduler.chores.backfilling import Backfilling
from cronwell.store.port import Execution
from tests.support.house import TENANT, House
from tests.support.waiting import until_async

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)


MINUTE = timedelta(minutes=1)


HOUR = timedelta(hours=1)


DAY = timedelta(days=1)


async def start_backfill(
    house: House, job: UUID, begin: datetime, end: datetime | None = None, **how: Any
) -> UUID:
    answered = await house.backfills.start(TENANT, str(job), Asked(begin, end, **how))
    assert answered.status == 201
    return UUID(orjson.loads(answered.body)["id"])


async def backfilled(house: House, job: UUID) -> list[Execution]:
    return await house.history(job, kind=Kind.BACKFILL)


async def backfilled_slots(house: House, job: UUID) -> list[datetime]:
    return [each.key.slot for each in await backfilled(house, job)]


async def view_of(house: House, backfill: UUID) -> BackfillView:
    return await house.backfills.get(TENANT, str(backfill))


async def end_backfilled(house: House, state: State = State.SUCCEEDED) -> None:
    await house.database.execute(
        "update executions set state = $1, finished_at = ready_at"
        " where kind = 'backfill' and state in ('pending', 'running', 'retrying')",
        state,
    )


async def run_through(house: House, clock: ManualClock, backfill: UUID, steps: int = 1000) -> list[datetime]:
    """Move on until it is finished, as if each execution ended at once; the slots in the order of their staging."""
    order: list[datetime] = []
    for _ in range(steps):
        await house.backfilling().run_once()
        rows = await house.database.fetch(
            "select slot from executions where kind = 'backfill' and state = 'pending' order by ready_at"
        )
        order += [row["slot"] for row in rows]
        await end_backfilled(house)
        if (await view_of(house, backfill)).state == "finished":
            return order
        clock.advance(STEP)
    raise AssertionError("it does not come to an end")


def chore_of(house: House) -> Chore:
    return Chore(house.backfilling())


class Chore:
    """The chore, again and again for as long as the block lasts."""

    def __init__(self, chore: Backfilling) -> None:
        self._chore = chore

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._chore.run_once()
            await asyncio.sleep(0)


async def until_over(house: House, backfill: UUID) -> BackfillView:
    async def over() -> bool:
        return (await view_of(house, backfill)).state == "finished"

    await until_async(over, within=30)
    return await view_of(house, backfill)


async def some_time(house: House) -> object:
    """A few round trips: long enough for others to start meanwhile."""
    for _ in range(50):
        await house.store.ping()
    return True
