"""Role processes by fork: of a server that has imported everything once, which spares each of them that second.

They are processes like any other, only begun differently; `up` and short commands are still started as users start them.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import reduction
from multiprocessing.context import ForkServerContext
from typing import Any

ROLES = {"api", "scheduler", "worker"}
_IMPORTED = [
    "cronwell.cli.main",
    "cronwell.cli.roles",
    "cronwell.wiring",
    "cronwell.api.app",
    "cronwell.api.ops",
    "cronwell.coordination.etcd",
    "cronwell.coordination.fallback",
    "cronwell.targets.http",
    "uvloop",
]
# What only the start of an interpreter can heed.
_AT_THE_START = ("PYTHONPATH", "LD_PRELOAD", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")


def is_possible(arguments: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether a fork behaves as a process that was started with these would."""
    return bool(arguments) and arguments[0] in ROLES and not any(environ.get(name) for name in _AT_THE_START)


class Forked:
    """What tests use of `subprocess.Popen`, for a forked process."""

    def __init__(self, arguments: Sequence[str], environ: Mapping[str, str], log: int, folder: str) -> None:
        self.args = ["cronwell", *arguments]
        self._process = _context().Process(
            target=_run, args=(self.args, dict(environ), _Handed(log), folder), name=" ".join(self.args)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Handed:
    """An open file that goes along to the process."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> Any:
        return _taken, (reduction.DupFd(self._number),)


def _taken(handle: Any) -> int:
    return int(handle.detach())


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    return context


def _run(arguments: list[str], environ: dict[str, str], log: int, folder: str) -> None:
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
    sys.argv = arguments
    if folder not in sys.path:
        sys.path.insert(0, folder)
    runpy.run_module("cronwell", run_name="__main__")
