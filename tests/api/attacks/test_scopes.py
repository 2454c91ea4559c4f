"""Scopes: what a key does not have it cannot do, nor come by."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from cronwell.api.app import ROUTERS
from cronwell.api.auth import is_callback, is_open
from cronwell.model.access import ALL_SCOPES, Scope
from tests.api.attacks.conftest import Fortress

SHELL = {"name": "sh", "schedule": "@hourly", "target": {"shell": {"command": "id"}}}
PLAIN = {"name": "plain", "schedule": "@hourly", "target": "https://example.com"}


def _scopes(dependant: Dependant) -> list[Scope]:
    own = getattr(dependant.call, "scope", None)
    below = [scope for each in dependant.dependencies for scope in _scopes(each)]
    return below if own is None else [own, *below]


ROUTES = {
    f"{method} {route.path_format}": sorted(set(_scopes(route.dependant)))
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and not is_open(route.path_format)
    # Their address itself is what lets them in, and no key does.
    if not is_callback(route.path_format)
    for method in sorted(route.methods or ())
}


def test_every_route_takes_one_scope() -> None:
    assert {route: scopes for route, scopes in ROUTES.items() if len(scopes) != 1} == {}
    assert len(ROUTES) > 40


def test_what_changes_something_takes_more_than_reading() -> None:
    harmless = {"POST /v1/schedules/preview"}
    readable = {route for route, [scope] in ROUTES.items() if scope is Scope.READ}
    assert {route for route in readable if not route.startswith("GET ")} == harmless


async def test_a_key_without_the_scope_is_turned_away_on_every_route(fortress: Fortress) -> None:
    lacking = {scope: await fortress.key("ours", *(ALL_SCOPES - {scope})) for scope in Scope}
    wrong = {}
    for route, [wanted] in ROUTES.items():
        method, path = route.split()
        reply = await lacking[wanted].call(method, path.replace("{", "").replace("}", ""))
        if reply.status != 403 or f"`{wanted}`" not in reply.json["detail"]:
            wrong[route] = reply.body
    assert wrong == {}


async def test_a_key_makes_no_key_that_may_more_than_itself(fortress: Fortress) -> None:
    admin = await fortress.key("ours", Scope.ADMIN, Scope.READ)
    for wanted in ALL_SCOPES - {Scope.ADMIN, Scope.READ}:
        reply = await admin.call("POST", "/v1/keys", {"name": "more", "scopes": ["read", wanted]})
        assert (reply.status, str(wanted) in reply.json["detail"]) == (403, True)
    made = await admin.call("POST", "/v1/keys", {"name": "as much", "scopes": ["read"]})
    assert made.status == 201


async def test_a_key_is_not_rotated_into_more_than_ones_own(fortress: Fortress) -> None:
    strong = await fortress.key("ours")
    [mine] = [
        each
        for each in (await strong.call("GET", "/v1/keys?limit=1000")).json["items"]
        if strong.credential.startswith(each["prefix"])
    ]
    admin = await fortress.key("ours", Scope.ADMIN, Scope.READ)
    assert (await admin.call("POST", f"/v1/keys/{mine['id']}/rotate")).status == 403


@pytest.mark.parametrize(
    "scopes", [["root"], ["READ"], ["read", "read write"], [""], [], "read", [["read"]], [7]]
)
async def test_scopes_that_there_are_not_are_refused(scopes: Any, fortress: Fortress) -> None:
    admin = await fortress.key("ours")
    assert (await admin.call("POST", "/v1/keys", {"name": "x", "scopes": scopes})).status == 422


async def test_commands_take_a_scope_of_their_own_by_whatever_way(fortress: Fortress) -> None:
    """Made, replaced, merged, sent in a batch: no way round leads to a shell."""
    writer = await fortress.key("ours", Scope.READ, Scope.WRITE, Scope.RUN)
    assert (await writer.call("POST", "/v1/jobs", SHELL)).status == 403
    plain = (await writer.call("POST", "/v1/jobs", PLAIN)).json
    assert (await writer.call("PUT", f"/v1/jobs/{plain['id']}", {**SHELL, "name": "plain"})).status == 403
    merged = {"target": {"http": None, "shell": {"command": "id"}}}
    assert (await writer.call("PATCH", f"/v1/jobs/{plain['id']}", merged)).status == 403
    lines = b"\n".join(orjson.dumps(each) for each in (SHELL, {**PLAIN, "name": "second"}))
    batch = await writer.call(
        "POST", "/v1/jobs:batch", data=lines, **{"Content-Type": "application/x-ndjson"}
    )
    first, second = (orjson.loads(line) for line in batch.body.splitlines())
    assert (first["problem"]["status"], second["status"]) == (403, "created")
    listed = (await writer.call("GET", "/v1/jobs?target=shell")).json["items"]
    assert listed == []


async def test_a_job_that_runs_commands_is_edited_by_those_who_may_make_one(fortress: Fortress) -> None:
    trusted = await fortress.key("ours")
    made = await trusted.call("POST", "/v1/jobs", SHELL)
    assert made.status == 201
    writer = await fortress.key("ours", Scope.READ, Scope.WRITE)
    path = f"/v1/jobs/{made.json['id']}"
    for body in ({"target": {"shell": {"command": "evil"}}}, {"payload": "evil"}):
        assert (await writer.call("PATCH", path, body)).status == 403
    assert (await writer.call("PUT", path, {**PLAIN, "name": "sh"})).status == 403
    assert (await trusted.call("PATCH", path, {"payload": 1})).status == 200
    assert (await writer.call("POST", f"{path}/pause")).status == 200


async def test_the_key_itself_is_shown_once(fortress: Fortress) -> None:
    admin = await fortress.key("ours")
    made = await admin.call("POST", "/v1/keys", {"name": "once", "scopes": ["read"]})
    assert made.headers["Cache-Control"] == "no-store"
    secret = made.json["key"].rpartition("_")[2]
    shown = [
        await admin.call("GET", "/v1/keys?limit=1000"),
        await admin.call("GET", f"/v1/keys/{made.json['id']}"),
        await admin.call("POST", f"/v1/keys/{made.json['id']}/revoke"),
    ]
    assert all(secret.encode() not in reply.body and b"digest" not in reply.body for reply in shown)
