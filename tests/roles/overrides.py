"""Overrides in tests: put, staged, and looked at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from cronwell.control.overrides import Decision, OverrideView
from cronwell.control.views import UpcomingSlot
from cronwell.model.execution import ExecutionKey, Kind, Result, State
from cronwell.store.port import Claimed, Ended, Execution, Worker
from tests.support.house import TENANT, House

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)


MINUTE = timedelta(minutes=1)


HOUR = timedelta(hours=1)


DAY = timedelta(days=1)


SKIP = Decision("skip", note="books are closed", author="ana")


HOURLY = "0 * * * *"


async def put_override(house: House, job: UUID, slot: datetime, decision: Decision = SKIP) -> OverrideView:
    return await house.overrides.put(TENANT, str(job), slot, decision)


async def stage_all(house: House) -> None:
    while await house.staging().run_once():
        pass


async def row_of(house: House, job: UUID, slot: datetime) -> Execution | None:
    return await house.store.get_execution(TENANT, ExecutionKey(job, Kind.SCHEDULED, slot))


async def rows_told(house: House, job: UUID) -> list[tuple[float, str, str | None]]:
    """Minutes after noon, state and reason of every slot that has a row."""
    found = await house.history(job, states=tuple(State))
    return [((each.key.slot - NOON) / MINUTE, str(each.state), each.reason) for each in found]


async def claim_at(house: House, at: datetime) -> list[Claimed]:
    worker = uuid4()
    now = house.clock.now()
    await house.store.register(
        Worker(worker, "w", "active", "1", ("default",), ("work",), 10, 0, now, now, at + 30 * DAY)
    )
    return await house.store.claim(worker, "default", 1, ready_by=at, limit=100, now=at)


async def end_at(house: House, claimed: Claimed, at: datetime) -> None:
    ended = Ended(
        TENANT, claimed.key, claimed.fence, claimed.worker, State.SUCCEEDED, Result.SUCCEEDED, at, at
    )
    assert await house.store.complete([ended]) == [State.SUCCEEDED]


async def upcoming_of(house: House, job: UUID, count: int = 3) -> list[UpcomingSlot]:
    return (await house.outlook.upcoming(TENANT, str(job), count)).items


async def states_of(house: House, job: UUID) -> dict[datetime, str]:
    page = await house.overrides.page(TENANT, str(job), cursor=None, limit=100)
    return {each.slot: each.state for each in page.items}
