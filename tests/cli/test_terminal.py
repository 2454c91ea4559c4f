"""The command on a real terminal: colours, widths, questions and progress."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli import examples, test_backfills
from tests.cli.scripted import ScriptedApi

LONGEST_SILENCE = 20.0
ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def _on_terminal(
    api: ScriptedApi, *arguments: str, columns: int = 200, typed: str = "", **env: str
) -> tuple[int, str]:
    """Run the command with a terminal of so many columns as stdin, stdout and stderr."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("CRONWELL_") and name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "cronwell", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**kept, "TERM": "xterm-256color", "TZ": "UTC", "CRONWELL_URL": api.url, **env},
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    read = b""
    # Linux ends the reading side with EIO once the other side has no holder left.
    with suppress(OSError):
        while True:
            if not select.select([ours], [], [], LONGEST_SILENCE)[0]:
                process.kill()
            read += os.read(ours, 65536)
    os.close(ours)
    return process.wait(), read.decode().replace("\r\n", "\n")


def test_states_are_coloured_unless_told_not_to(api: ScriptedApi) -> None:
    api.on("GET", "/v1/jobs", examples.page(examples.job()))
    assert "\x1b[32mactive" in _on_terminal(api, "job", "list")[1]
    assert not re.search(r"\x1b\[[0-9;]*3\dm", _on_terminal(api, "job", "list", NO_COLOR="1")[1])


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_narrow_terminal_loses_columns_and_not_order(api: ScriptedApi, columns: int) -> None:
    api.on("GET", "/v1/jobs", examples.page(examples.job(name="a-job-with-a-name")))
    shown = ANSI.sub("", _on_terminal(api, "job", "list", columns=columns)[1])
    lines = shown.splitlines()
    assert len(lines) == 2
    assert all(len(line) <= columns for line in lines)
    assert "a-job-with-a-name" in lines[1]
    assert "…" not in shown


def test_an_id_is_whole_on_any_terminal(api: ScriptedApi) -> None:
    api.on("GET", "/v1/executions", examples.page(examples.execution()))
    head, *lines = ANSI.sub("", _on_terminal(api, "execution", "list", columns=40)[1]).splitlines()
    edge = head.index("STATE")
    assert "".join(line[:edge].strip() for line in lines) == examples.EXECUTION_ID
    assert lines[0][edge:].strip() == "succeeded"


@pytest.mark.parametrize(("typed", "code", "requests"), [("y\n", 0, 1), ("n\n", 1, 0), ("\n", 1, 0)])
def test_delete_asks_a_person(api: ScriptedApi, typed: str, code: int, requests: int) -> None:
    api.on("DELETE", "/v1/jobs/name:x", {"deleted": True})
    ended, shown = _on_terminal(api, "job", "delete", "x", typed=typed)
    assert (ended, len(api.requests)) == (code, requests)
    assert "Delete the job x? [y/N]" in shown


def test_yes_does_not_ask(api: ScriptedApi) -> None:
    api.on("DELETE", "/v1/jobs/name:x", {"deleted": True})
    ended, shown = _on_terminal(api, "job", "delete", "x", "--yes")
    assert (ended, "[y/N]" in shown) == (0, False)


def test_redrive_asks_with_the_number_and_shows_progress(api: ScriptedApi) -> None:
    api.on("GET", "/v1/dead-letters", examples.page(examples.execution(), examples.execution()))
    api.on("POST", "/v1/dead-letters/redrive", {"count": 2})
    ended, shown = _on_terminal(api, "dead-letters", "redrive", typed="y\n")
    assert (ended, "Redrive 2 dead letters, 100 a second? [y/N]" in shown) == (0, True)
    assert "2 redriven" in shown
    assert "redriven: 2" in shown


def test_redrive_can_be_declined_and_knows_when_there_is_nothing(api: ScriptedApi) -> None:
    api.on("GET", "/v1/dead-letters", examples.page(examples.execution(), next_cursor="more"))
    api.on("GET", "/v1/dead-letters", examples.page())
    ended, shown = _on_terminal(api, "dead-letters", "redrive", "--limit", "1", typed="n\n")
    assert (ended, "Redrive 1 dead letters" in shown, "nothing was redriven" in shown) == (1, True, True)
    assert "no dead letter matches" in _on_terminal(api, "dead-letters", "redrive")[1]
    assert "POST" not in {request.method for request in api.requests}


def test_a_batch_shows_how_far_it_is(api: ScriptedApi, tmp_path: Path) -> None:
    api.on(
        "POST", "/v1/jobs:batch", b'{"index": 0, "status": "created"}\n', content_type="application/x-ndjson"
    )
    (tmp_path / "jobs").write_text("{}\n")
    ended, shown = _on_terminal(api, "job", "create", "--batch", str(tmp_path / "jobs"))
    assert (ended, "1 created, 0 refused" in shown, "100%" in shown) == (0, True, True)


@pytest.mark.parametrize(("typed", "code", "requests"), [("y\n", 0, 3), ("n\n", 1, 1)])
def test_a_backfill_shows_the_range_asks_and_shows_progress(
    api: ScriptedApi, typed: str, code: int, requests: int
) -> None:
    api.on("POST", "/v1/jobs/name:hello/backfills", test_backfills.plan())
    api.on("POST", "/v1/jobs/name:hello/backfills", test_backfills.backfill(), status=201)
    api.on("GET", f"/v1/backfills/{test_backfills.ID}", test_backfills.over())
    ended, shown = _on_terminal(api, "job", "backfill", "hello", "--from", "7d", "--wait", typed=typed)
    assert (ended, len(api.requests), "Run these 24 slots? [y/N]" in shown) == (code, requests, True)
    if code == 0:
        assert api.requests[1].json["to"] == test_backfills.plan()["to"]
        assert "11 of 24 done" in shown
        assert "finished: 24 of 24 done" in shown
