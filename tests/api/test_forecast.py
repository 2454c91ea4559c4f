"""The forecast over HTTP."""

from __future__ import annotations

from datetime import datetime, timedelta

from cronwell.config import Settings
from cronwell.runtime.postgres import Database
from tests.api.rig import HOURLY, Rig, serving


async def test_the_forecast_tells_each_minute_of_a_day(
    rig: Rig, api_database: Database, api_url: str
) -> None:
    # A server of its own: an answer is kept for a minute.
    async with serving(api_database, api_url, rig.clock, Settings()) as own:
        await own.caller.post("/v1/jobs", {**HOURLY, "schedule": "30 * * * *"})
        reply = await own.caller.get("/v1/forecast")
    assert reply.status == 200
    found = reply.json
    assert set(found) == {"from", "to", "jobs", "total", "peak", "is_sampled", "share", "minutes"}
    begins = datetime.fromisoformat(found["from"])
    assert datetime.fromisoformat(found["to"]) - begins == timedelta(days=1)
    assert (len(found["minutes"]), found["jobs"], found["is_sampled"], found["share"]) == (1440, 1, False, 1)
    assert found["total"] in (23, 24), "23 where the half hour was reached in the minute under way"
    fired = {
        (begins + timedelta(minutes=place)).minute for place, count in enumerate(found["minutes"]) if count
    }
    assert fired == {30}
    assert found["peak"]["count"] == 1


async def test_the_forecast_takes_no_parameters(rig: Rig) -> None:
    reply = await rig.caller.get("/v1/forecast?hours=3")
    assert (reply.status, reply.fields) == (422, ["hours"])
