"""A process tree: children that are started again when they die, and end when their parent does.

Each child gets the reading end of a pipe, its lifeline, whose writing end only the parent has. When the parent goes,
however it goes, the pipe is closed and the child stops in order. Children have sessions of their own, so that a Ctrl-C
in the terminal reaches the parent alone and is passed on once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from cronwell.runtime.service import Service

LIFELINE = "_CRONWELL_LIFELINE"
FIRST_RESTART = 0.2
LONGEST_RESTART = 10.0
# A child that has run for this long is taken to be sound: its next death starts the back-off anew.
SOUND = 30.0

# The exit code of a child that cannot work with its settings: starting it again would change nothing.
REFUSED = 2
# The exit code of a child that somebody asked to drain: it was not meant to come back. To everybody but its parent a
# drained process ends with 0.
DRAINED = 3

DeathReport = Callable[[str, int, float], None]


class Child(Service):
    """One child process that is kept running.

    With `on_refusal`, one that refuses its settings at its start is not; with `on_drained`, one that was drained is not.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        on_death: DeathReport,
        stop_deadline: timedelta,
        on_refusal: Callable[[str, int], None] | None = None,
        on_drained: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(name, stop_deadline=stop_deadline)
        self._on_refusal = on_refusal
        self._on_drained = on_drained
        self._command = list(command)
        self._environ = dict(environ)
        self._on_death = on_death
        self._stopping = asyncio.Event()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def run(self) -> None:
        delay = FIRST_RESTART
        while not self._stopping.is_set():
            started = time.monotonic()
            code = await self._run_once()
            if self._stopping.is_set():
                return
            if code == DRAINED and self._on_drained is not None:
                self._on_drained(self.name)
                return
            is_sound = time.monotonic() - started > SOUND
            if code == REFUSED and not is_sound and self._on_refusal is not None:
                self._on_refusal(self.name, code)
                return
            delay = FIRST_RESTART if is_sound else min(delay * 2, LONGEST_RESTART)
            self._on_death(self.name, code, delay)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stopping.wait()

    def stop(self) -> None:
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the child at once."""
        self._signal(signal.SIGKILL)

    async def _run_once(self) -> int:
        reading, writing = os.pipe()
        try:
            self._process = self._spawn(reading)
        finally:
            os.close(reading)
        self._succeeded()
        try:
            if self._stopping.is_set():
                self._signal(signal.SIGTERM)
            return await asyncio.to_thread(self._process.wait)
        except asyncio.CancelledError:
            self.kill()
            raise
        finally:
            os.close(writing)

    def _spawn(self, lifeline: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603  # the command is our own
            self._command,
            env={**self._environ, LIFELINE: str(lifeline)},
            pass_fds=[lifeline],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)


def drained_code() -> int:
    """With which code a process ends that was drained."""
    return DRAINED if LIFELINE in os.environ else 0


def watch_lifeline(stop: asyncio.Event) -> None:
    """In a child: set `stop` when the parent has gone."""
    text = os.environ.get(LIFELINE)
    if text is None:
        return
    descriptor = int(text)
    loop = asyncio.get_running_loop()

    def hear() -> None:
        loop.remove_reader(descriptor)
        stop.set()

    loop.add_reader(descriptor, hear)
