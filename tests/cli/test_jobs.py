"""Commands that look at jobs and tell them what to do."""

from __future__ import annotations

import json

import pytest

from tests.cli import examples
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedApi

JOB = "/v1/jobs/name:hello"


def test_a_list_lines_up_and_says_how_long_until_the_next_fire(run: Run, api: ScriptedApi) -> None:
    api.on(
        "GET",
        "/v1/jobs",
        examples.page(examples.job(), examples.job(name="a-longer-name", next_fire_at=None)),
    )
    result = run("job", "list")
    head, first, second = result.stdout.splitlines()
    assert head.split() == ["NAME", "STATE", "SCHEDULE", "NEXT", "TARGET", "POOL", "ID"]
    assert head.index("STATE") == first.index("active") == second.index("active")
    assert "0 3 * * * Europe/Berlin" in first
    assert "(in 2h5m)" in first
    assert result.stdout == "\n".join(line.rstrip() for line in result.stdout.splitlines()) + "\n"


def test_filters_become_query_parameters(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/jobs", examples.page())
    options = (
        "--state paused --name inv --tag team=a --tag x=y=z --pool eu --target http --limit 7 --cursor c"
    )
    result = run("job", "list", *options.split())
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "none found\n")
    assert api.last.query == {
        "state": ["paused"],
        "name_prefix": ["inv"],
        "tag": ["team=a", "x=y=z"],
        "pool": ["eu"],
        "target": ["http"],
        "limit": ["7"],
        "cursor": ["c"],
    }


def test_the_rest_of_a_long_list_is_announced_on_stderr(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/jobs", examples.page(examples.job(), next_cursor="more"))
    result = run("job", "list", "--limit", "1")
    assert (len(result.stdout.splitlines()), "--cursor more" in result.stderr) == (2, True)


def test_all_pages_make_one_json_document(run: Run, api: ScriptedApi) -> None:
    api.on(
        "GET", "/v1/jobs", examples.page(examples.job(name="a"), examples.job(name="ü"), next_cursor="more")
    )
    api.on("GET", "/v1/jobs", examples.page(examples.job(name="c")))
    document = json.loads(run("job", "list", "--all", "--json").stdout)
    assert [job["name"] for job in document["items"]] == ["a", "ü", "c"]
    assert document["next_cursor"] is None


def test_an_empty_list_is_json_too(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/jobs", examples.page())
    assert json.loads(run("job", "list", "--json").stdout) == {"items": [], "next_cursor": None}


def test_show_tells_the_definition_and_the_latest_executions(run: Run, api: ScriptedApi) -> None:
    pause = {"since": examples.moment(), "until": examples.moment(), "note": "audit"}
    api.on("GET", JOB, examples.job(state="paused", pause=pause, latest_executions=[examples.execution()]))
    shown = run("job", "show", "hello").stdout
    for part in (
        "POST https://example.com/run",
        '{"range": "yesterday"}',
        "3 times, exponential",
        "audit",
        "12ms",
    ):
        assert part in shown
    assert "description" not in shown


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        (
            {"schedule": {"cron": "0 3 * * *", "timezone": "Asia/Tokyo"}, "timezone": None},
            "0 3 * * * Asia/Tokyo",
        ),
        ({"schedule": {"every": "15m"}, "timezone": None}, "every 15m"),
        ({"schedule": None}, "(only when triggered)"),
        ({"target": "https://x.example"}, "POST https://x.example"),
        ({"target": {"handler": {"name": "f.g"}}}, "handler f.g"),
        ({"target": {"shell": {"command": ["echo", "a b"]}}}, "shell echo a b"),
        ({"target": {"publish": {"redis": {"stream": "orders"}}}}, "publish to stream orders"),
        (
            {"target": {"publish": {"broker": "eu", "redis": {"stream": "orders"}}}},
            "publish to stream orders of eu",
        ),
        ({"target": {"grpc": {}}}, "-"),
    ],
)
def test_every_kind_of_schedule_and_target_is_shown(
    run: Run, api: ScriptedApi, fields: dict[str, object], shown: str
) -> None:
    api.on("GET", JOB, examples.job(**fields))
    assert any(line.endswith(f"  {shown}") for line in run("job", "show", "hello").stdout.splitlines())


def test_control_characters_of_others_do_not_reach_the_terminal(run: Run, api: ScriptedApi) -> None:
    api.on("GET", JOB, examples.job(description="a\x1b[31mred\u202e"))
    assert "a<1B>[31mred<202E>" in run("job", "show", "hello").stdout


def test_json_is_the_answer_of_the_api(run: Run, api: ScriptedApi) -> None:
    job = examples.job()
    api.on("GET", JOB, job)
    assert json.loads(run("job", "show", "hello", "--json").stdout) == job


def test_pause_sends_note_and_moment(run: Run, api: ScriptedApi) -> None:
    until = "2027-05-05T10:00:00Z"
    api.on("POST", f"{JOB}/pause", examples.job(pause={"since": until, "until": until, "note": "audit"}))
    result = run("job", "pause", "hello", "--note", "audit", "--until", "2027-05-05 10:00")
    assert api.last.json == {"note": "audit", "until": until}
    assert result.stdout.startswith("paused hello until 2027-05-05 10:00:00 (")


def test_a_pause_until_nonsense_is_a_usage_error(run: Run, api: ScriptedApi) -> None:
    result = run("job", "pause", "hello", "--until", "whenever")
    assert (result.exit_code, api.requests) == (2, [])
    assert "--until: 'whenever' is not a time" in result.stderr


def test_resume_fires_nothing_missed_unless_asked(run: Run, api: ScriptedApi) -> None:
    api.on("POST", f"{JOB}/resume", examples.job())
    assert "fires next at" in run("job", "resume", "hello").stdout
    run("job", "resume", "hello", "--fire-missed", "last")
    assert [request.json for request in api.requests] == [{"fire_missed": "none"}, {"fire_missed": "last"}]


def test_trigger_sends_a_payload_and_a_key(run: Run, api: ScriptedApi) -> None:
    api.on("POST", f"{JOB}/trigger", examples.execution(state="pending"), status=201)
    result = run("job", "trigger", "hello", "--payload", "-", "--overlap", text='{"n": [1, null]}')
    assert api.last.json == {"payload": {"n": [1, None]}, "overlap": "allow"}
    assert len(api.last.headers["Idempotency-Key"]) == 36
    assert examples.EXECUTION_ID in result.stdout


def test_an_idempotency_key_can_be_given(run: Run, api: ScriptedApi) -> None:
    api.on("POST", f"{JOB}/trigger", examples.execution(), status=201)
    run("job", "trigger", "hello", "--idempotency-key", "mine")
    assert api.last.headers["Idempotency-Key"] == "mine"
    assert run("job", "trigger", "hello", "--idempotency-key", "日").exit_code == 2


@pytest.mark.parametrize(("state", "code"), [("succeeded", 0), ("failed", 1), ("cancelled", 1)])
def test_trigger_waits_and_tells_by_its_exit_code(run: Run, api: ScriptedApi, state: str, code: int) -> None:
    api.on("POST", f"{JOB}/trigger", examples.execution(state="pending"), status=201)
    api.on(
        "GET",
        f"/v1/executions/{examples.EXECUTION_ID}",
        examples.execution(state=state, output="the output\n"),
    )
    result = run("job", "trigger", "hello", "--wait")
    assert (result.exit_code, result.stdout) == (code, f"{state} in 12ms\nthe output\n")


def test_what_a_triggered_execution_waits_for_is_told_once(run: Run, api: ScriptedApi) -> None:
    reason = "No worker serves the pool gpu: start one with `cronwell worker --pool gpu`."
    path = f"/v1/executions/{examples.EXECUTION_ID}"
    api.on("POST", f"{JOB}/trigger", examples.execution(state="pending"), status=201)
    for _ in range(2):
        api.on("GET", path, examples.execution(state="pending", waits_for=reason))
    api.on("GET", path, examples.execution(state="succeeded"))
    assert run("job", "trigger", "hello", "--wait").stderr.count(reason) == 1


def test_delete_without_a_terminal_does_not_ask(run: Run, api: ScriptedApi) -> None:
    api.on("DELETE", JOB, {"deleted": True})
    assert run("job", "delete", "hello").stdout == "deleted hello\n"
    assert json.loads(run("job", "delete", "hello", "--json").stdout) == {"deleted": True}


def test_upcoming_shows_the_local_time_and_the_place_in_the_window(run: Run, api: ScriptedApi) -> None:
    slots = [
        {
            "slot": "2027-03-28T01:00:00Z",
            "local": "2027-03-28T03:00:00+02:00",
            "effective_at": "2027-03-28T01:02:00Z",
            "note": "clocks have gone forward",
        }
    ]
    api.on("GET", f"{JOB}/upcoming", {"job_id": examples.JOB_ID, "timezone": "Europe/Berlin", "items": slots})
    result = run("job", "upcoming", "hello", "--count", "1")
    assert api.last.query == {"count": ["1"]}
    for part in ("Sun 2027-03-28 03:00:00 +0200", "2027-03-28 01:02:00", "clocks have gone forward"):
        assert part in result.stdout


def test_a_job_without_slots_says_so(run: Run, api: ScriptedApi) -> None:
    api.on("GET", f"{JOB}/upcoming", {"job_id": examples.JOB_ID, "timezone": "UTC", "items": []})
    assert run("job", "upcoming", "hello").stderr == "it has no coming slots\n"


@pytest.mark.parametrize(
    ("schedule", "shown"),
    [
        ({"cron": "0 3 * * *", "only": "days"}, "0 3 * * *; only in days"),
        ({"rrule": "FREQ=DAILY", "exclude": ["a", "b"], "timezone": "UTC"}, "FREQ=DAILY UTC; not in a, b"),
        ({"any": ["0 3 * * *", {"every": "7h"}, {"at": ["x"]}]}, "0 3 * * * and 2 more"),
        ({"every": "7h"}, "every 7h"),
    ],
)
def test_a_schedule_is_shown_in_short_with_its_calendars(
    run: Run, api: ScriptedApi, schedule: dict[str, object], shown: str
) -> None:
    api.on("GET", JOB, examples.job(schedule=schedule, timezone=None))
    assert f"schedule  {shown}\n" in run("job", "show", "hello").stdout


def test_a_job_that_waits_for_a_calendar_says_so(run: Run, api: ScriptedApi) -> None:
    why = "the calendar days leaves no slot; the job goes on when it changes"
    api.on("GET", f"{JOB}/upcoming", {"timezone": "UTC", "items": [], "note": why})
    assert run("job", "upcoming", "hello").stderr == f"it has no coming slots\n{why}\n"
    api.on("GET", JOB, examples.job(warnings=[why], next_fire_at=None))
    assert f"waits     {why}" in run("job", "show", "hello").stdout


def test_history_lists_the_executions_of_one_job(run: Run, api: ScriptedApi) -> None:
    api.on(
        "GET", f"{JOB}/executions", examples.page(examples.execution(state="failed", error="boom\nat line 1"))
    )
    shown = run("job", "history", "hello").stdout
    assert ("failed" in shown, "boom" in shown, "at line 1" in shown) == (True, True, False)


def test_preview_shows_words_times_and_warnings(run: Run, api: ScriptedApi) -> None:
    slot = {
        "slot": "2027-03-28T01:00:00Z",
        "local": "2027-03-28T03:00:00+02:00",
        "effective_at": None,
        "note": None,
    }
    answer = {"slots": [slot], "description": "At 03:00 every day", "warnings": ["busy hour"]}
    api.on("POST", "/v1/schedules/preview", answer)
    options = ["--zone", "Europe/Berlin", "--count", "1", "--after", "2027-03-27T00:00:00Z", "--window", "5m"]
    result = run("preview", "0 3 * * *", *options)
    assert api.last.json == {
        "schedule": "0 3 * * *",
        "timezone": "Europe/Berlin",
        "count": 1,
        "after": "2027-03-27T00:00:00Z",
        "window": "5m",
    }
    description, head, *_ = result.stdout.splitlines()
    assert description == "At 03:00 every day"
    assert head.split() == ["IN", "ITS", "ZONE", "UTC", "WHEN"], "columns that say nothing are left out"
    assert result.stderr == "warning: busy hour\n"
    assert json.loads(run("preview", "0 3 * * *", "--json").stdout) == answer
    assert run("preview", "0 3 * * *", "--after", "x").exit_code == 2
