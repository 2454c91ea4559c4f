"""Quotas: what a tenant has too much of is refused with the number, and nothing of it is kept."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest_asyncio

from cronwell.config import AuthSettings, Settings
from cronwell.control.keys import Keys
from cronwell.control.tenants import Tenants
from cronwell.model.access import ALL_SCOPES
from cronwell.model.access import Caller as Who
from tests.api.conftest import Served
from tests.api.rig import HOURLY, Caller, Rig, calling, serving


@pytest_asyncio.fixture(loop_scope="session")
async def team(served: Served, rig: Rig) -> AsyncIterator[Caller]:
    """A caller of a tenant of its own, with every scope."""
    settings = dataclasses.replace(Settings(), auth=AuthSettings(required=True))
    tenants = Tenants(rig.store, rig.clock)
    if not await rig.store.get_tenant("limited"):
        await tenants.create("limited")
    await tenants.change("limited", weight=None, quotas=NONE)
    tenant = await tenants.find("limited")
    made = await Keys(rig.store, rig.clock).create(
        Who(tenant.id, ALL_SCOPES, "test"), "test", list(ALL_SCOPES)
    )
    async with (
        serving(served.database, served.url, rig.clock, settings) as guarded,
        calling(guarded.caller.url) as caller,
    ):
        caller.session.headers["Authorization"] = f"Bearer {made.key}"
        yield caller


OTHERS = ("payload_bytes", "requests_per_second", "running", "executions_per_minute")
NONE: dict[str, float | None] = {"jobs": None, **dict.fromkeys(OTHERS)}


async def _limit(team: Caller, **quotas: Any) -> dict[str, Any]:
    reply = await team.call("PATCH", "/v1/tenants/limited", {"quotas": quotas})
    assert reply.status == 200, reply.body
    told: dict[str, Any] = reply.json["quotas"]
    return told


async def test_a_job_too_many_is_refused_with_the_number(team: Caller) -> None:
    await team.create(name="one")
    assert (await _limit(team, jobs=2))["jobs"] == 2
    second = await team.create(name="two")
    reply = await team.post("/v1/jobs", {**HOURLY, "name": "three"})
    assert reply.status == 409
    assert "has 2 jobs and may have 2" in reply.json["detail"]
    assert (await team.get("/v1/jobs/name:three")).status == 404
    await team.call("DELETE", f"/v1/jobs/{second['id']}")
    assert (await team.post("/v1/jobs", {**HOURLY, "name": "three"})).status == 201


async def test_of_a_batch_as_many_are_made_as_there_is_room_for(team: Caller) -> None:
    await _limit(team, jobs=7)
    lines = b"\n".join(orjson.dumps({**HOURLY, "name": f"b-{n}"}) for n in range(10))
    reply = await team.call(
        "POST", "/v1/jobs:batch", data=lines, headers={"Content-Type": "application/x-ndjson"}
    )
    results = [orjson.loads(line) for line in reply.body.splitlines()]
    assert [each["status"] for each in results] == ["created"] * 7 + ["error"] * 3
    assert results[-1]["problem"]["type"] == "urn:cronwell:quota-exceeded"
    assert len((await team.get("/v1/jobs")).json["items"]) == 7


async def test_jobs_made_at_once_do_not_get_past_the_quota(team: Caller) -> None:
    await _limit(team, jobs=10)
    replies = await asyncio.gather(
        *(team.post("/v1/jobs", {**HOURLY, "name": f"race-{n}"}) for n in range(30))
    )
    assert sorted(each.status for each in replies) == [201] * 10 + [409] * 20
    assert len((await team.get("/v1/jobs")).json["items"]) == 10


async def test_an_edit_needs_no_room(team: Caller) -> None:
    made = await team.create(name="only")
    await _limit(team, jobs=1)
    assert (await team.call("PATCH", f"/v1/jobs/{made['id']}", {"priority": "high"})).status == 200


async def test_a_payload_beyond_the_quota_is_refused_wherever_it_is_given(team: Caller) -> None:
    made = await team.create(name="small", payload="x" * 50)
    await _limit(team, payload_bytes=100)
    large = "x" * 200
    path = f"/v1/jobs/{made['id']}"
    slot = made["next_fire_at"]
    replies = [
        await team.post("/v1/jobs", {**HOURLY, "name": "large", "payload": large}),
        await team.call("PATCH", path, {"payload": large}),
        await team.post(f"{path}/trigger", {"payload": large}),
        await team.call("PUT", f"{path}/overrides/{slot}", {"action": "payload", "payload": large}),
        await team.post(f"{path}/backfills", {"from": "2026-01-01T00:00:00Z", "payload": large}),
    ]
    assert [each.status for each in replies] == [413] * 5
    assert all("is 100;" in each.json["detail"] for each in replies)
    assert (await team.post(f"{path}/trigger", {"payload": "small"})).status == 201


async def test_requests_that_come_too_fast_wait(team: Caller) -> None:
    await _limit(team, requests_per_second=5)
    # At once: one after the other, a busy machine may be no faster than the limit.
    replies = await asyncio.gather(*(team.get("/v1/jobs") for _ in range(60)))
    statuses = [each.status for each in replies]
    assert set(statuses) == {200, 429}
    assert statuses.count(200) >= 10
    first = next(each.headers for each in replies if each.status == 200)
    assert first["RateLimit-Limit"] == "5"
    assert int(first["RateLimit-Remaining"]) <= 10
    refused = next(each for each in replies if each.status == 429)
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.headers["RateLimit-Remaining"] == "0"
    assert refused.json["type"] == "urn:cronwell:too-many-requests"


async def test_a_key_that_floods_can_be_revoked(team: Caller) -> None:
    key = (await team.post("/v1/keys", {"name": "flood", "scopes": ["read"]})).json
    await _limit(team, requests_per_second=0.1)
    while (await team.get("/v1/jobs")).status != 429:
        pass
    assert (await team.post(f"/v1/keys/{key['id']}/revoke")).json["state"] == "revoked"


async def test_another_tenant_is_not_slowed_down(team: Caller, api: Caller) -> None:
    await _limit(team, requests_per_second=0.1)
    replies = await asyncio.gather(*(team.get("/v1/jobs") for _ in range(20)))
    assert 429 in {each.status for each in replies}
    assert {(await api.get("/v1/jobs")).status for _ in range(20)} == {200}
    assert "RateLimit-Limit" not in (await api.get("/v1/jobs")).headers


async def test_quotas_of_a_new_tenant_and_those_that_make_no_sense(team: Caller, api: Caller) -> None:
    made = await api.post("/v1/tenants", {"name": "fresh-one", "weight": 2, "quotas": {"jobs": 3}})
    if made.status == 201:
        assert made.json["quotas"] == {"jobs": 3, **dict.fromkeys(OTHERS)}
    for wrong in (
        {"jobs": -1},
        {"jobs": 1.5},
        {"requests_per_second": 0},
        {"nothing": 1},
        {"jobs": "many"},
        {"running": 0},
        {"executions_per_minute": 1.5},
    ):
        assert (await api.call("PATCH", "/v1/tenants/limited", {"quotas": wrong})).status == 422
    assert (await api.call("PATCH", "/v1/tenants/nobody", {"weight": 2})).status == 404


async def test_a_wrong_name_of_a_tenant_is_told_in_words_in_the_body_and_in_the_path(api: Caller) -> None:
    words = "small letters (a-z), digits and _ -, beginning with a letter or digit, at most 63 characters"
    asked = await api.post("/v1/tenants", {"name": "Billing"})
    changed = await api.call("PATCH", "/v1/tenants/Billing", {"weight": 2})
    for refused in (asked, changed):
        assert refused.status == 422
        [wrong] = refused.json["errors"]
        assert (wrong["field"], wrong["message"]) == ("name", f"must be {words}")
        assert "^" not in refused.json["detail"]
