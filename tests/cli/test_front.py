"""The front door: help, global options, exit codes, and how fast and how quietly it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell import __version__
from cronwell.cli.failures import ExitCode
from cronwell.cli.main import _hoisted
from cronwell.cli.session import address_of
from tests.cli import examples
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedApi

HEAVY = (
    "rich.console",
    "http.client",
    "asyncio",
    "pydantic",
    "fastapi",
    "asyncpg",
    "aiohttp",
    "cronwell.config",
)


def _environ(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CRONWELL_")}
    return {**kept, "TZ": "UTC", **changes}


@pytest.fixture
def follower(api: ScriptedApi) -> Iterator[subprocess.Popen[str]]:
    """`cronwell execution tail` as a process that has begun to follow."""
    api.on("GET", "/v1/executions", examples.page())
    # Tests that run in the background of a shell ignore Ctrl-C, and so would what they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "cronwell", "execution", "tail"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environ(CRONWELL_URL=api.url),
    )
    with process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("following")
        yield process
        process.kill()


def test_help_lists_every_command_and_exit_code(run: Run) -> None:
    result = run("--help")
    assert result.exit_code == 0
    for command in (
        "up",
        "api",
        "scheduler",
        "worker",
        "migrate",
        "signing-secret",
        "config",
        "job",
        "execution",
    ):
        assert f"\n  {command} " in result.stdout
    for command in ("dead-letters", "preview", "cluster", "bench"):
        assert f"\n  {command} " in result.stdout
    for code in ExitCode:
        assert f"\n    {int(code):>3}  " in result.stdout


@pytest.mark.parametrize(
    ("group", "commands"),
    [
        ("job", "create list show edit pause resume trigger delete upcoming history"),
        ("execution", "list show cancel retry tail"),
        ("dead-letters", "list redrive dismiss"),
        ("config", "show"),
    ],
)
def test_a_group_lists_its_commands(run: Run, group: str, commands: str) -> None:
    shown = run(group, "--help").stdout
    assert all(f"\n  {command}" in shown for command in commands.split())


def test_help_imports_nothing_heavy() -> None:
    probe = (
        "import sys\nsys.argv = ['cronwell', '--help']\n"
        "from cronwell.cli.main import run\n"
        "try:\n    run()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, env=_environ()
    )
    assert done.stderr.strip() == "[]"


def test_the_version_is_shown(run: Run) -> None:
    assert run("--version").stdout == f"cronwell {__version__}\n"


def test_python_m_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cronwell", "--version"],
        capture_output=True,
        text=True,
        check=True,
        env=_environ(),
    )
    assert done.stdout == f"cronwell {__version__}\n"


def test_a_full_disk_is_told_in_one_line() -> None:
    device = Path("/dev/full")
    if not device.exists():
        pytest.skip("this system has no /dev/full")
    with device.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cronwell", "config", "show"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=_environ(),
        )
    assert done.returncode == ExitCode.FAILED
    assert done.stderr == "Error: [Errno 28] No space left on device\n"


def test_a_closed_output_is_no_failure() -> None:
    script = f"exec {sys.executable} -m cronwell config show >&-"
    done = subprocess.run(
        ["/bin/sh", "-c", script], stderr=subprocess.PIPE, text=True, check=False, env=_environ()
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "arguments", ["jub", "job", "job lst", "job show", "job show x --jsn", "job list --limit 0", ""]
)
def test_a_wrong_use_ends_with_2(run: Run, arguments: str) -> None:
    result = run(*arguments.split())
    assert (result.exit_code, "Traceback" in result.stderr) == (2, False)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--url", "URL", "cluster", "--json"],
        ["cluster", "--url", "URL", "--json"],
        ["cluster", "--json", "--url=URL"],
    ],
)
def test_global_options_may_stand_anywhere(run: Run, api: ScriptedApi, arguments: list[str]) -> None:
    api.on("GET", "/v1/cluster", {})
    result = run(*(word.replace("URL", api.url) for word in arguments), CRONWELL_URL="http://127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (0, "{}\n")


def test_what_stands_after_two_dashes_is_no_option() -> None:
    assert _hoisted(["a", "--", "--url", "x"]) == ["a", "--", "--url", "x"]


@given(st.lists(st.sampled_from(["job", "--json", "--url", "--config=x", "--", "x"])))
def test_moving_options_loses_and_adds_nothing(words: list[str]) -> None:
    assert sorted(_hoisted(words)) == sorted(words)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:8420"),
        ("0.0.0.0", "http://127.0.0.1:8420"),
        ("::", "http://[::1]:8420"),
        ("::1", "http://[::1]:8420"),
        ("example.com", "http://example.com:8420"),
    ],
)
def test_the_default_address_follows_from_host_and_port(host: str, address: str) -> None:
    assert address_of(host, 8420) == address


def test_the_servers_host_and_port_are_used_without_a_url(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/cluster", {})
    host, port = api.url.removeprefix("http://").split(":")
    assert run("cluster", "--json", CRONWELL_URL="", CRONWELL_HOST=host, CRONWELL_PORT=port).exit_code == 0


def test_ctrl_c_ends_with_130_and_no_traceback(follower: subprocess.Popen[str]) -> None:
    follower.send_signal(signal.SIGINT)
    _, stderr = follower.communicate(timeout=10)
    assert (follower.returncode, "Traceback" in stderr) == (130, False)


def test_a_reader_that_goes_away_ends_the_command_quietly(api: ScriptedApi) -> None:
    items = [examples.job(name=f"job-{number}", description="x" * 1000) for number in range(500)]
    api.on("GET", "/v1/jobs", examples.page(*items))
    process = subprocess.Popen(
        [sys.executable, "-m", "cronwell", "job", "list", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environ(CRONWELL_URL=api.url),
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
    assert process.returncode == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    ["execution show 1", "execution show 1 --json", "job show x", "cluster --json", "--version", "--help"],
)
def test_a_reader_that_has_gone_before_the_last_line_is_no_complaint(
    api: ScriptedApi, arguments: str, unbuffered: str
) -> None:
    api.on("GET", "/v1/executions/1", examples.execution())
    api.on("GET", "/v1/jobs/name:x", examples.job())
    api.on("GET", "/v1/cluster", {})
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as stdout:
        done = subprocess.run(
            [sys.executable, "-m", "cronwell", *arguments.split()],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=_environ(CRONWELL_URL=api.url, PYTHONUNBUFFERED=unbuffered),
        )
    assert done.stderr == ""
    assert done.returncode in (0, 1), "not 120, which is Python's own complaint"


def test_a_stream_that_cannot_carry_a_character_gets_the_rest(api: ScriptedApi) -> None:
    api.on("GET", "/v1/jobs/name:x", examples.job(description="naïve 日本"))
    done = subprocess.run(
        [sys.executable, "-m", "cronwell", "job", "show", "x"],
        capture_output=True,
        check=True,
        env=_environ(CRONWELL_URL=api.url, PYTHONIOENCODING="ascii"),
    )
    assert b"na?ve ??" in done.stdout
