"""Commands that decide about one coming slot of a job."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from cronwell.cli import times
from tests.cli import examples
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedApi

SLOT = "2027-05-05T03:00"
PATH = f"/v1/jobs/name:hello/overrides/{SLOT}"


def _override(**fields: Any) -> dict[str, Any]:
    return {
        "slot": examples.moment(timedelta(hours=3, minutes=5, seconds=30)),
        "local": "2027-05-05T03:00:00+02:00",
        "action": "skip",
        "to": None,
        "payload": None,
        "note": "books are closed",
        "author": "ana",
        "expires_at": None,
        "created_at": examples.moment(),
        "applied_at": None,
        "state": "waiting",
    } | fields


def test_a_skip_sends_who_and_why_and_says_what_becomes_of_the_slot(run: Run, api: ScriptedApi) -> None:
    api.on("PUT", PATH, _override())
    result = run("job", "skip", "hello", SLOT, "--note", "books are closed", "--author", "ana")
    assert result.exit_code == 0, result.stderr
    assert api.last.json == {"action": "skip", "note": "books are closed", "author": "ana"}
    assert result.stdout.startswith("hello: the slot ")
    assert result.stdout.endswith("(in 3h5m) is skipped\n")


def test_the_author_is_the_user_unless_another_is_named(run: Run, api: ScriptedApi) -> None:
    api.on("PUT", PATH, _override())
    run("job", "skip", "hello", SLOT, LOGNAME="carla")
    assert api.last.json == {"action": "skip", "author": "carla"}


def test_an_expiry_is_a_time_or_a_duration(run: Run, api: ScriptedApi) -> None:
    api.on("PUT", PATH, _override())
    run("job", "skip", "hello", SLOT, "--author", "ana", "--until", "2027-05-01T00:00:00Z")
    assert api.last.json["expires_at"] == "2027-05-01T00:00:00Z"
    result = run("job", "skip", "hello", SLOT, "--until", "someday")
    assert (result.exit_code, "--until" in result.stderr) == (2, True)


def test_a_move_sends_a_wall_clock_time_as_it_is_and_a_duration_from_now(run: Run, api: ScriptedApi) -> None:
    api.on("PUT", PATH, _override(action="move", to=examples.moment(timedelta(hours=5, seconds=30))))
    result = run("job", "move", "hello", SLOT, "2027-05-05T05:00", "--author", "ana", "--payload", '{"n": 1}')
    assert result.exit_code == 0, result.stderr
    assert api.last.json == {
        "action": "move",
        "to": "2027-05-05T05:00",
        "payload": {"n": 1},
        "author": "ana",
    }
    assert "starts at" in result.stdout
    assert "(in 5h)" in result.stdout
    run("job", "move", "hello", SLOT, "2h")
    sent = times.read_moment(api.last.json["to"])
    ahead = sent - times.read_moment(examples.moment())
    assert timedelta(minutes=119) < ahead <= timedelta(hours=2)


def test_another_payload_is_read_as_json(run: Run, api: ScriptedApi) -> None:
    api.on("PUT", PATH, _override(action="payload", payload={"n": 2}))
    result = run("job", "override", "set", "hello", SLOT, "-p", "-", "--author", "ana", text='{"n": 2}')
    assert result.exit_code == 0, result.stderr
    assert api.last.json == {"action": "payload", "payload": {"n": 2}, "author": "ana"}
    assert 'runs with the payload {"n": 2}' in result.stdout
    assert run("job", "override", "set", "hello", SLOT, "-p", "{").exit_code == 2


def test_a_list_shows_who_decided_what(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/jobs/name:hello/overrides", examples.page(_override()))
    head, row = run("job", "override", "list", "hello").stdout.splitlines()
    assert head.split() == ["SLOT", "ACTION", "STATE", "BY", "NOTE"]
    assert "(in 3h5m)" in row
    assert row.split()[-6:] == ["skip", "waiting", "ana", "books", "are", "closed"]
    document = json.loads(run("job", "override", "list", "hello", "--json").stdout)
    assert document["items"][0]["author"] == "ana"


def test_a_removal_says_what_the_slot_is_now(run: Run, api: ScriptedApi) -> None:
    api.on("DELETE", PATH, {"deleted": True})
    assert run("job", "override", "remove", "hello", SLOT).stdout == (
        f"hello has its slot {SLOT} as its schedule says\n"
    )
    assert json.loads(run("job", "override", "remove", "hello", SLOT, "--json").stdout) == {"deleted": True}


@pytest.mark.parametrize("command", [("skip",), ("override", "remove")])
def test_a_refusal_is_told_with_its_reason(run: Run, api: ScriptedApi, command: tuple[str, ...]) -> None:
    problem = {"title": "Not possible", "status": 409, "detail": "a worker has it already"}
    for method in ("PUT", "DELETE"):
        api.on(method, PATH, problem, status=409)
    result = run("job", *command, "hello", SLOT)
    assert result.exit_code != 0
    assert "a worker has it already" in result.stderr


def test_a_slot_with_an_offset_is_kept_whole_in_the_address(run: Run, api: ScriptedApi) -> None:
    api.on("PUT", "/v1/jobs/name:hello/overrides/2027-05-05T03:00:00%2B02:00", _override())
    result = run("job", "skip", "hello", "2027-05-05T03:00:00+02:00", "--json")
    assert json.loads(result.stdout)["action"] == "skip"


def test_coming_slots_say_what_was_decided_about_them(run: Run, api: ScriptedApi) -> None:
    slot: dict[str, Any] = {
        "slot": examples.moment(timedelta(hours=3)),
        "local": "2027-05-05T03:00:00+02:00",
        "note": None,
    }
    marks: list[dict[str, Any]] = [
        {"action": "skip", "to": None, "note": "books are closed", "author": "ana"},
        {"action": "move", "to": examples.moment(), "note": None, "author": None},
    ]
    items = [slot | {"effective_at": slot["slot"], "override": mark} for mark in marks]
    api.on("GET", "/v1/jobs/name:hello/upcoming", {"items": items})
    shown = run("job", "upcoming", "hello").stdout
    assert "skipped by ana: books are closed" in shown
    assert "moved" in shown
