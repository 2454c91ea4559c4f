"""`job edit`: by options, by a file, in an editor; never over somebody else's change."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli import examples
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedApi

JOB = "/v1/jobs/name:hello"
CHANGED = examples.job(revision=4)
OVERTAKEN = examples.problem(412, "The job has changed since you read it", "it is at 4")


def _editor(tmp_path: Path, old: str, new: str) -> str:
    """An editor that replaces one text by another."""
    script = tmp_path / "editor.py"
    script.write_text(
        "import pathlib, sys\n"
        "file = pathlib.Path(sys.argv[1])\n"
        f"file.write_text(file.read_text().replace({old!r}, {new!r}))\n"
    )
    return f"{sys.executable} {script}"


def _patched(run: Run, api: ScriptedApi, present: dict[str, Any], *options: str) -> Any:
    api.on("GET", JOB, present)
    api.on("PATCH", JOB, CHANGED)
    result = run("job", "edit", "hello", *options)
    assert result.exit_code == 0, result.stderr
    assert (api.last.method, api.last.headers["If-Match"]) == ("PATCH", '"3"')
    return api.last.json


def test_options_become_a_merge_patch_of_the_revision_that_was_read(run: Run, api: ScriptedApi) -> None:
    sent = _patched(
        run, api, examples.job(), "--priority", "high", "--tag", "a=b", "--retry", "5", "--schedule", "@daily"
    )
    assert sent == {
        "priority": "high",
        "tags": {"a": "b"},
        "retry": {"max_attempts": 6},
        "schedule": "@daily",
    }


def test_the_answer_tells_the_new_revision(run: Run, api: ScriptedApi) -> None:
    api.on("GET", JOB, examples.job())
    api.on("PATCH", JOB, CHANGED)
    assert run("job", "edit", "hello", "--pool", "x").stdout.startswith(
        "changed hello: now revision 4; fires next at"
    )
    assert json.loads(run("job", "edit", "hello", "--pool", "x", "--json").stdout) == CHANGED


def test_an_empty_text_removes_and_a_tag_can_be_removed(run: Run, api: ScriptedApi) -> None:
    sent = _patched(
        run, api, examples.job(), "--schedule", "", "--description", "", "--untag", "team", "--tag", "a=b"
    )
    assert sent == {"schedule": None, "description": None, "tags": {"a": "b", "team": None}}


def test_a_job_is_renamed(run: Run, api: ScriptedApi) -> None:
    assert _patched(run, api, examples.job(), "--rename", "other") == {"name": "other"}


def test_a_header_is_added_to_the_target_that_is_there(run: Run, api: ScriptedApi) -> None:
    sent = _patched(run, api, examples.job(), "--header", "X-B=c")
    assert sent == {"target": {"http": {"headers": {"X-B": "c"}}}}


def test_a_stream_keeps_its_name_when_its_length_is_changed(run: Run, api: ScriptedApi) -> None:
    target = {"http": None, "publish": {"broker": "eu", "redis": {"stream": "orders", "maxlen": None}}}
    present = examples.job(target=target)
    assert _patched(run, api, present, "--maxlen", "5") == {"target": {"publish": {"redis": {"maxlen": 5}}}}
    assert _patched(run, api, present, "--broker", "us") == {"target": {"publish": {"broker": "us"}}}


def test_another_kind_of_target_replaces_the_present_one(run: Run, api: ScriptedApi) -> None:
    sent = _patched(run, api, examples.job(), "--handler", "f")
    assert sent == {"target": {"handler": {"name": "f"}, "http": None}}


def test_a_zone_goes_where_the_schedule_has_its_zone(run: Run, api: ScriptedApi) -> None:
    present = examples.job(schedule={"cron": "0 3 * * *", "timezone": "Asia/Tokyo"}, timezone=None)
    assert _patched(run, api, present, "--zone", "Europe/Berlin") == {
        "schedule": {"timezone": "Europe/Berlin"}
    }


def test_a_new_schedule_keeps_the_zone_of_the_old_one(run: Run, api: ScriptedApi) -> None:
    present = examples.job(schedule={"cron": "0 3 * * *", "timezone": "Asia/Tokyo"}, timezone=None)
    assert _patched(run, api, present, "--schedule", "@daily") == {
        "schedule": "@daily",
        "timezone": "Asia/Tokyo",
    }


def test_a_new_schedule_does_not_drop_an_end_in_silence(run: Run, api: ScriptedApi) -> None:
    api.on("GET", JOB, examples.job(schedule={"cron": "0 3 * * *", "end": "2030-01-01T00:00:00Z"}))
    result = run("job", "edit", "hello", "--schedule", "@daily")
    assert (result.exit_code, "has end, which --schedule would drop" in result.stderr) == (2, True)


def test_a_payload_is_replaced_and_not_merged(run: Run, api: ScriptedApi) -> None:
    api.on("GET", JOB, examples.job(payload={"old": 1}))
    api.on("PUT", JOB, CHANGED)
    run("job", "edit", "hello", "--payload", '{"new": null}', "--tag", "a=b", "--description", "d")
    assert api.last.method == "PUT"
    assert (api.last.json["payload"], api.last.json["description"]) == ({"new": None}, "d")
    assert api.last.json["tags"] == {"team": "billing", "a": "b"}


def test_a_payload_that_cannot_merge_is_patched(run: Run, api: ScriptedApi) -> None:
    assert _patched(run, api, examples.job(payload=[1]), "--payload", '{"new": null}') == {
        "payload": {"new": None}
    }


@pytest.mark.parametrize("option", ["--pool", "--payload"])
def test_a_job_that_was_changed_meanwhile_is_left_alone(run: Run, api: ScriptedApi, option: str) -> None:
    api.on("GET", JOB, examples.job())
    api.on("PATCH", JOB, OVERTAKEN, status=412)
    api.on("PUT", JOB, OVERTAKEN, status=412)
    result = run("job", "edit", "hello", option, '{"a":1}')
    assert result.exit_code == 4
    assert (
        "Somebody changed the job after it was read. Nothing was changed; run the command again."
        in result.stderr
    )


def test_a_file_is_the_whole_new_definition(run: Run, api: ScriptedApi) -> None:
    api.on("GET", JOB, examples.job())
    api.on("PUT", JOB, CHANGED)
    run("job", "edit", "hello", "--from-file", "-", "--pool", "eu", text='{"target": "https://x.example"}')
    assert api.last.json == {"name": "hello", "target": {"http": {"url": "https://x.example"}}, "pool": "eu"}
    assert api.last.headers["If-Match"] == '"3"'


def test_the_editor_gets_the_definition_and_nothing_else(run: Run, api: ScriptedApi, tmp_path: Path) -> None:
    api.on("GET", JOB, examples.job(latest_executions=[examples.execution()]))
    api.on("PUT", JOB, CHANGED)
    result = run("job", "edit", "hello", EDITOR=_editor(tmp_path, '"normal"', '"low"'))
    assert result.exit_code == 0
    assert (api.last.method, api.last.headers["If-Match"]) == ("PUT", '"3"')
    sent = api.last.json
    assert (sent["priority"], sent["schedule"], sent["timezone"]) == ("low", "0 3 * * *", "Europe/Berlin")
    assert sent["target"].keys() == {"http"}
    assert not sent.keys() & {
        "id",
        "state",
        "revision",
        "next_fire_at",
        "created_at",
        "latest_executions",
        "window",
    }


def test_an_editor_that_changes_nothing_sends_nothing(run: Run, api: ScriptedApi, tmp_path: Path) -> None:
    api.on("GET", JOB, examples.job())
    result = run("job", "edit", "hello", EDITOR=_editor(tmp_path, "x", "x"))
    assert (result.exit_code, result.stderr, len(api.requests)) == (0, "nothing changed\n", 1)


@pytest.mark.parametrize(
    ("old", "new", "status", "code"),
    [('"normal"', '"lows"', 422, 1), ('"normal"', '"low"', 412, 4), ('"normal"', '"low', 200, 2)],
)
def test_a_text_that_was_not_taken_is_kept(
    run: Run, api: ScriptedApi, tmp_path: Path, old: str, new: str, status: int, code: int
) -> None:
    api.on("GET", JOB, examples.job())
    api.on("PUT", JOB, examples.problem(status, "No"), status=status)
    result = run("job", "edit", "hello", EDITOR=_editor(tmp_path, old, new))
    assert result.exit_code == code
    kept = re.search(r"cronwell job edit hello --from-file (\S+\.json)", result.stderr)
    assert kept is not None
    assert new in Path(kept[1]).read_text()
    Path(kept[1]).unlink()


def test_an_editor_that_fails_changes_nothing(run: Run, api: ScriptedApi) -> None:
    api.on("GET", JOB, examples.job())
    failed = run("job", "edit", "hello", EDITOR="false")
    kept = re.search(r"your text: (\S+\.json)\)", failed.stderr)
    assert kept is not None
    Path(kept[1]).unlink()
    assert failed.exit_code == 1
    assert run("job", "edit", "hello", EDITOR="/no/such/editor").exit_code == 2
    assert {request.method for request in api.requests} == {"GET"}
