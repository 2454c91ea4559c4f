"""A slot that was moved to an earlier time is told of once it has begun."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cronwell.control.overrides import Decision
from cronwell.runtime.clock import ManualClock
from cronwell.store.port import ExecutionFilter
from tests.support.house import SECOND, TENANT, House

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize("of_one", [True, False])
async def test_an_early_slot_is_in_the_list_as_soon_as_it_has_begun(
    still_house: House, clock: ManualClock, of_one: bool
) -> None:
    house = still_house
    job = await house.create(schedule="0 * * * *")
    await house.create("other", schedule="*/30 * * * *")
    move = Decision("move", to=NOON + 20 * SECOND)
    for hours in (2, 3):
        await house.overrides.put(TENANT, str(job), NOON + hours * HOUR, move)
    await house.overrides.put(TENANT, str(job), NOON + 4 * HOUR, Decision("move", to=NOON + HOUR))

    async def listed(cursor: str | None = None, **where: object) -> list[tuple[str, timedelta]]:
        only = ExecutionFilter(job_id=job if of_one else None, **where)  # type: ignore[arg-type]  # by name
        page = await house.executions.page(TENANT, only, cursor=cursor, limit=1)
        found = [(each.job, each.slot - NOON) for each in page.items]
        return found + (await listed(page.next_cursor, **where) if page.next_cursor else [])

    clock.advance(31 * timedelta(minutes=1))
    await house.staging().run_once()
    before = [] if of_one else [("other", HOUR / 2)]
    assert await listed() == before, "nothing of it has begun"
    await house.database.execute(
        "update executions set state = 'running', started_at = $1 where slot > $1 and ready_at <= $1",
        clock.now(),
    )
    assert await listed() == [("job", 3 * HOUR), ("job", 2 * HOUR), *before]
    assert await listed(text="no such words") == []
