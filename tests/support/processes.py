"""Real processes of Cronwell, started and ended by tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.support import forked
from tests.support.forked import Forked

ROOT = Path(__file__).parents[2]


class Process:
    """One running command, its output kept for the failure message."""

    def __init__(self, arguments: list[str], environ: dict[str, str], *, prefix: Sequence[str] = ()) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        if not prefix and forked.is_possible(arguments, environ):
            self.popen: subprocess.Popen[bytes] | Forked = Forked(
                arguments, environ, self._log.fileno(), str(ROOT)
            )
            return
        self.popen = subprocess.Popen(
            [*prefix, sys.executable, "-m", "cronwell", *arguments],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            start_new_session=True,
        )

    @property
    def output(self) -> str:
        # Without moving the offset, at which the process goes on writing.
        log = self._log.fileno()
        return os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")

    @property
    def is_running(self) -> bool:
        return self.popen.poll() is None

    def kill(self) -> None:
        """End it as a crash would: kill -9, and wait until it is gone."""
        self.popen.kill()
        self.popen.wait()

    def freeze(self) -> None:
        self.popen.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.popen.send_signal(signal.SIGCONT)

    def stop(self, number: signal.Signals = signal.SIGTERM, *, within: float = 60) -> int:
        """Ask it to stop and return its exit code."""
        if self.is_running:
            self.popen.send_signal(number)
        return self.popen.wait(timeout=within)

    def close(self) -> None:
        if self.is_running:
            self.thaw()
            self.kill()
        self._log.close()


class Cluster:
    """Starts processes that share settings; ends those that are left."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CRONWELL_")},
            "CRONWELL_LOG_FORMAT": "json",
            "PYTHONUNBUFFERED": "1",
            **settings,
        }
        self.processes: list[Process] = []

    def start(self, *arguments: str, **settings: str) -> Process:
        process = Process(list(arguments), {**self._environ, **settings})
        self.processes.append(process)
        return process

    def logs(self) -> str:
        return "\n".join(f"--- {p.popen.args!r}\n{p.output}" for p in self.processes)


@contextmanager
def cluster(**settings: str) -> Iterator[Cluster]:
    """Processes with these settings; whatever still runs at the end is killed."""
    started = Cluster(settings)
    try:
        yield started
    except BaseException:
        sys.stderr.write(started.logs()[-20_000:])
        raise
    finally:
        for process in started.processes:
            process.close()
