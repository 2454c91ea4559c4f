"""Commands about schedules: preview, explain, calendars."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli import examples
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedApi

PREVIEW: dict[str, Any] = {
    "slots": [
        {
            "slot": "2027-03-28T01:00:00Z",
            "local": "2027-03-28T03:00:00+02:00",
            "effective_at": "2027-03-28T01:00:00Z",
        }
    ],
    "description": "At 02:30 every day, Europe/Berlin",
    "warnings": [],
    "clock_changes": [
        {
            "at": "2027-03-28T01:00:00Z",
            "kind": "gap",
            "local_before": "2027-03-28T02:00",
            "local_after": "2027-03-28T03:00",
            "effect": "02:30 does not exist; it fires at 03:00 instead",
        }
    ],
}
CALENDAR = {
    "name": "bavaria",
    "revision": 2,
    "content": {
        "holidays": [{"country": "DE"}],
        "dates": ["2026-12-24", "2026-12-31"],
        "description": "closed",
    },
    "created_at": "2026-11-15T20:30:35Z",
    "updated_at": "2026-11-15T20:30:35Z",
    "jobs": 1,
    "timezone": "UTC",
    "coming": [{"begins": "2026-12-24T00:00", "ends": None, "why": "2026-12-24"}],
}
EXPLANATION = {
    "job_id": examples.JOB_ID,
    "at": "2027-03-28T01:00:00Z",
    "local": "2027-03-28T03:00:00+02:00",
    "verdict": "skipped",
    "reason": "overlap",
    "sentence": "The slot was skipped: an earlier execution of the job was not finished.",
    "schedule": "At 03:00 every day, Europe/Berlin",
    "previous_slot": "2027-03-27T02:00:00Z",
    "next_slot": "2027-03-29T01:00:00Z",
    "execution": {"id": examples.EXECUTION_ID},
}


def test_a_preview_tells_the_coming_changes_of_the_clock(run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/schedules/preview", PREVIEW)
    result = run("preview", "H 2 * * *", "--zone", "Europe/Berlin", "--job", "daily")
    assert result.exit_code == 0
    assert api.last.json == {
        "schedule": "H 2 * * *",
        "count": 10,
        "timezone": "Europe/Berlin",
        "job": "daily",
    }
    assert "At 02:30 every day" in result.stdout
    said = " ".join((result.stdout + result.stderr).split())
    assert "gap: at 2027-03-28T02:00 the clock shows 2027-03-28T03:00" in said


def test_a_preview_takes_an_object_as_json(run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/schedules/preview", PREVIEW)
    schedule = {"any": ["0 3 * * *", "every 5h"], "except": "0 3 * * SUN"}
    assert run("preview", json.dumps(schedule)).exit_code == 0
    assert api.last.json["schedule"] == schedule


def test_a_preview_of_broken_json_is_a_usage_error(run: Run, api: ScriptedApi) -> None:
    result = run("preview", '{"cron": ')
    assert (result.exit_code, api.requests) == (2, [])
    assert "is not JSON" in result.stderr


def test_explain_answers_in_a_sentence_and_in_fields(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/jobs/name:daily/explain", EXPLANATION)
    result = run("explain", "daily", "2027-03-28T03:00")
    assert result.exit_code == 0
    assert api.last.query == {"at": ["2027-03-28T03:00"]}
    assert result.stdout.startswith("The slot was skipped: an earlier execution")
    said = result.stdout + result.stderr
    for part in ("skipped: overlap", "2027-03-27T02:00:00Z", "2027-03-29T01:00:00Z", examples.EXECUTION_ID):
        assert part in said
    assert json.loads(run("explain", "daily", "2027-03-28T03:00", "--json").stdout) == EXPLANATION


def test_a_calendar_is_set_from_json_a_file_or_stdin(run: Run, api: ScriptedApi) -> None:
    api.on("PUT", "/v1/calendars/bavaria", CALENDAR)
    result = run("calendar", "set", "bavaria", '{"dates": ["2026-12-24"]}')
    assert (result.exit_code, api.last.json) == (0, {"dates": ["2026-12-24"]})
    assert "revision 2" in result.stdout
    assert run("calendar", "set", "bavaria", "-", text='{"dates": []}').exit_code == 0
    assert api.last.json == {"dates": []}


@pytest.mark.parametrize("content", ["[1]", "{", '"text"'])
def test_a_calendar_that_is_no_object_is_a_usage_error(run: Run, api: ScriptedApi, content: str) -> None:
    result = run("calendar", "set", "bavaria", content)
    assert (result.exit_code, api.requests) == (2, [])


def test_calendars_are_listed_shown_and_deleted(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/calendars", examples.page(CALENDAR))
    listed = run("calendar", "list")
    assert "2 dates, 1 holidays" in listed.stdout
    api.on("GET", "/v1/calendars/bavaria", CALENDAR)
    shown = run("calendar", "show", "bavaria", "--zone", "UTC")
    assert "revision 2; 1 job follows it" in shown.stdout
    assert "2026-12-24T00:00" in shown.stdout
    api.on("DELETE", "/v1/calendars/bavaria", {"deleted": True})
    assert run("calendar", "delete", "bavaria").stdout.strip() == "calendar bavaria is deleted"


def test_a_job_takes_a_schedule_as_json(run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/jobs", examples.job(warnings=["it fires rarely", "gone in the gap"]), status=201)
    schedule = {"any": ["0 3 * * *", "every 5h"]}
    result = run(
        "job", "create", "daily", "--schedule", json.dumps(schedule), "--http", "https://example.com"
    )
    assert result.exit_code == 0, result.stderr
    assert api.last.json["schedule"] == schedule


def test_what_a_clock_change_does_is_said_once(run: Run, api: ScriptedApi) -> None:
    effect = PREVIEW["clock_changes"][0]["effect"]
    api.on("POST", "/v1/schedules/preview", PREVIEW | {"warnings": [effect, "it fires rarely"]})
    result = run("preview", "30 2 * * *")
    said = result.stdout + result.stderr
    assert said.count("it fires at 03:00 instead") == 1
    assert "it fires rarely" in said
