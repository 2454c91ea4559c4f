"""Commands for limits of targets and for ill hosts."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedApi

LIMIT: dict[str, Any] = {
    "target": "host:api.example.com",
    "rate": "100/s",
    "concurrency": 20,
    "breaker": True,
    "held": 7,
    "created_at": "2026-11-16T12:00:00Z",
    "updated_at": "2026-11-16T12:00:00Z",
}
HOST: dict[str, Any] = {
    "host": "api.example.com",
    "state": "open",
    "since": "2026-11-16T12:00:00Z",
    "failures": 20,
    "failed_probes": 1,
    "next_probe_at": "2026-11-16T12:01:00Z",
    "error": "answered 503",
    "held": 12,
    "changed_at": "2026-11-16T12:00:00Z",
}


def test_a_limit_is_set_listed_and_deleted(run: Run, api: ScriptedApi) -> None:
    api.on("PUT", "/v1/limits/host:api.example.com", LIMIT)
    result = run("limit", "set", "host:api.example.com", "--rate", "100/s", "--concurrency", "20")
    assert result.stdout == "host:api.example.com is limited to 100/s and 20 at once\n"
    assert api.last.json == {"rate": "100/s", "concurrency": 20, "breaker": True}
    api.on("PUT", "/v1/limits/shell", {**LIMIT, "rate": None, "concurrency": None, "breaker": False})
    told = run("limit", "set", "shell", "--no-breaker").stdout
    assert "is not limited, and called although it keeps failing" in told
    assert json.loads(run("limit", "set", "shell", "--json").stdout)["held"] == 7
    api.on("GET", "/v1/limits", {"items": [LIMIT], "next_cursor": None})
    shown = run("limit", "list", COLUMNS="200").stdout
    assert "100/s" in shown
    assert " 7" in shown
    api.on("DELETE", "/v1/limits/host:api.example.com", {"deleted": True})
    assert "any more" in run("limit", "delete", "host:api.example.com").stdout
    assert json.loads(run("limit", "delete", "host:api.example.com", "--json").stdout) == {"deleted": True}


def test_ill_hosts_are_listed_and_closed(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/hosts", {"items": [HOST], "next_cursor": None})
    shown = run("host", "list", "--state", "open", COLUMNS="200").stdout
    assert api.last.query["state"] == ["open"]
    assert "api.example.com" in shown
    assert "answered 503" in shown
    api.on("POST", "/v1/hosts/api.example.com/close", {**HOST, "state": "closed", "next_probe_at": None})
    assert "12 executions waited" in run("host", "close", "api.example.com").stdout
    assert json.loads(run("host", "close", "api.example.com", "--json").stdout)["state"] == "closed"
    assert run("host", "list", "--state", "ill").exit_code == 2
