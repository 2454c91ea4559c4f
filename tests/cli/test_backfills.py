"""Backfills on the command line: what would be run, starting it, waiting for it, telling it what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cronwell.cli import backfills
from tests.cli import examples
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedApi

ID = "019df802-6600-7264-b679-983babba7339"
PATH = "/v1/jobs/name:hello/backfills"


def plan(**fields: Any) -> dict[str, Any]:
    return {
        "from": "2027-05-01T00:00:00Z",
        "to": "2027-05-02T00:00:00Z",
        "job_id": examples.JOB_ID,
        "job": "hello",
        "count": 24,
        "first": "2027-05-01T00:00:00Z",
        "last": "2027-05-01T23:00:00Z",
        "already": 3,
        "load_per_minute": 24.0,
        "takes": "12s",
        "warnings": ["the job is paused; a backfill of it runs all the same"],
    } | fields


def backfill(**fields: Any) -> dict[str, Any]:
    return {
        "from": "2027-05-01T00:00:00Z",
        "to": "2027-05-02T00:00:00Z",
        "id": ID,
        "job_id": examples.JOB_ID,
        "job": "hello",
        "state": "running",
        "definition": "current",
        "order": "oldest",
        "rate": "10/s",
        "concurrency": 1,
        "slots": 24,
        "staged": 10,
        "passed_over": 2,
        "succeeded": 8,
        "failed": 1,
        "cancelled": 0,
        "unfinished": 1,
        "remaining": 12,
        "reached": "2027-05-01T11:00:00Z",
        "eta": examples.moment(),
        "payload": None,
        "note": "the feed was empty",
        "created_at": examples.moment(),
        "updated_at": examples.moment(),
        "finished_at": None,
        "warnings": [],
    } | fields


def over(**fields: Any) -> dict[str, Any]:
    whole = {"staged": 22, "succeeded": 22, "failed": 0, "unfinished": 0, "remaining": 0, "eta": None}
    return backfill(state="finished", finished_at=examples.moment(), **(whole | fields))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfills, "WAIT_SECONDS", 0.0)


def test_a_dry_run_shows_the_range_and_starts_nothing(run: Run, api: ScriptedApi) -> None:
    api.on("POST", PATH, plan())
    result = run("job", "backfill", "hello", "--from", "2027-05-01", "--to", "2027-05-02", "--dry-run")
    assert result.exit_code == 0
    assert {"slots", "24", "first", "last", "12s"} <= set(result.stdout.split())
    assert "up to 24 executions a minute" in result.stdout
    assert "warning: the job is paused" in result.stderr
    assert api.last.json == {
        "from": "2027-05-01T00:00:00Z",
        "to": "2027-05-02T00:00:00Z",
        "order": "oldest",
        "rate": "10/s",
        "concurrency": 1,
        "definition": "current",
        "dry_run": True,
    }


def test_it_is_started_with_what_was_asked_for(run: Run, api: ScriptedApi) -> None:
    api.on("POST", PATH, backfill(), status=201)
    result = run(
        *("job", "backfill", "hello", "--from", "7d", "--order", "newest", "--rate", "100/m", "-c", "5"),
        *("--definition", "then", "--payload", '{"again": true}', "--note", "why", "--idempotency-key", "k"),
    )
    assert (result.exit_code, result.stdout) == (0, f"backfill {ID} of hello: 24 slots\n")
    [request] = api.requests
    sent = request.json
    assert sent.pop("from").endswith("Z")
    assert sent == {
        "order": "newest",
        "rate": "100/m",
        "concurrency": 5,
        "definition": "then",
        "payload": {"again": True},
        "note": "why",
    }
    assert request.headers["Idempotency-Key"] == "k"


def test_waiting_ends_when_the_last_execution_has_ended(run: Run, api: ScriptedApi) -> None:
    api.on("POST", PATH, backfill(), status=201)
    api.on("GET", f"/v1/backfills/{ID}", backfill())
    api.on("GET", f"/v1/backfills/{ID}", over(staged=22, unfinished=1))
    api.on("GET", f"/v1/backfills/{ID}", over())
    result = run("job", "backfill", "hello", "--from", "7d", "--wait")
    assert (result.exit_code, result.stdout) == (0, "finished: 24 of 24 done, 2 passed over\n")
    assert len(api.requests) == 4


@pytest.mark.parametrize("ending", [{"failed": 1, "succeeded": 21}, {"state": "cancelled"}, {"cancelled": 2}])
def test_waiting_for_what_does_not_all_succeed_is_a_failure(
    run: Run, api: ScriptedApi, ending: dict[str, Any]
) -> None:
    api.on("GET", f"/v1/backfills/{ID}", over() | ending)
    assert run("backfill", "show", ID, "--wait").exit_code == 1


def test_they_are_listed_and_shown(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/backfills", examples.page(backfill()))
    api.on("GET", f"/v1/backfills/{ID}", backfill(payload={"n": 1}))
    listed = run("backfill", "list", "--job", "hello", "--state", "running")
    assert listed.exit_code == 0
    assert {ID, "running", "hello", "11/24"} <= set(listed.stdout.split())
    assert api.last.query == {"job": ["name:hello"], "state": ["running"], "limit": ["50"]}
    shown = run("backfill", "show", ID)
    assert "11 of 24 done, 1 failed, 2 passed over, 1 under way" in shown.stdout
    assert "the feed was empty" in shown.stdout
    assert json.loads(run("backfill", "show", ID, "--json").stdout)["id"] == ID


@pytest.mark.parametrize(
    ("verb", "said"), [("pause", "paused"), ("resume", "resumed"), ("cancel", "cancelled")]
)
def test_they_are_told_what_to_do(run: Run, api: ScriptedApi, verb: str, said: str) -> None:
    api.on("POST", f"/v1/backfills/{ID}/{verb}", backfill())
    result = run("backfill", verb, ID)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{said} backfill {ID} of hello: 11 of 24 done")


def test_a_wrong_option_is_told_before_anything_is_sent(run: Run, api: ScriptedApi) -> None:
    assert run("job", "backfill", "hello").exit_code == 2
    wrong = run("job", "backfill", "hello", "--from", "soon")
    assert (wrong.exit_code, "--from" in wrong.stderr) == (2, True)
    assert run("job", "backfill", "hello", "--from", "7d", "--concurrency", "0").exit_code == 2
    assert api.requests == []
