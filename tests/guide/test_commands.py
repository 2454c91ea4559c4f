"""The manual, followed: every command of the README and the guide is run against a real `cronwell up`."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.guide import pages
from tests.guide.pages import ROOT
from tests.support import redis, warm
from tests.support.ports import free_port
from tests.support.postgres import temporary_directory
from tests.support.processes import Process, cluster
from tests.support.waiting import until_blocking

README = ROOT / "README.md"
TARGETS = ROOT / "docs" / "guide" / "targets.md"
PUBLISHING = ROOT / "docs" / "guide" / "publishing.md"
LONG_WORK = ROOT / "docs" / "guide" / "long-work.md"
FOLLOWED = [page for page in pages.PAGES if pages.steps(page) and (page != PUBLISHING or redis.binary())]


@dataclass(frozen=True, slots=True)
class Installation:
    """A running service, and a terminal beside it."""

    folder: Path
    environ: dict[str, str]
    swaps: dict[str, str]
    """What the pages call the ports, and what they are here."""
    up: Process

    def run(self, command: str) -> pages.Ran:
        return pages.run(pages.swapped(command, self.swaps), self.folder, self.environ)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """`cronwell up` with the guide's handlers, and the guide's receiver, in a directory like a clone's."""
    folder = tmp_path_factory.mktemp("clone")
    swaps = {port: str(free_port()) for port in ("8420", "9000", "9002", "6379")}
    for page in (TARGETS, PUBLISHING, LONG_WORK):
        pages.save_files(page, folder, swaps)
    with (
        temporary_directory() as directory,
        warm.commands(directory) as command,
        _broker(int(swaps["6379"])),
    ):
        _make_environment(folder / ".venv" / "bin", command)
        settings = {
            "CRONWELL_DATA_DIR": str(directory / "data"),
            "CRONWELL_PORT": swaps["8420"],
            "CRONWELL_SHELL_ENABLED": "true",
            "CRONWELL_WORKER_IMPORTS": "reports",
            "CRONWELL_BROKERS_DEFAULT": f"redis://127.0.0.1:{swaps['6379']}",
            "PATH": f"{folder / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])),
        }
        with cluster(**settings) as processes:
            up = processes.start("up")
            until_blocking(lambda: "Ctrl-C drains" in up.output or not up.is_running, within=60)
            # Not counted for coverage, which other tests see to: a command would take twice as long.
            environ = {
                **{
                    name: text
                    for name, text in os.environ.items()
                    if not name.startswith(("CRONWELL_", "COVERAGE_"))
                },
                **settings,
                "PYTHONUNBUFFERED": "1",
                "COLUMNS": "200",
            }
            receivers = [
                _receive(TARGETS, "receiver", folder, environ, swaps["9000"]),
                _receive(LONG_WORK, "later", folder, environ, swaps["9002"]),
            ]
            try:
                yield Installation(folder, environ, swaps, up)
            finally:
                for receiver in receivers:
                    receiver.terminate()
                    receiver.wait()
                assert up.stop() == 0, up.output


def test_the_first_job_that_up_proposes_works(installation: Installation) -> None:
    proposed = installation.up.output.partition("Make a first job:\n")[2].partition("\n\n")[0]
    assert proposed.lstrip().startswith("curl ")
    assert '"state":"active"' in installation.run(proposed).output
    triggered = installation.run("cronwell job trigger hello --wait --overlap")
    assert triggered.code == 0, triggered.output
    assert installation.run("cronwell job delete hello --yes").code == 0


def test_the_tour_of_the_readme_works_word_for_word(installation: Installation) -> None:
    [tour, *_] = pages.blocks(README, "sh")
    [shown] = pages.blocks(README, "text")
    lines = tour.text.splitlines()
    assert len(lines) == 10
    done = installation.run("set -e\n" + "\necho\n".join(lines))
    assert done.code == 0, done.output
    expected = pages.swapped(shown.text, installation.swaps).splitlines()
    assert pages.difference(expected, done.output) is None, done.output


def test_every_command_of_every_page_prints_what_the_page_says(installation: Installation) -> None:
    def follow(page: Path) -> list[str]:
        return pages.follow(page, installation.folder, installation.environ, installation.swaps)

    # Pages have no job in common, and most of a command's time is its start.
    with ThreadPoolExecutor(4) as several:
        wrong = {
            page.name: found
            for page, found in zip(FOLLOWED, several.map(follow, FOLLOWED), strict=True)
            if found
        }
    assert wrong == {}, "\n".join(line for found in wrong.values() for line in found)


def test_the_receiver_does_an_execution_once_and_refuses_a_forged_delivery(
    installation: Installation,
) -> None:
    url = "http://127.0.0.1:9000/run"
    created = installation.run(f"cronwell job create receipt --http {url} --payload '[1, 2]'")
    assert created.code == 0, created.output
    assert installation.run("cronwell job trigger receipt --wait").code == 0
    forged = installation.run(
        f"curl -s -o /dev/null -w '%{{http_code}}' {url} -H 'webhook-id: x' -H 'webhook-timestamp: 1' -H 'webhook-signature: v1,AA==' -d '{{}}'"
    )
    assert forged.output == "401"
    assert (installation.folder / "receiver.log").read_text().count("work: receipt [1, 2]") == 1


def test_a_shell_command_may_call_cronwell(installation: Installation) -> None:
    # Nothing of the worker's environment comes along but its PATH.
    command = f"PYTHONPATH={ROOT / 'src'} cronwell job list --url http://127.0.0.1:8420"
    assert installation.run(f"cronwell job create caller --shell '{command}'").code == 0
    done = installation.run("cronwell job trigger caller --wait")
    assert done.code == 0, done.output
    assert "caller" in done.output


def test_a_retry_that_is_waited_for_has_no_lateness(installation: Installation) -> None:
    create = "cronwell job create slow-retry --shell 'exit 1' --retry 1 --retry-delay 1h"
    assert installation.run(create).code == 0
    assert installation.run("cronwell job trigger slow-retry").code == 0

    def waiting() -> str:
        found = installation.run("cronwell execution list --job slow-retry --state retrying --json").output
        return found if '"retrying"' in found else ""

    until_blocking(waiting, within=30)
    assert re.search(r'"lateness_ms":\s*null', waiting())


def _make_environment(folder: Path, command: Path) -> None:
    """A `.venv/bin` with the commands that the pages call, whatever environment the tests run in."""
    folder.mkdir(parents=True)
    for name, arguments in (("cronwell", f'-I -S "{command}" '), ("python", "")):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        script.chmod(0o755)
    if (server := redis.binary()) is not None:
        (folder / "redis-cli").symlink_to(Path(server).with_name("redis-cli"))


@contextmanager
def _broker(port: int) -> Iterator[None]:
    """The Redis that a page publishes to, where there is one."""
    if redis.binary() is None:
        yield
    else:
        with redis.temporary_redis(port=port):
            yield


def _receive(
    page: Path, name: str, folder: Path, environ: dict[str, str], port: str
) -> subprocess.Popen[str]:
    """Start a receiver of the guide as the guide says."""
    [start] = [block.text for block in pages.blocks(page, "sh") if f"{name}.py" in block.text]
    command = start.splitlines()[-1].replace("python ", "exec python ")
    bash = shutil.which("bash")
    assert bash is not None
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            [bash, "-c", command],
            cwd=folder,
            env=environ,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", int(port))) == 0

    until_blocking(answers, within=30)
    return process
