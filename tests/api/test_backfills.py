"""Backfills over HTTP: a dry run, a start, a list, what may be told to one, and what is refused."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from cronwell.scheduler.chores.backfilling import Backfilling
from tests.api.rig import HALF_AN_HOUR_AWAY, Caller, Rig

HOUR = timedelta(hours=1)


def _ago(rig: Rig, length: timedelta) -> str:
    at = rig.clock.now() - length
    return at.replace(minute=HALF_AN_HOUR_AWAY, second=0, microsecond=0).isoformat()


async def _start(rig: Rig, **fields: object) -> dict[str, Any]:
    reply = await rig.caller.post(
        "/v1/jobs/name:hourly/backfills", {"from": _ago(rig, 5 * HOUR), "to": _ago(rig, HOUR), **fields}
    )
    assert reply.status == 201, reply.body
    made: dict[str, Any] = reply.json
    return made


async def test_a_dry_run_counts_and_stores_nothing(rig: Rig, api: Caller) -> None:
    await api.create()
    body = {"from": _ago(rig, 5 * HOUR), "to": _ago(rig, HOUR), "dry_run": True, "rate": "2/m"}
    reply = await api.post("/v1/jobs/name:hourly/backfills", body)
    assert reply.status == 200
    plan = reply.json
    assert (plan["count"], plan["already"], plan["load_per_minute"], plan["takes"]) == (4, 0, 2.0, "2m")
    assert datetime.fromisoformat(plan["first"]) == datetime.fromisoformat(body["from"])  # type: ignore[arg-type]  # a text
    assert datetime.fromisoformat(plan["last"]) == datetime.fromisoformat(_ago(rig, 2 * HOUR))
    assert any("no worker serves" in each for each in plan["warnings"])
    assert (await api.get("/v1/backfills")).json == {"items": [], "next_cursor": None}


async def test_a_backfill_is_made_shown_and_listed(rig: Rig, api: Caller) -> None:
    job = await api.create()
    body = {
        "from": _ago(rig, 5 * HOUR),
        "to": _ago(rig, HOUR),
        "order": "newest",
        "rate": 3,
        "concurrency": 2,
        "payload": None,
        "note": "why",
    }
    reply = await api.post("/v1/jobs/name:hourly/backfills", body)
    made = reply.json
    assert (reply.status, reply.headers["Location"]) == (201, f"/v1/backfills/{made['id']}")
    wanted = {
        "job_id": job["id"],
        "job": "hourly",
        "state": "running",
        "order": "newest",
        "definition": "current",
        "rate": "3/s",
        "concurrency": 2,
        "slots": 4,
        "staged": 0,
        "unfinished": 0,
        "remaining": 4,
        "note": "why",
    }
    assert {name: made[name] for name in wanted} == wanted
    assert made["eta"] is not None
    assert "from" in made
    shown = (await api.get(f"/v1/backfills/{made['id']}")).json
    assert {**shown, "eta": None, "warnings": []} == {**made, "eta": None, "warnings": []}
    for path in (
        "/v1/backfills",
        "/v1/jobs/name:hourly/backfills",
        f"/v1/backfills?job={job['id']}&state=running",
    ):
        assert [each["id"] for each in (await api.get(path)).json["items"]] == [made["id"]]
    assert (await api.get("/v1/backfills?state=paused")).json["items"] == []


async def test_a_list_of_them_goes_on_by_its_cursor(rig: Rig, api: Caller) -> None:
    await api.create()
    made = [(await _start(rig))["id"] for _ in range(3)]
    first = (await api.get("/v1/backfills?limit=2")).json
    rest = (await api.get(f"/v1/backfills?limit=2&cursor={first['next_cursor']}")).json
    assert [each["id"] for each in (*first["items"], *rest["items"])] == sorted(made, reverse=True)
    assert rest["next_cursor"] is None
    wrong = await api.get("/v1/backfills?cursor=WyJ4Il0")
    assert (wrong.status, wrong.fields) == (422, ["cursor"])


async def test_the_same_key_starts_one(rig: Rig, api: Caller) -> None:
    await api.create()
    body = {"from": _ago(rig, 5 * HOUR), "to": _ago(rig, HOUR)}
    replies = [
        await api.post("/v1/jobs/name:hourly/backfills", body, Idempotency_Key="once") for _ in range(2)
    ]
    assert [each.status for each in replies] == [201, 201]
    assert replies[0].json == replies[1].json
    assert replies[1].headers["Idempotency-Replayed"] == "true"
    assert len((await api.get("/v1/backfills")).json["items"]) == 1


async def test_it_is_staged_paused_resumed_and_cancelled(rig: Rig, api: Caller, api_database: Any) -> None:
    await api.create()
    made = await _start(rig, concurrency=2)
    path = f"/v1/backfills/{made['id']}"

    class Silent:
        async def publish(self, _: object) -> None: ...

        def subscribe(self, *_: object) -> Any: ...

    chore = Backfilling(rig.store, Silent(), rig.clock, rig.settings.retention)
    assert await chore.run_once() == 2
    shown = (await api.get(path)).json
    assert (shown["staged"], shown["unfinished"], shown["remaining"]) == (2, 2, 2)
    executions = (await api.get("/v1/executions?kind=backfill")).json["items"]
    assert {each["priority"] for each in executions} == {"low"}
    assert (await api.post(f"{path}/pause")).json["state"] == "paused"
    assert (await api.post(f"{path}/pause")).json["state"] == "paused"
    assert (await api.post(f"{path}/resume")).json["state"] == "running"
    cancelled = (await api.post(f"{path}/cancel")).json
    assert (cancelled["state"], cancelled["staged"], cancelled["unfinished"]) == ("cancelled", 0, 0)
    refused = await api.post(f"{path}/resume")
    assert (refused.status, "is cancelled" in refused.json["detail"]) == (409, True)
    assert (await api.get("/v1/executions?kind=backfill")).json["items"] == []


@pytest.mark.parametrize(
    ("fields", "field", "part"),
    [
        ({"from": None}, "from", ""),
        ({"from": "yesterday"}, "from", "RFC 3339"),
        ({"from": "1926-05-05T00:00:00Z"}, "from", "1970"),
        ({"from": "1980-05-05T00:00:00Z"}, "from", "history is kept for 30d"),
        ({"to": "2099-01-01T00:00:00Z"}, "to", "future"),
        ({"to": "1999-01-01T00:00:00Z"}, "from", "not before"),
        ({"rate": 0}, "rate", "0"),
        ({"rate": 1e9}, "rate", "1000"),
        ({"rate": "fast"}, "rate", "10/s"),
        ({"rate": True}, "rate", ""),
        ({"concurrency": 0}, "concurrency", "1"),
        ({"concurrency": 10**6}, "concurrency", "1000"),
        ({"concurrency": "2"}, "concurrency", ""),
        ({"order": "random"}, "order", "oldest"),
        ({"definition": "never"}, "definition", "then"),
        ({"dry_run": "yes"}, "dry_run", ""),
        ({"note": "n" * 2001}, "note", "2000"),
        ({"note": "\0"}, "note", "null character"),
        ({"dryrun": True}, "dryrun", "dry_run"),
        ({"definition": "then"}, "from", "there is no slot"),
    ],
)
async def test_bad_input_is_refused_by_field_and_stores_nothing(
    rig: Rig, api: Caller, fields: dict[str, Any], field: str, part: str
) -> None:
    await api.create()
    body = {"from": _ago(rig, 5 * HOUR), "to": _ago(rig, HOUR), **fields}
    reply = await api.post("/v1/jobs/name:hourly/backfills", body)
    assert reply.status == 422, reply.body
    assert any(each.startswith(field) for each in reply.fields), reply.body
    assert part in reply.body.decode()
    assert (await api.get("/v1/backfills")).json["items"] == []


async def test_what_is_not_there_is_not_found(rig: Rig, api: Caller) -> None:
    body = {"from": _ago(rig, 5 * HOUR)}
    assert (await api.post("/v1/jobs/name:nobody/backfills", body)).status == 404
    assert (await api.get("/v1/jobs/name:nobody/backfills")).status == 404
    for name in (str(uuid4()), "nonsense"):
        assert (await api.get(f"/v1/backfills/{name}")).status == 404
        for verb in ("pause", "resume", "cancel"):
            assert (await api.post(f"/v1/backfills/{name}/{verb}")).status == 404
    job = await api.create(name="unscheduled", schedule=None)
    assert (await api.post(f"/v1/jobs/{job['id']}/backfills", body)).status == 409
    await api.call("DELETE", f"/v1/jobs/{job['id']}")
    assert (await api.post(f"/v1/jobs/{job['id']}/backfills", body)).status == 404
