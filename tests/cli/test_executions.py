"""Commands about executions and dead letters."""

from __future__ import annotations

import json

import pytest

from tests.cli import examples
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedApi

EXECUTION = f"/v1/executions/{examples.EXECUTION_ID}"


def test_filters_of_executions_become_query_parameters(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/executions", examples.page(examples.execution()))
    options = "--job team/x --state failed --state running --worker w --text boom --limit 3"
    result = run(
        "execution", "list", *options.split(), "--from", "2027-05-05T10:00:00Z", "--to", "2027-05-06 00:00"
    )
    assert result.exit_code == 0
    assert api.last.query == {
        "job": ["name:team/x"],
        "state": ["failed", "running"],
        "from": ["2027-05-05T10:00:00Z"],
        "to": ["2027-05-06T00:00:00Z"],
        "worker": ["w"],
        "q": ["boom"],
        "limit": ["3"],
    }


def test_a_job_may_be_named_by_its_id_in_a_filter(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/executions", examples.page())
    run("execution", "list", "--job", examples.JOB_ID)
    assert api.last.query["job"] == [examples.JOB_ID]


def test_a_wrong_time_is_a_usage_error(run: Run, api: ScriptedApi) -> None:
    result = run("execution", "list", "--from", "yesterdayish")
    assert (result.exit_code, api.requests) == (2, [])


def test_an_execution_shows_attempts_timeline_and_output(run: Run, api: ScriptedApi) -> None:
    attempt = {
        "attempt": 1,
        "fence": 1,
        "result": "timed_out",
        "started_at": "2026-11-15T20:30:35Z",
        "finished_at": "2026-11-15T20:30:36.500000Z",
        "error": "took too long",
    }
    found = examples.execution(
        payload={"a": 1},
        progress=0.5,
        checkpoint={"row": 500},
        callback_until="2026-11-15T22:30:35Z",
        attempts=[attempt],
        timeline=[{"at": "2026-11-15T20:30:35Z", "event": "claimed"}],
        output="line 1\nline 2\x1b[2J\n",
        output_truncated=True,
    )
    api.on("GET", EXECUTION, found)
    shown = run("execution", "show", examples.EXECUTION_ID).stdout
    told = ("timed_out", "1.50s", "took too long", "2026-11-15 20:30:35  claimed", '{"a": 1}', "0.5")
    for part in (*told, '{"row": 500}', "waited for until 2026-11-15 22:30:35"):
        assert part in shown
    assert shown.endswith("\noutput (cut: there was more)\nline 1\nline 2<1B>[2J\n")
    assert json.loads(run("execution", "show", examples.EXECUTION_ID, "--json").stdout) == found


@pytest.mark.parametrize(("state", "said"), [("cancelled", "cancelled "), ("running", "asked ")])
def test_cancel_tells_whether_it_has_ended(run: Run, api: ScriptedApi, state: str, said: str) -> None:
    api.on("POST", f"{EXECUTION}/cancel", examples.execution(state=state), status=202)
    assert run("execution", "cancel", examples.EXECUTION_ID).stdout.startswith(said + examples.EXECUTION_ID)
    assert json.loads(run("execution", "cancel", examples.EXECUTION_ID, "--json").stdout)["state"] == state


def test_retry_tells_the_new_state(run: Run, api: ScriptedApi) -> None:
    api.on("POST", f"{EXECUTION}/retry", examples.execution(state="pending"), status=202)
    assert (
        run("execution", "retry", examples.EXECUTION_ID).stdout
        == f"retrying {examples.EXECUTION_ID}: pending\n"
    )
    assert json.loads(run("execution", "retry", examples.EXECUTION_ID, "--json").stdout)["state"] == "pending"


def test_an_execution_that_cannot_be_retried_is_a_conflict(run: Run, api: ScriptedApi) -> None:
    api.on("POST", f"{EXECUTION}/retry", examples.problem(409, "Not possible", "it is running"), status=409)
    assert run("execution", "retry", examples.EXECUTION_ID).exit_code == 4


def test_dead_letters_are_listed_by_filter(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/dead-letters", examples.page(examples.execution(state="failed", error="boom")))
    result = run("dead-letters", "list", "--job", "hello", "--text", "boom")
    assert "boom" in result.stdout
    assert api.last.query == {"job": ["name:hello"], "q": ["boom"], "limit": ["50"]}


def test_redrive_sends_the_filter_and_the_rate(run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/dead-letters/redrive", {"count": 250})
    options = [
        "--job",
        "hello",
        "--from",
        "2027-05-05T10:00:00Z",
        "--text",
        "boom",
        "--rate",
        "50",
        "--limit",
        "300",
    ]
    result = run("dead-letters", "redrive", *options)
    assert api.last.json == {
        "job": "name:hello",
        "from": "2027-05-05T10:00:00Z",
        "q": "boom",
        "rate": 50.0,
        "limit": 300,
    }
    assert result.stdout == "redriven: 250, over 5 s\n"
    assert json.loads(run("dead-letters", "redrive", "--json").stdout) == {"count": 250}


def test_redrive_goes_on_while_the_server_has_more_than_one_request_may_take(
    run: Run, api: ScriptedApi
) -> None:
    api.on("POST", "/v1/dead-letters/redrive", {"count": 100_000})
    api.on("POST", "/v1/dead-letters/redrive", {"count": 5})
    result = run("dead-letters", "redrive", "--rate", "100000000", "--limit", "150000")
    assert [request.json["limit"] for request in api.requests] == [100_000, 50_000]
    assert result.stdout == "redriven: 100005\n"


def test_redrive_takes_ids(run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/dead-letters/redrive", {"count": 0})
    result = run("dead-letters", "redrive", "a", "b")
    assert api.last.json["ids"] == ["a", "b"]
    assert result.stdout == "no dead letter matches\n"


def test_a_dead_letter_is_dismissed(run: Run, api: ScriptedApi) -> None:
    api.on("POST", f"/v1/dead-letters/{examples.EXECUTION_ID}/dismiss", examples.execution(state="failed"))
    assert (
        run("dead-letters", "dismiss", examples.EXECUTION_ID).stdout == f"dismissed {examples.EXECUTION_ID}\n"
    )
    assert (
        json.loads(run("dead-letters", "dismiss", examples.EXECUTION_ID, "--json").stdout)["state"]
        == "failed"
    )


def test_the_cluster_shows_pools_and_workers(run: Run, api: ScriptedApi) -> None:
    worker = {
        "id": "f07e62e2-c1fb-4c64-be9a-7de2ebeb7c95",
        "name": "vm:1",
        "state": "active",
        "version": "0.1.0",
        "pools": ["default", "eu"],
        "handlers": ["f"],
        "concurrency": 1000,
        "running": 3,
        "started_at": examples.moment(),
        "heartbeat_at": examples.moment(),
    }
    pool = {"name": "eu", "workers": 1, "depth": 7, "oldest_due_at": None}
    found = {
        "version": "0.1.0",
        "now": examples.moment(),
        "lag": {"p99": 1},
        "workers": [worker],
        "pools": [pool],
    }
    api.on("GET", "/v1/cluster", found)
    shown = run("cluster").stdout
    for part in ("default,eu", "3/1000", '{"p99": 1}', "WAITING"):
        assert part in shown
    assert json.loads(run("cluster", "--json").stdout) == found


def test_a_cluster_without_workers_says_how_to_start_one(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/cluster", {"version": "0.1.0", "workers": [], "pools": []})
    assert "cronwell worker" in run("cluster").stderr
