"""Limits of targets and ill hosts, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from cronwell.store.port import HostState
from tests.api.rig import Rig

LIMIT = "/v1/limits/host:api.example.com"


async def test_a_limit_is_made_shown_changed_listed_and_deleted(rig: Rig) -> None:
    caller = rig.caller
    made = await caller.call("PUT", "/v1/limits/host:API.example.com:443", {"rate": "600/m"})
    assert made.status == 201, made.body
    assert made.json["target"] == "host:api.example.com"
    wanted = {"rate": "600/m", "concurrency": None, "breaker": True, "held": 0}
    assert {name: made.json[name] for name in wanted} == wanted
    changed = await caller.call("PUT", LIMIT, {"concurrency": 20, "breaker": False})
    assert (changed.status, changed.json["rate"], changed.json["concurrency"]) == (200, None, 20)
    assert changed.json["created_at"] == made.json["created_at"]
    assert (await caller.get(LIMIT)).json == changed.json
    await caller.call("PUT", "/v1/limits/handler:reports.make", {"concurrency": 1})
    first = (await caller.get("/v1/limits?limit=1")).json
    assert [each["target"] for each in first["items"]] == ["handler:reports.make"]
    second = (await caller.get(f"/v1/limits?limit=1&cursor={first['next_cursor']}")).json
    assert [each["target"] for each in second["items"]] == ["host:api.example.com"]
    told = (await caller.get("/v1/audit?object=limit:host:api.example.com")).json["items"]
    assert [each["action"] for each in told] == ["changed", "created"]
    assert (told[0]["before"]["rate"], told[0]["after"]["concurrency"]) == ("600/m", 20)
    for target in (LIMIT, "/v1/limits/handler:reports.make"):
        assert (await caller.call("DELETE", target)).json == {"deleted": True}
    assert (await caller.call("DELETE", LIMIT)).status == 404
    assert (await caller.get(LIMIT)).status == 404
    assert (await caller.get("/v1/limits/nonsense")).status == 404


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/limits/example.com", {"rate": "1/s"}, "target"),
        ("/v1/limits/host:a%20b", {"rate": "1/s"}, "target"),
        ("/v1/limits/host:a%2Fb", {"rate": "1/s"}, None),
        ("/v1/limits/host:" + "a" * 300, {"rate": "1/s"}, "target"),
        (LIMIT, {}, "body"),
        (LIMIT, {"rate": None}, "body"),
        (LIMIT, {"rate": 5}, "rate"),
        (LIMIT, {"rate": "5"}, "rate"),
        (LIMIT, {"rate": "0/s"}, "rate"),
        (LIMIT, {"rate": "1/d"}, "rate"),
        (LIMIT, {"rate": "1" * 50}, "rate"),
        (LIMIT, {"concurrency": 0}, "concurrency"),
        (LIMIT, {"concurrency": -1}, "concurrency"),
        (LIMIT, {"concurrency": 1.5}, "concurrency"),
        (LIMIT, {"concurrency": True}, "concurrency"),
        (LIMIT, {"concurrency": 10**9}, "concurrency"),
        (LIMIT, {"breaker": "no"}, "breaker"),
        ("/v1/limits/shell", {"breaker": False}, "breaker"),
        (LIMIT, {"rate": "1/s", "burst": 3}, "burst"),
    ],
)
async def test_a_limit_that_makes_no_sense_is_refused_with_the_field(
    rig: Rig, path: str, body: dict[str, Any], field: str | None
) -> None:
    reply = await rig.caller.call("PUT", path, body)
    if field is None:
        assert reply.status in (404, 422)
    else:
        assert (reply.status, reply.fields) == (422, [field])
    assert (await rig.caller.get("/v1/limits")).json["items"] == []


async def test_an_ill_host_is_shown_and_closed(rig: Rig) -> None:
    caller, now = rig.caller, rig.clock.now()
    await rig.store.note_hosts(
        [
            HostState(1, "ill.example", "open", now, 20, 3, now, "answered 503", now),
            HostState(1, "well.example:8080", "closed", now, 0, 0, now, None, now),
        ]
    )
    listed = (await caller.get("/v1/hosts?state=open")).json["items"]
    assert [each["host"] for each in listed] == ["ill.example"]
    shown = (await caller.get("/v1/hosts/ILL.example")).json
    assert shown == listed[0]
    assert (shown["state"], shown["failures"], shown["failed_probes"], shown["held"]) == ("open", 20, 2, 0)
    assert shown["error"] == "answered 503"
    assert shown["next_probe_at"] is not None
    closed = await caller.post("/v1/hosts/ill.example/close")
    assert (closed.status, closed.json["state"], closed.json["next_probe_at"]) == (200, "closed", None)
    again = await caller.post("/v1/hosts/ill.example/close")
    assert (again.status, "nothing to close" in again.json["detail"]) == (409, True)
    told = (await caller.get("/v1/audit?object=host:ill.example")).json["items"]
    assert [each["action"] for each in told] == ["closed"]
    assert len((await caller.get("/v1/hosts?limit=1")).json["items"]) == 1
    assert (await caller.get("/v1/hosts/nobody.example")).status == 404
    assert (await caller.post("/v1/hosts/a%20b/close")).status == 404
    assert (await caller.get("/v1/hosts?state=ill")).fields == ["state"]


async def test_a_tenant_has_only_so_many_limits(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker knows all of them."""
    monkeypatch.setattr("cronwell.control.hosts.MOST_LIMITS", 1)
    assert (await rig.caller.call("PUT", LIMIT, {"rate": "1/s"})).status == 201
    more = await rig.caller.call("PUT", "/v1/limits/host:more.example.com", {"rate": "1/s"})
    assert (more.status, "may not have more" in more.json["detail"]) == (409, True)
    assert (await rig.caller.call("PUT", LIMIT, {"rate": "2/s"})).status == 200
    assert (await rig.caller.call("DELETE", LIMIT)).status == 200
