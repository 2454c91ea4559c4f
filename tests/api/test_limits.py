"""Limits are those of the settings."""

from __future__ import annotations

from cronwell.runtime.clock import ManualClock
from cronwell.runtime.postgres import Database
from tests.api.rig import HOURLY, limited, serving


async def test_the_limits_are_those_of_the_settings(api_database: Database, api_url: str) -> None:
    async with serving(api_database, api_url, ManualClock(), limited(body=300, page=2)) as rig:
        assert (await rig.caller.post("/v1/jobs", HOURLY)).status == 201
        assert (await rig.caller.post("/v1/jobs", {**HOURLY, "description": "x" * 300})).status == 413
        assert (await rig.caller.get("/v1/jobs?limit=3")).status == 422
        document = (await rig.caller.get("/openapi.json")).json
        limit = next(
            each for each in document["paths"]["/v1/jobs"]["get"]["parameters"] if each["name"] == "limit"
        )
        assert limit["schema"]["maximum"] == 2
