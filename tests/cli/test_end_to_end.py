"""Every command against the real thing: API, scheduler and worker as processes on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.cli.conftest import Result, run_here
from tests.support import postgres
from tests.support.ports import free_port
from tests.support.processes import ROOT, Cluster, cluster
from tests.support.waiting import until_blocking


@dataclass(frozen=True, slots=True)
class Installation:
    """A running Cronwell, and the command that talks to it."""

    url: str
    migrated: list[str]
    cluster: Cluster

    def __call__(self, *arguments: str, text: str | None = None, **env: str) -> Result:
        return run_here(*arguments, text=text, **{"CRONWELL_URL": self.url, **env})

    def json(self, *arguments: str) -> Any:
        result = self(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)


@pytest.fixture(scope="module")
def cronwell(server: str) -> Iterator[Installation]:
    database = asyncio.run(postgres.create_database(server))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with cluster(CRONWELL_DATABASE_URL=database, CRONWELL_SHELL_ENABLED="true") as started:
        migrated = [_finished(started, "migrate") for _ in range(2)]
        started.start("api", "--port", str(port))
        started.start("scheduler")
        worker = ("worker", "--pool", "default", "--pool", "extra", "--concurrency", "20")
        started.start(*worker, "--import", "tests.cli.handlers", PYTHONPATH=f"{ROOT}:{ROOT / 'src'}")
        until_blocking(lambda: _has_a_worker(url), within=30)
        yield Installation(url, migrated, started)
    asyncio.run(postgres.drop_database(server, database))


@pytest.fixture
def name() -> str:
    """A name that no other test uses; with a slash, as teams write them."""
    return f"team/{uuid4().hex[:12]}"


pytestmark = pytest.mark.usefixtures("clean_environment")


def _finished(started: Cluster, *arguments: str) -> str:
    process = started.start(*arguments)
    assert process.popen.wait(timeout=30) == 0, process.output
    return process.output


def _has_a_worker(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/v1/cluster", timeout=5) as answer:
            return bool(json.load(answer)["workers"])
    except (urllib.error.URLError, ConnectionError):
        return False


def _editor(tmp_path: Path, *lines: str) -> str:
    script = tmp_path / "editor.py"
    script.write_text(
        "import pathlib, subprocess, sys\nfile = pathlib.Path(sys.argv[1])\n" + "\n".join(lines) + "\n"
    )
    return f"{sys.executable} {script}"


def test_migrate_applies_once_and_then_has_nothing_to_do(cronwell: Installation) -> None:
    first, second = cronwell.migrated
    assert "applied 0001 core" in first
    assert second.splitlines()[-1] == "the schema is up to date"


def test_the_signing_secret_is_printed_alone(cronwell: Installation) -> None:
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/=]+\n", _finished(cronwell.cluster, "signing-secret"))


def test_a_job_from_its_creation_to_its_end(cronwell: Installation, name: str) -> None:
    made = cronwell(
        *("job", "create", name, "--schedule", "0  3 * * MON-fri", "--zone", "Europe/Berlin", "--tag", "a=b"),
        *(
            "--http",
            "https://example.com/run",
            "--header",
            "X-Team=a",
            "--retry",
            "1",
            "--payload",
            '{"n": 1}',
        ),
    )
    assert (made.exit_code, made.stdout.splitlines()[0].startswith(f"created {name} (")) == (0, True)
    assert name in cronwell("job", "list", "--name", name, "--tag", "a=b", "--target", "http").stdout
    shown = cronwell("job", "show", name).stdout
    assert "0  3 * * MON-fri Europe/Berlin" in shown
    assert "1 times, exponential" in shown
    assert len(cronwell.json("job", "upcoming", name, "--count", "3")["items"]) == 3

    assert (
        "now revision 2" in cronwell("job", "edit", name, "--priority", "high", "--zone", "Asia/Tokyo").stdout
    )
    job = cronwell.json("job", "show", name)
    assert (job["priority"], job["timezone"], job["schedule"]) == ("high", "Asia/Tokyo", "0  3 * * MON-fri")

    assert "paused" in cronwell("job", "pause", name, "--until", "2h", "--note", "audit").stdout
    assert "audit" in cronwell("job", "show", name).stdout
    assert [job["name"] for job in cronwell.json("job", "list", "--state", "paused")["items"]] == [name]
    assert "resumed" in cronwell("job", "resume", name).stdout

    assert cronwell("job", "delete", name).stdout == f"deleted {name}\n"
    assert cronwell("job", "show", name).exit_code == 3
    assert job["id"] in {job["id"] for job in cronwell.json("job", "list", "--state", "deleted")["items"]}


def test_a_bad_cron_text_is_pointed_at(cronwell: Installation, name: str) -> None:
    result = cronwell("job", "create", name, "--schedule", "0 61 * * *", "--handler", "greet")
    assert result.exit_code == 1
    assert "      0 61 * * *\n        ^\n" in result.stderr
    assert cronwell("job", "show", name).exit_code == 3


def test_a_name_that_is_taken_is_a_conflict(cronwell: Installation, name: str) -> None:
    create = ("job", "create", name, "--handler", "greet")
    assert [cronwell(*create).exit_code, cronwell(*create).exit_code] == [0, 4]


def test_the_same_idempotency_key_creates_once(cronwell: Installation, name: str) -> None:
    create = ("job", "create", name, "--handler", "greet", "--idempotency-key", name, "--json")
    assert cronwell(*create).stdout == cronwell(*create).stdout


def test_a_trigger_is_awaited_and_its_execution_shown(cronwell: Installation, name: str) -> None:
    cronwell("job", "create", name, "--handler", "greet", "--payload", '{"name": "a"}', "--pool", "extra")
    waited = cronwell("job", "trigger", name, "--wait", "--payload", '{"name": "b"}')
    assert (waited.exit_code, "hello b" in waited.stdout) == (0, True)
    [execution] = cronwell.json("job", "history", name)["items"]
    shown = cronwell("execution", "show", execution["id"]).stdout
    for part in ("succeeded", "attempt 1 started", "hello b", '{"name": "b"}'):
        assert part in shown
    assert execution["id"] in cronwell("execution", "list", "--job", name, "--from", "1h").stdout
    assert cronwell("execution", "retry", execution["id"]).exit_code == 4


def test_a_dead_letter_is_redriven_and_dismissed(cronwell: Installation, name: str) -> None:
    cronwell("job", "create", name, "--shell", "echo broken >&2; exit 3", "--retry", "0")
    assert cronwell("job", "trigger", name, "--wait").exit_code == 1
    [dead] = cronwell.json("dead-letters", "list", "--job", name)["items"]
    assert cronwell("dead-letters", "redrive", "--job", name).stdout == "redriven: 1\n"
    until_blocking(lambda: cronwell.json("execution", "show", dead["id"])["fence"] == 2)
    until_blocking(lambda: cronwell.json("execution", "show", dead["id"])["state"] == "failed")
    assert cronwell("dead-letters", "redrive", dead["id"]).stdout == "redriven: 1\n"
    until_blocking(lambda: cronwell.json("execution", "show", dead["id"])["fence"] == 3)
    until_blocking(lambda: cronwell.json("execution", "show", dead["id"])["state"] == "failed")
    assert cronwell("dead-letters", "dismiss", dead["id"]).exit_code == 0
    assert cronwell.json("dead-letters", "list", "--job", name)["items"] == []
    assert cronwell("dead-letters", "redrive", "--job", name).stdout == "no dead letter matches\n"


def test_an_execution_that_waits_is_cancelled_and_retried(cronwell: Installation, name: str) -> None:
    cronwell("job", "create", name, "--handler", "greet", "--pool", "nobody")
    execution = cronwell.json("job", "trigger", name)
    assert cronwell("execution", "cancel", execution["id"]).stdout == f"cancelled {execution['id']}\n"
    assert cronwell("execution", "retry", execution["id"]).stdout == f"retrying {execution['id']}: pending\n"


def test_a_batch_makes_what_is_right_and_lists_what_is_not(cronwell: Installation, name: str) -> None:
    lines = [
        json.dumps({"name": f"{name}-{number}", "schedule": "0 3 * * *", "target": "https://example.com"})
        for number in range(1100)
    ]
    lines[1050] = json.dumps({"name": f"{name}-x", "schedule": "0 61 * * *", "target": "https://example.com"})
    lines[7] = "{nope"
    result = cronwell("job", "create", "--batch", "-", text="\n".join(lines))
    assert result.exit_code == 1
    assert result.stdout.startswith("created 1098 of 1100 jobs in ")
    assert "line 8: " in result.stderr
    assert "line 1051: " in result.stderr
    assert "      0 61 * * *\n        ^\n" in result.stderr
    found = cronwell.json("job", "list", "--name", f"{name}-", "--all")
    assert (len(found["items"]), found["next_cursor"]) == (1098, None)


def test_the_editor_changes_only_what_was_edited(cronwell: Installation, name: str, tmp_path: Path) -> None:
    schedule = json.dumps({"cron": "0  3 * * *", "timezone": "Europe/Berlin", "end": "2090-01-01T00:00:00Z"})
    definition = f'{{"name": "{name}", "schedule": {schedule}, "target": {{"handler": {{"name": "greet"}}}}}}'
    assert cronwell("job", "create", "--from-file", "-", text=definition).exit_code == 0
    before = cronwell.json("job", "show", name)
    editor = _editor(tmp_path, "file.write_text(file.read_text().replace('\"normal\"', '\"low\"'))")
    result = cronwell("job", "edit", name, EDITOR=editor)
    assert result.exit_code == 0, result.stderr
    after = cronwell.json("job", "show", name)
    told = ("updated_at", "revision", "next_fire_at")
    assert {key for key in after if after[key] != before[key]} - {*told} == {"priority"}
    assert after["revision"] == before["revision"] + 1


def test_a_change_during_an_edit_is_not_overwritten(
    cronwell: Installation, name: str, tmp_path: Path
) -> None:
    cronwell("job", "create", name, "--handler", "greet")
    editor = _editor(
        tmp_path,
        f"subprocess.run([sys.executable, '-m', 'cronwell', 'job', 'edit', {name!r}, '--pool', 'extra'], check=True)",
        "file.write_text(file.read_text().replace('\"normal\"', '\"low\"'))",
    )
    result = cronwell("job", "edit", name, EDITOR=editor)
    assert (result.exit_code, "Somebody changed the job" in result.stderr) == (4, True)
    job = cronwell.json("job", "show", name)
    assert (job["priority"], job["pool"], job["revision"]) == ("normal", "extra", 2)
    kept = re.search(r"--from-file (\S+)", result.stderr)
    assert kept is not None
    assert cronwell("job", "edit", name, "--from-file", kept[1]).exit_code == 0
    Path(kept[1]).unlink()
    job = cronwell.json("job", "show", name)
    assert (job["priority"], job["pool"], job["revision"]) == ("low", "default", 3)


def test_a_payload_is_replaced_and_not_merged(cronwell: Installation, name: str) -> None:
    cronwell("job", "create", name, "--handler", "greet", "--payload", '{"old": 1}')
    assert cronwell("job", "edit", name, "--payload", '{"new": null}').exit_code == 0
    assert cronwell.json("job", "show", name)["payload"] == {"new": None}


def test_tail_sees_what_a_schedule_does(cronwell: Installation, name: str) -> None:
    cronwell(
        "job", "create", name, "--schedule", "* * * * * *", "--handler", "greet", "--payload", '{"name": "x"}'
    )
    begun = time.monotonic()
    lines = cronwell("execution", "tail", "--job", name, "--count", "2", "--interval", "0.1", "--json").stdout
    cronwell("job", "delete", name)
    seen = [json.loads(line) for line in lines.splitlines()]
    assert {execution["job"] for execution in seen} == {name}
    assert all(execution["state"] in ("running", "succeeded") for execution in seen)
    assert time.monotonic() - begun < 10


def test_preview_and_cluster_answer(cronwell: Installation) -> None:
    assert "At 03:00 every day" in cronwell("preview", "0 3 * * *", "--zone", "Europe/Berlin").stdout
    shown = cronwell("cluster").stdout
    for part in ("default,extra", "/20", "greet"):
        assert part in shown


def test_a_role_without_a_database_says_what_to_do(cronwell: Installation, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cronwell", "worker", "--concurrency", "1"],
        env={"CRONWELL_DATA_DIR": str(tmp_path / "none"), "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "no database: set CRONWELL_DATABASE_URL" in done.stderr) == (2, True)


def test_the_outlook_over_all_jobs(cronwell: Installation, name: str) -> None:
    made = cronwell.json("job", "create", name, "--schedule", "* * * * *", "--handler", "hello")
    assert made["name"] == name
    found = cronwell.json("forecast")
    assert len(found["minutes"]) == 1440
    assert "in the next 24 hours" in cronwell("forecast").stdout
    assert cronwell("reconcile").exit_code == 0
    assert cronwell.json("reconcile", "--from", "10m")["missing"] == 0
    assert cronwell.json("tzdata", "impact")["moved"] == 0
    assert cronwell("tzdata", "apply", name).stdout.startswith("moved: 0")
    assert cronwell("tzdata", "hold", "nobody").exit_code == 3
    cronwell("job", "delete", name, "--yes")
