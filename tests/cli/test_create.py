"""`job create`: one job from options and files, many from a file of lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli import examples
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedApi


def _result(index: int, **fields: Any) -> bytes:
    return json.dumps({"index": index, "status": "created", "id": examples.JOB_ID, **fields}).encode() + b"\n"


def _refused(index: int, **problem: Any) -> bytes:
    return _result(index, status="error", id=None, problem=examples.problem(422, "Not valid", **problem))


def test_options_make_the_definition(run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/jobs", examples.job(warnings=["busy hour"]), status=201)
    result = run(
        *("job", "create", "hello", "--schedule", "0  3 * * *", "--zone", "Europe/Berlin", "--window", "5m"),
        *("--http", "https://example.com/run", "--method", "put", "--header", "X-A=b:c", "-H", "X-B: d=e"),
        *("--callback", "2h"),
        *(
            "--payload",
            '{"a": 1}',
            "--retry",
            "0",
            "--backoff",
            "fixed",
            "--retry-delay",
            "5s",
            "--timeout",
            "10m",
        ),
        *(
            "--priority",
            "high",
            "--pool",
            "eu",
            "--overlap",
            "skip",
            "--max-running",
            "2",
            "--catch-up",
            "all",
        ),
        *("--tag", "team=a", "--tag", "url=x=y", "--description", "what for"),
    )
    assert result.exit_code == 0
    assert api.last.json == {
        "name": "hello",
        "schedule": "0  3 * * *",
        "timezone": "Europe/Berlin",
        "window": "5m",
        "description": "what for",
        "target": {
            "http": {
                "url": "https://example.com/run",
                "method": "PUT",
                "headers": {"X-A": "b:c", "X-B": "d=e"},
                "callback": {"deadline": "2h"},
            }
        },
        "retry": {"max_attempts": 1, "backoff": "fixed", "initial_delay": "5s"},
        "timeout": "10m",
        "priority": "high",
        "pool": "eu",
        "overlap": "skip",
        "max_running": 2,
        "catch_up": "all",
        "tags": {"team": "a", "url": "x=y"},
        "payload": {"a": 1},
    }
    assert "Idempotency-Key" in api.last.headers
    assert result.stdout.startswith(f"created hello ({examples.JOB_ID})\nfires next at ")
    assert result.stderr == "warning: busy hour\n"


def test_a_job_without_a_schedule_says_how_to_run_it(run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/jobs", examples.job(schedule=None, next_fire_at=None), status=201)
    result = run("job", "create", "hello", "--handler", "tasks.report")
    assert api.last.json == {"name": "hello", "target": {"handler": {"name": "tasks.report"}}}
    assert "cronwell job trigger hello" in result.stdout


def test_shell_is_a_target(run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/jobs", examples.job(), status=201)
    result = run("job", "create", "hello", "--shell", "echo 'a b'", "--json")
    assert api.last.json["target"] == {"shell": {"command": "echo 'a b'"}}
    assert json.loads(result.stdout)["id"] == examples.JOB_ID


def test_a_stream_is_a_target(run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/jobs", examples.job(), status=201)
    run("job", "create", "hello", "--stream", "orders")
    assert api.last.json["target"] == {"publish": {"redis": {"stream": "orders"}}}
    run("job", "create", "hello", "--stream", "orders", "--broker", "eu", "--maxlen", "1000")
    wanted = {"publish": {"broker": "eu", "redis": {"stream": "orders", "maxlen": 1000}}}
    assert api.last.json["target"] == wanted
    definition = json.dumps({"name": "hello", "target": wanted})
    run("job", "create", "--from-file", "-", "--maxlen", "5", text=definition)
    changed = {"publish": {"broker": "eu", "redis": {"stream": "orders", "maxlen": 5}}}
    assert api.last.json["target"] == changed


def test_a_file_is_changed_by_the_options(run: Run, api: ScriptedApi, tmp_path: Path) -> None:
    api.on("POST", "/v1/jobs", examples.job(), status=201)
    file = tmp_path / "job.json"
    file.write_text(
        json.dumps(
            {
                "name": "from-file",
                "schedule": "@hourly",
                "target": "https://example.com",
                "tags": {"a": "1"},
                "retry": {"max_attempts": 9, "jitter": 0},
            }
        )
    )
    run("job", "create", "--from-file", str(file), "--method", "GET", "--tag", "b=2", "--retry", "1")
    assert api.last.json == {
        "name": "from-file",
        "schedule": "@hourly",
        "target": {"http": {"url": "https://example.com", "method": "GET"}},
        "tags": {"a": "1", "b": "2"},
        "retry": {"max_attempts": 2, "jitter": 0},
    }
    run("job", "create", "other", "--from-file", "-", "--handler", "f", text=file.read_text())
    assert (api.last.json["name"], api.last.json["target"]) == ("other", {"handler": {"name": "f"}})


def test_a_payload_may_come_from_a_file(run: Run, api: ScriptedApi, tmp_path: Path) -> None:
    api.on("POST", "/v1/jobs", examples.job(), status=201)
    (tmp_path / "payload.json").write_text('["ü"]', encoding="utf-8")
    run("job", "create", "hello", "--handler", "f", "--payload", f"@{tmp_path}/payload.json")
    assert api.last.json["payload"] == ["ü"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--handler f", "give the job a name"),
        ("hello", "say what the job calls"),
        ("hello --http https://x --shell ls", "give one target, not --http and --shell"),
        ("hello --handler f --header a=b", "--header goes with --http"),
        ("hello --handler f --header nothing", "--header goes with --http"),
        ("hello --handler f --stream x", "give one target, not --handler and --stream"),
        ("hello --http https://x --broker eu", "--broker goes with --stream"),
        ("hello --shell ls --maxlen 5", "--maxlen goes with --stream"),
        ("hello --stream x --method GET", "--method goes with --http"),
        ("hello --stream x --maxlen 0", "--maxlen"),
        ("hello --handler f --callback 2h", "--callback goes with --http"),
        ("hello --http https://x --header nothing", "write it as name=value"),
        ("hello --handler f --tag =x", "write it as name=value"),
        ("hello --handler f --payload {", "--payload is not JSON: expecting property name"),
        ("hello --handler f --payload NaN", "NaN is not a JSON number"),
        ("hello --handler f --payload @/no/such/file", "cannot read /no/such/file: No such file"),
        ("hello --from-file - --payload -", "cannot both read stdin"),
        ("hello --handler f --retry -1", "--retry"),
        ("hello --handler f --priority urgent", "--priority"),
        ("hello --batch -", "give no name"),
        ("--batch - --pool x", "no other option"),
        ("--batch /no/such/file", "cannot read /no/such/file"),
    ],
)
def test_a_wrong_use_is_told_and_nothing_is_sent(
    run: Run, api: ScriptedApi, arguments: str, said: str
) -> None:
    result = run("job", "create", *arguments.split())
    assert (result.exit_code, api.requests) == (2, [])
    assert said in result.stderr


def test_deep_nesting_is_refused_in_words(run: Run) -> None:
    result = run("job", "create", "x", "--handler", "f", "--payload", "-", text="[" * 200_000)
    assert (result.exit_code, "nested too deeply" in result.stderr) == (2, True)


@pytest.mark.parametrize("content", [b"[1]", b"\xff\xfe"])
def test_a_file_that_is_no_definition_is_refused(run: Run, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    assert run("job", "create", "--from-file", str(tmp_path / "x")).exit_code == 2


def test_a_batch_sends_every_line_and_lists_what_was_refused(
    run: Run, api: ScriptedApi, tmp_path: Path
) -> None:
    wrong = {"field": "schedule", "message": "'61' is not an hour", "column": 3}
    answer = _result(0) + _refused(1, errors=[wrong]) + _refused(2, detail="this is not JSON")
    api.on("POST", "/v1/jobs:batch", answer, content_type="application/x-ndjson")
    file = tmp_path / "jobs.ndjson"
    file.write_bytes(b'{"name": "a"}\n\n  \n{"name": "b", "schedule": "0 61 * * *"}\n{nope')
    result = run("job", "create", "--batch", str(file))
    assert api.last.body == b'{"name": "a"}\n{"name": "b", "schedule": "0 61 * * *"}\n{nope\n'
    assert api.last.headers["Content-Type"] == "application/x-ndjson"
    assert result.exit_code == 1
    assert result.stdout.startswith("created 1 of 3 jobs in ")
    assert result.stderr.splitlines() == [
        "line 4: Not valid",
        "  schedule: '61' is not an hour",
        "      0 61 * * *",
        "        ^",
        "line 5: Not valid: this is not JSON",
    ]


def test_a_large_batch_goes_in_parts_with_its_own_line_numbers(run: Run, api: ScriptedApi) -> None:
    part = b"".join(_result(index) for index in range(1000))
    api.on("POST", "/v1/jobs:batch", part, content_type="application/x-ndjson")
    api.on("POST", "/v1/jobs:batch", _result(0) + _refused(1), content_type="application/x-ndjson")
    result = run("job", "create", "--batch", "-", text="{}\n" * 1002)
    assert [request.body.count(b"\n") for request in api.requests] == [1000, 2]
    assert (result.exit_code, "line 1002: Not valid" in result.stderr) == (1, True)
    assert "created 1001 of 1002 jobs" in result.stdout


def test_a_batch_in_json_writes_the_result_of_every_line(run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/jobs:batch", _result(0) + _result(1), content_type="application/x-ndjson")
    result = run("job", "create", "--batch", "-", "--json", text="\n{}\n{}\n")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert (result.exit_code, [line["line"] for line in lines]) == (0, [2, 3])


def test_only_the_first_of_many_errors_are_listed(run: Run, api: ScriptedApi) -> None:
    answer = b"".join(_refused(index) for index in range(60))
    api.on("POST", "/v1/jobs:batch", answer, content_type="application/x-ndjson")
    result = run("job", "create", "--batch", "-", text="{}\n" * 60)
    assert len(result.stderr.splitlines()) == 51
    assert "… and 10 more" in result.stderr


def test_a_batch_that_breaks_off_says_what_is_known(run: Run, api: ScriptedApi) -> None:
    part = b"".join(_result(index) for index in range(1000))
    api.on("POST", "/v1/jobs:batch", part, content_type="application/x-ndjson")
    api.on("POST", "/v1/jobs:batch", is_lost=True)
    result = run("job", "create", "--batch", "-", text="{}\n" * 1500)
    assert result.exit_code == 5
    assert "1000 jobs were created. Lines 1001 to 1500 may or may not have been" in result.stderr


def test_a_batch_that_reaches_nobody_says_that_nothing_was_made(run: Run, api: ScriptedApi) -> None:
    result = run("--url", "http://127.0.0.1:1", "job", "create", "--batch", "-", text="{}\n")
    assert (result.exit_code, "0 jobs were created: up to line 0" in result.stderr) == (5, True)


def test_results_that_are_missing_are_a_failure(run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/jobs:batch", _result(0), content_type="application/x-ndjson")
    result = run("job", "create", "--batch", "-", text="{}\n{}\n{}\n")
    assert (result.exit_code, "no result for lines 2 to 3" in result.stderr) == (1, True)


def test_a_batch_that_is_refused_as_a_whole_says_why(run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/jobs:batch", examples.problem(413, "Too large"), status=413)
    result = run("job", "create", "--batch", "-", text="{}\n")
    assert (result.exit_code, result.stderr) == (1, "Error: Too large\n")
