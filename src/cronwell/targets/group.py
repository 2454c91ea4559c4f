"""A process group: the command that leads it, what it prints, and how all of it is ended.

The leader is a child of this process, not of the event loop's watcher, because it must not be reaped before
its group has been killed: until then nobody else can get its number, and a signal cannot hit a stranger.
Neither its exit nor the end of its output is waited for without a limit.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

_CHUNK = 65_536
_KILL_SECONDS = 5.0  # a killed process ends at once, unless the kernel holds it
_LINGER_SECONDS = 0.5  # for helpers that still print when the leader has gone, as in `exec > >(tee log)`
_LAST_BYTES_SECONDS = 0.1
_POLL_SECONDS = 0.02


_living: set[int] = set()
"""The leaders of the groups of this process that have not been ended."""


def kill_every_group() -> None:
    """Kill all groups of this process at once, from any thread: it is about to end without ending them in order."""
    for leader in list(_living):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


class ProcessGroup:
    """Read the group's output as it comes, and end the group with `end`, which must always be called."""

    def __init__(self, process: subprocess.Popen[bytes], output: int, keep: Callable[[bytes], None]) -> None:
        """Take over a started process, which leads its own group, and the reading end of its output."""
        self._loop = asyncio.get_running_loop()
        self._process = process
        _living.add(process.pid)
        self._output = output
        self._keep = keep
        self._is_closed = False
        self.exited: asyncio.Future[None] = self._loop.create_future()
        """Done when the leader has ended."""
        self._silent: asyncio.Future[None] = self._loop.create_future()
        """Done when no process holds the output open any more."""
        os.set_blocking(output, False)
        self._loop.add_reader(output, self._read)
        self._exit_fd = _open_exit_fd(process.pid)
        if self._exit_fd is not None:
            self._loop.add_reader(self._exit_fd, self._note_exit)
        else:
            self._poll()

    @property
    def code(self) -> int | None:
        """The leader's exit code after `end`; negative if a signal killed it; None if it could not be ended."""
        return self._process.returncode

    async def finish(self) -> None:
        """After the leader has ended: let what it started end by itself, for a moment."""
        await asyncio.wait({self._silent}, timeout=_LINGER_SECONDS)

    async def stop(self, grace: timedelta) -> None:
        """Ask every process of the group to end, and wait until they have, at most for `grace`."""
        self._signal(signal.SIGTERM)
        await asyncio.wait({self.exited, self._silent}, timeout=grace.total_seconds())

    async def end(self) -> None:
        """Kill what is left of the group, read its last words and reap the leader."""
        try:
            self._signal(signal.SIGKILL)
            _living.discard(self._process.pid)
            await asyncio.wait({self.exited}, timeout=_KILL_SECONDS)
            await asyncio.wait({self._silent}, timeout=_LAST_BYTES_SECONDS)
        finally:
            self._close()

    def _signal(self, number: signal.Signals) -> None:
        # The leader has not been reaped, so the number is still the group's.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _read(self) -> None:
        try:
            chunk = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return
        if chunk:
            self._keep(chunk)
        else:
            self._loop.remove_reader(self._output)
            self._silent.set_result(None)

    def _note_exit(self) -> None:
        if self._exit_fd is not None:
            self._loop.remove_reader(self._exit_fd)
        if not self.exited.done():
            self.exited.set_result(None)
        if self._is_closed:
            self._reap()

    def _poll(self) -> None:
        """Where the system has no descriptor for a process: look, from time to time."""
        if hasattr(os, "waitid"):
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            has_ended = os.waitid(os.P_PID, self._process.pid, flags) is not None
        else:  # macOS before Python 3.13: the leader is reaped here, a moment too early
            has_ended = self._process.poll() is not None
        if has_ended:
            self._note_exit()
        else:
            self._loop.call_later(_POLL_SECONDS, self._poll)

    def _close(self) -> None:
        self._is_closed = True
        self._loop.remove_reader(self._output)
        os.close(self._output)
        if self.exited.done():
            self._reap()
        # Otherwise the kernel still holds the process; it is reaped when it goes.

    def _reap(self) -> None:
        self._process.wait()
        if self._exit_fd is not None:
            os.close(self._exit_fd)
            self._exit_fd = None


def _open_exit_fd(pid: int) -> int | None:
    """A descriptor that is readable once the process has ended (Linux 5.3 and later)."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
