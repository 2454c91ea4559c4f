"""Commands for secrets: a value comes from stdin, a prompt or a file, and is shown nowhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cronwell.cli.screen import Screen
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedApi

SECRET: dict[str, Any] = {
    "name": "billing-token",
    "revision": 2,
    "key_id": "da4481ac9c2e044d",
    "created_at": "2026-11-16T12:00:00Z",
    "updated_at": "2026-11-16T13:00:00Z",
}
PATH = "/v1/secrets/billing-token"


@pytest.mark.parametrize(
    ("text", "value"), [("tok\n", "tok"), ("tok", "tok"), ("tok\r\n", "tok"), ("a\nb\n\n", "a\nb\n")]
)
def test_a_value_comes_from_stdin_without_the_end_of_its_last_line(
    text: str, value: str, run: Run, api: ScriptedApi
) -> None:
    api.on("PUT", PATH, SECRET)
    result = run("secret", "set", "billing-token", text=text)
    assert (result.exit_code, api.last.json) == (0, {"value": value})
    assert result.stdout == "secret billing-token is at revision 2\n"
    assert "tok" not in result.stderr


def test_a_value_comes_from_a_file_to_the_letter(run: Run, api: ScriptedApi, tmp_path: Path) -> None:
    file = tmp_path / "pem"
    file.write_text("-----\nabc\n")
    api.on("PUT", PATH, SECRET)
    result = run("secret", "set", "billing-token", "--from-file", str(file), "--json")
    assert (json.loads(result.stdout), api.last.json) == (SECRET, {"value": "-----\nabc\n"})


def test_a_person_is_asked_for_the_value_and_does_not_see_it(
    run: Run, api: ScriptedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return "typed"

    monkeypatch.setattr("getpass.getpass", answer)
    monkeypatch.setattr(Screen, "is_interactive", True)
    api.on("PUT", PATH, SECRET)
    assert run("secret", "set", "billing-token").exit_code == 0
    assert (asked, api.last.json) == (["Value of billing-token: "], {"value": "typed"})


def test_no_value_and_no_file_are_usage_errors_and_an_argument_is_not_taken(
    run: Run, api: ScriptedApi
) -> None:
    for arguments, text in (
        (["billing-token"], ""),
        (["billing-token"], "\n"),
        (["billing-token", "--from-file", "/nowhere/pem"], ""),
        (["billing-token", "the-value"], "x"),
    ):
        assert run("secret", "set", *arguments, text=text).exit_code == 2
    assert api.requests == []


def test_a_header_of_a_job_is_given_a_secret(run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/jobs", {"name": "job", "id": "1", "next_fire_at": None})
    options = ("--http", "https://example.com", "-H", "X-A=b", "--secret-header", "X-Key=key/one")
    run("job", "create", "job", *options, "--secret-header", "Authorization: Bearer billing-token")
    assert api.last.json["target"]["http"]["headers"] == {
        "X-A": "b",
        "X-Key": {"secret": "key/one"},
        "Authorization": {"secret": "billing-token", "prefix": "Bearer "},
    }
    result = run("job", "create", "job", "--handler", "f", "--secret-header", "X=y")
    assert (result.exit_code, "--secret-header goes with --http" in result.stderr) == (2, True)


def test_secrets_are_listed_and_shown(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/secrets", {"items": [SECRET], "next_cursor": None})
    assert "billing-token         2" in run("secret", "list", COLUMNS="200").stdout
    api.on("GET", PATH, {**SECRET, "jobs": 7, "named_by": ["a", "b", "c", "d", "e"]})
    shown = run("secret", "show", "billing-token").stdout
    assert "a, b, c, d, e and 2 more" in shown
    assert "da4481ac9c2e044d" in shown
    assert json.loads(run("secret", "show", "billing-token", "--json").stdout)["jobs"] == 7


def test_a_secret_is_deleted_and_by_force_only_if_that_is_asked_for(run: Run, api: ScriptedApi) -> None:
    api.on("DELETE", PATH, {"deleted": True})
    assert run("secret", "delete", "billing-token", "--yes").stdout == "deleted billing-token\n"
    assert api.last.query == {}
    assert json.loads(run("secret", "delete", "billing-token", "--force", "--json").stdout) == {
        "deleted": True
    }
    assert api.last.query == {"force": ["true"]}


def test_nothing_is_deleted_where_somebody_says_no(
    run: Run, api: ScriptedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Screen, "is_interactive", True)
    result = run("secret", "delete", "billing-token", text="n\n")
    assert (result.exit_code, api.requests) == (1, [])


def test_keys_are_listed_with_what_they_are_good_for(run: Run, api: ScriptedApi) -> None:
    items = [
        {"id": "aaaa", "is_first": True, "is_known": True, "secrets": 3},
        {"id": "bbbb", "is_first": False, "is_known": True, "secrets": 0},
        {"id": "cccc", "is_first": False, "is_known": False, "secrets": 1},
    ]
    api.on("GET", "/v1/secret-keys", {"items": items})
    lines = [line.split() for line in run("secret", "keys").stdout.splitlines()]
    assert lines[1:] == [["aaaa", "first", "3"], ["bbbb", "known", "0"], ["cccc", "missing", "1"]]
    assert json.loads(run("secret", "keys", "--json").stdout) == {"items": items}


def test_a_rotation_goes_on_until_all_have_been_looked_at(run: Run, api: ScriptedApi) -> None:
    lost = {"tenant_id": 2, "name": "x", "key_id": "cccc"}
    done = {"key_id": "aaaa", "rewrapped": 500, "left": 4, "unreadable": [lost], "next_cursor": "there"}
    last = {**done, "rewrapped": 3, "left": 1, "unreadable": [], "next_cursor": None}
    api.on("POST", "/v1/secret-keys/rotate", done)
    api.on("POST", "/v1/secret-keys/rotate", last)
    result = run("secret", "rotate-key")
    assert (result.exit_code, result.stdout) == (1, "503 secrets rewrapped with the key aaaa, 1 left\n")
    assert "not all could be read (1): x (key cccc); add the keys" in result.stderr
    assert [each.body for each in api.requests] == [b"", b'{"cursor": "there"}']
    api.on("POST", "/v1/secret-keys/rotate", {**last, "left": 0})
    run("secret", "rotate-key")
    result = run("secret", "rotate-key", "--json")
    assert json.loads(result.stdout) == {"key_id": "aaaa", "rewrapped": 3, "left": 0, "unreadable": []}
