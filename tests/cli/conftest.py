"""Fixtures of the command line's tests: a server to talk to, and the command to talk with."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from cronwell.cli.main import app
from tests.cli.scripted import ScriptedApi, scripted_api

# Made once: Typer reads every signature again each time it is asked for the command.
COMMAND = get_command(app)


@dataclass(frozen=True, slots=True)
class Result:
    exit_code: int
    stdout: str
    stderr: str


class Run(Protocol):
    """Runs `cronwell` with arguments in this process; `text` is on its stdin."""

    def __call__(self, *arguments: str, text: str | None = None, **env: str) -> Result: ...


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    """A server that answers as it is told."""
    with scripted_api() as api:
        yield api


@pytest.fixture
def clean_environment() -> Iterator[None]:
    """No setting of whoever runs the tests, and times in UTC."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("CRONWELL_")]:
            patch.delenv(name)
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def run(api: ScriptedApi, clean_environment: None) -> Run:
    """The command, talking to `api`."""

    def run(*arguments: str, text: str | None = None, **env: str) -> Result:
        return run_here(*arguments, text=text, **{"CRONWELL_URL": api.url, **env})

    return run


def run_here(*arguments: str, text: str | None = None, **env: str) -> Result:
    """Run the command in this process, and fail on any exception that a user would see as a traceback."""
    with CliRunner().isolation(input=text, env=env) as (out, err, _):
        with pytest.raises(SystemExit) as ended:
            COMMAND.main(args=list(arguments), prog_name="cronwell")
        sys.stdout.flush()
        sys.stderr.flush()
        stdout, stderr = out.getvalue().decode(), err.getvalue().decode()
    code = ended.value.code
    assert isinstance(code, int)
    return Result(int(code), stdout, stderr)
