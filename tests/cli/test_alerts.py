"""Commands for alerts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedApi

AT = "2026-11-16T12:00:00Z"
CHANNEL: dict[str, Any] = {
    "name": "ops",
    "revision": 2,
    "kind": "webhook",
    "content": {"webhook": {"url": "https://example.com/hook"}, "description": "on call"},
    "created_at": AT,
    "updated_at": AT,
}
MAIL = {**CHANNEL, "name": "mail", "kind": "email", "content": {"email": {"to": ["a@b.c", "d@e.f"]}}}
RULE: dict[str, Any] = {
    "name": "nightly",
    "revision": 1,
    "content": {
        "on": {"tags": {"team": "billing"}},
        "when": {"failure_rate": {"above": 0.5, "over": "1h"}},
        "channels": ["ops", "mail"],
    },
    "created_at": AT,
    "updated_at": AT,
}
INCIDENT: dict[str, Any] = {
    "id": "01a1e107-7d21-72aa-b925-9740d434c8e0",
    "rule": "nightly",
    "state": "resolved",
    "severity": "critical",
    "summary": "invoices: failed 3 times in a row",
    "job": "invoices",
    "job_id": "01a1e107-7d21-72aa-b925-9740d434c8e1",
    "facts": {},
    "opened_at": AT,
    "told_at": AT,
    "told": ["ops", "mail"],
    "resolved_at": AT,
    "outcome": "succeeded again",
}


def test_rules_and_channels_are_set_shown_and_deleted(run: Run, api: ScriptedApi) -> None:
    for group, path, kept in (
        ("rule", "/v1/alerts/rules/nightly", RULE),
        ("channel", "/v1/alerts/channels/ops", CHANNEL),
    ):
        name = kept["name"]
        for method in ("PUT", "GET"):
            api.on(method, path, kept)
        api.on("DELETE", path, {"deleted": True})
        result = run("alert", group, "set", name, "-", text=json.dumps(kept["content"]))
        assert (api.last.json, result.exit_code) == (kept["content"], 0)
        assert result.stdout == f"{group} {name} is at revision {kept['revision']}\n"
        assert json.loads(run("alert", group, "show", name).stdout) == kept
        assert run("alert", group, "delete", name).stdout == f"{group} {name} is deleted\n"
        assert json.loads(run("alert", group, "delete", name, "--json").stdout) == {"deleted": True}
        wrong = run("alert", group, "set", name, "[]")
        assert (wrong.exit_code, "not an object such as" in wrong.stderr) == (2, True)


def test_lists_say_in_a_line_what_each_is(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/alerts/rules", {"items": [RULE], "next_cursor": None})
    shown = run("alert", "rule", "list", COLUMNS="200").stdout
    assert "tags team billing" in shown
    assert "failure_rate above 0.5 over 1h" in shown
    assert "ops, mail" in shown
    api.on("GET", "/v1/alerts/channels", {"items": [CHANNEL, MAIL], "next_cursor": None})
    shown = run("alert", "channel", "list", COLUMNS="200").stdout
    assert "https://example.com/hook" in shown
    assert "a@b.c, d@e.f" in shown
    api.on("GET", "/v1/alerts/incidents", {"items": [INCIDENT], "next_cursor": None})
    shown = run("alert", "list", "--state", "resolved", "--rule", "nightly", COLUMNS="200").stdout
    assert "invoices: failed 3 times in a row" in shown
    assert (api.last.query["state"], api.last.query["rule"]) == (["resolved"], ["nightly"])


@pytest.mark.parametrize(
    ("state", "error", "code"),
    [("succeeded", None, 0), ("retrying", "answered 500", 1), ("failed", "refused", 1)],
)
def test_a_test_is_waited_for(state: str, error: str | None, code: int, run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/alerts/channels/ops/test", {"execution": "e-1"}, status=202)
    api.on("GET", "/v1/executions/e-1", {"id": "e-1", "state": "pending"})
    api.on("GET", "/v1/executions/e-1", {"id": "e-1", "state": state, "error": error})
    result = run("alert", "test", "ops")
    assert (result.exit_code, result.stdout.startswith(f"ops: {state}")) == (code, True)
    assert (error or "") in result.stdout
