"""Commands for keys and tenants, and the key that every command shows."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedApi

ID = "01a1e107-7d21-72aa-b925-9740d434c8e0"
KEY: dict[str, Any] = {
    "id": ID,
    "name": "ci",
    "prefix": "cw_0123456789ab",
    "scopes": ["read", "run"],
    "state": "active",
    "created_at": "2026-11-16T12:00:00Z",
    "created_by": "loopback",
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": None,
    "replaces": None,
}
NEW = {**KEY, "key": "cw_0123456789ab_secret"}
TENANT = {
    "name": "billing",
    "weight": 2.0,
    "quotas": {"jobs": 10, "payload_bytes": None, "requests_per_second": 2.5},
    "created_at": "2026-11-16T12:00:00Z",
}


def test_a_key_is_shown_with_every_request(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/keys", {"items": [KEY], "next_cursor": None})
    run("key", "list", CRONWELL_API_KEY="cw_mine")
    assert api.last.headers["Authorization"] == "Bearer cw_mine"
    run("key", "list")
    assert "Authorization" not in api.last.headers


def test_a_key_that_cannot_be_one_is_refused_and_not_shown(run: Run) -> None:
    result = run("key", "list", CRONWELL_API_KEY="2026-11-16 key created\ncw_mine_and_secret")
    assert result.exit_code == 2
    assert "CRONWELL_API_KEY is no key" in result.stderr
    assert "secret" not in result.stderr + result.stdout


def test_a_new_key_stands_alone_on_stdout(run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/keys", NEW)
    result = run(
        "key", "create", "ci", "--scope", "read", "--scope", "run", "--expires", "2027-01-01T00:00:00Z"
    )
    assert result.exit_code == 0, result.stderr
    assert api.last.json == {"name": "ci", "scopes": ["read", "run"], "expires_at": "2027-01-01T00:00:00Z"}
    assert result.stdout == "cw_0123456789ab_secret\n"
    assert "not shown again" in result.stderr
    assert run("key", "create", "ci").exit_code == 0
    assert api.last.json == {"name": "ci"}


def test_a_key_is_rotated_and_revoked_by_its_id(run: Run, api: ScriptedApi) -> None:
    api.on("POST", f"/v1/keys/{ID}/rotate", NEW)
    result = run("key", "rotate", ID, "--overlap", "1h")
    assert (api.last.json, result.stdout) == ({"overlap": "1h"}, "cw_0123456789ab_secret\n")
    api.on("POST", f"/v1/keys/{ID}/revoke", {**KEY, "state": "revoked"})
    assert run("key", "revoke", ID).stdout == "key cw_0123456789ab is revoked\n"
    assert json.loads(run("key", "revoke", ID, "--json").stdout)["state"] == "revoked"


def test_keys_are_listed_with_what_they_may_do(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/keys", {"items": [KEY], "next_cursor": None})
    shown = run("key", "list", COLUMNS="200").stdout
    assert "cw_0123456789ab" in shown
    assert "read run" in shown


def test_tenants_are_made_listed_and_changed(run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/tenants", TENANT)
    result = run("tenant", "create", "billing", "--weight", "2")
    assert (api.last.json, result.stdout) == (
        {"name": "billing", "weight": 2.0},
        "tenant billing has the weight 2, jobs: 10, requests per second: 2.5\n",
    )
    api.on("PATCH", "/v1/tenants/billing", {**TENANT, "weight": 3.5})
    result = run("tenant", "change", "billing", "--weight", "3.5")
    assert (api.last.json, result.stdout) == (
        {"weight": 3.5},
        "tenant billing has the weight 3.5, jobs: 10, requests per second: 2.5\n",
    )
    api.on("GET", "/v1/tenants", {"items": [TENANT], "next_cursor": None})
    assert "billing" in run("tenant", "list").stdout
    run("tenant", "create", "billing", "--jobs", "10", "--requests", "2.5")
    assert api.last.json["quotas"] == {"jobs": 10, "requests_per_second": 2.5}
    run("tenant", "change", "billing", "--jobs", "-1", "--payload", "100")
    assert api.last.json == {"quotas": {"jobs": None, "payload_bytes": 100}}
    assert json.loads(run("tenant", "create", "billing", "--json").stdout) == TENANT


def test_a_refusal_says_what_is_missing(run: Run, api: ScriptedApi) -> None:
    problem = {"title": "A key is needed", "status": 401, "detail": "send a key", "errors": []}
    api.on("GET", "/v1/keys", problem, status=401)
    result = run("key", "list")
    assert (result.exit_code, "send a key" in result.stderr) == (1, True)
