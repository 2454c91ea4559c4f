"""A house with rules of alerts, in which a test writes the history itself."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import orjson

from cronwell.control.alert_views import IncidentView
from cronwell.model.execution import State
from cronwell.store.port import Execution
from tests.support.house import TENANT, House

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def channel(house: House, name: str = "hook") -> None:
    await house.alerts.put_channel(TENANT, name, {"webhook": {"url": "https://example.com/alerts"}})


async def rule(house: House, on: Any, when: dict[str, Any], name: str = "rule", **more: Any) -> None:
    await house.alerts.put_rule(TENANT, name, {"on": on, "when": when, "channels": ["hook"], **more})


async def run(
    house: House,
    job: UUID,
    state: State,
    ago: timedelta = MINUTE,
    *,
    started_after: timedelta = timedelta(),
    kind: str = "scheduled",
) -> None:
    """Write an execution into the history, whose slot lies so far back."""
    slot = house.clock.now() - ago
    has_begun = state not in (State.PENDING, State.SKIPPED)
    await house.store.ensure_day(slot.date())
    await house.database.execute(
        """
        insert into executions (
            tenant_id, job_id, kind, slot, ready_at, started_at, finished_at, worker, state, revision, attempt, priority, pool
        )
        values ($1, $2, $3, $4, $4, $5, $6, $7, $8, 1, 1, 1, 'default')
        """,
        TENANT,
        job,
        kind,
        slot,
        slot + started_after if has_begun else None,
        slot + started_after if has_begun and state is not State.RUNNING else None,
        uuid4() if state is State.RUNNING else None,
        state,
    )


async def judge(house: House) -> int:
    return await house.alerting().run_once()


async def incidents(house: House, *, is_open: bool | None = None) -> list[IncidentView]:
    """The newest first."""
    page = await house.alerts.incidents(TENANT, is_open=is_open, rule=None, cursor=None, limit=100)
    return page.items


async def messages(house: House) -> list[dict[str, Any]]:
    """What channels were given to say, in order."""
    sent = [each for each in await house.history() if each.reason == "alert"]
    return [orjson.loads(_payload(each)) for each in sent]


async def told(house: House) -> list[str]:
    return [f"{each['event']} {each['summary']}" for each in await messages(house)]


def _payload(execution: Execution) -> str:
    assert execution.payload is not None
    return execution.payload


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
