"""Rules of zones over HTTP: what new ones would move, and what is done about it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from cronwell.model import zones
from cronwell.runtime.postgres import Database
from tests.api.rig import Rig

BERLIN = {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}


async def _misplaced(rig: Rig, database: Database, name: str = "berlin") -> datetime:
    """A job whose next slot older rules had an hour later; where it belongs."""
    made = await rig.caller.create(name=name, schedule=BERLIN)
    await database.execute(
        "update cursors set next_slot = next_slot + interval '1 hour', tzdata = '1999a' where job_id = $1",
        made["id"],
    )
    return datetime.fromisoformat(made["next_fire_at"])


async def _impact(rig: Rig, query: str = "") -> Any:
    reply = await rig.caller.get(f"/v1/tzdata/impact{query}")
    assert reply.status == 200, reply.body
    return reply.json


async def test_jobs_whose_slots_move_are_listed(rig: Rig, api_database: Database) -> None:
    belongs = await _misplaced(rig, api_database)
    await rig.caller.create(name="utc")
    found = await _impact(rig)
    assert (found["tzdata"], found["setting"], found["stale"], found["moved"]) == (
        zones.version(), "apply", 1, 1
    )  # fmt: skip
    [item] = found["items"]
    assert (item["job"], item["timezone"], item["tzdata"], item["staged"]) == (
        "berlin", "Europe/Berlin", "1999a", 0
    )  # fmt: skip
    assert datetime.fromisoformat(item["moves_to"]) == belongs
    assert datetime.fromisoformat(item["next_slot"]) - belongs == timedelta(hours=1)
    assert "T04:00:00" in item["local"]
    assert "T03:00:00" in item["moves_to_local"]


@pytest.mark.parametrize("body", [None, {}, {"jobs": ["name:berlin"]}])
async def test_the_change_is_applied(rig: Rig, api_database: Database, body: Any) -> None:
    belongs = await _misplaced(rig, api_database)
    reply = await rig.caller.post("/v1/tzdata/apply", body)
    assert reply.status == 200
    assert (reply.json["changed"], reply.json["next_cursor"]) == (1, None)
    job = (await rig.caller.get("/v1/jobs/name:berlin")).json
    assert datetime.fromisoformat(job["next_fire_at"]) == belongs
    assert (await _impact(rig))["stale"] == 0


async def test_the_change_is_held(rig: Rig, api_database: Database) -> None:
    belongs = await _misplaced(rig, api_database)
    assert (await rig.caller.post("/v1/tzdata/hold")).json["changed"] == 1
    job = (await rig.caller.get("/v1/jobs/name:berlin")).json
    assert datetime.fromisoformat(job["next_fire_at"]) - belongs == timedelta(hours=1)
    assert (await _impact(rig))["stale"] == 0


async def test_pages_lead_on(rig: Rig, api_database: Database) -> None:
    for number in range(3):
        await _misplaced(rig, api_database, f"berlin-{number}")
    first = await _impact(rig, "?limit=2")
    second = await _impact(rig, f"?limit=2&cursor={first['next_cursor']}")
    assert [each["job"] for each in (*first["items"], *second["items"])] == [
        "berlin-0", "berlin-1", "berlin-2"
    ]  # fmt: skip
    assert second["next_cursor"] is None


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"jobs": []}, 422, "jobs"),
        ({"jobs": "berlin"}, 422, "jobs"),
        ({"jobs": [""]}, 422, "jobs.0"),
        ({"jobs": ["name:x"] * 101}, 422, "jobs"),
        ({"jobs": ["name:x"], "cursor": "y"}, 422, "cursor"),
        ({"cursor": "y"}, 422, "cursor"),
        ({"job": "x"}, 422, "job"),
        ({"jobs": ["name:nobody"]}, 404, None),
    ],
)
@pytest.mark.parametrize("action", ["apply", "hold"])
async def test_what_is_wrong_changes_nothing(
    rig: Rig, api_database: Database, action: str, body: Any, status: int, field: str | None
) -> None:
    await _misplaced(rig, api_database)
    reply = await rig.caller.post(f"/v1/tzdata/{action}", body)
    assert reply.status == status
    assert reply.fields == ([] if field is None else [field])
    assert (await _impact(rig))["moved"] == 1


@pytest.mark.parametrize("query", ["?limit=0", "?limit=100000", "?cursor=x", "?job=y"])
async def test_a_list_that_cannot_be_is_refused(rig: Rig, query: str) -> None:
    assert (await rig.caller.get(f"/v1/tzdata/impact{query}")).status == 422
