"""Children are started again when they die, stop when asked, and end when their parent does."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from cronwell.runtime import supervisor
from cronwell.runtime.supervisor import LIFELINE, Child, watch_lifeline
from tests.support.waiting import until, until_blocking

# Writes its pid, then waits for a signal; the lifeline is watched where the first argument says so.
PROGRAM = """
import asyncio, os, pathlib, signal, sys
from cronwell.runtime.supervisor import watch_lifeline

async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    watch_lifeline(stop)
    folder = pathlib.Path(sys.argv[1])
    (folder / str(os.getpid())).touch()
    await stop.wait()
    (folder / str(os.getpid())).unlink()

asyncio.run(main())
"""


@asynccontextmanager
async def _running(folder: Path, deaths: list[int]) -> AsyncIterator[Child]:
    child = Child(
        "program",
        [sys.executable, "-c", PROGRAM, str(folder)],
        dict(os.environ),
        on_death=lambda name, code, delay: deaths.append(code),
        stop_deadline=timedelta(seconds=10),
    )
    task = asyncio.create_task(child.run())
    try:
        yield child
    finally:
        child.stop()
        await task


def _pids(folder: Path) -> list[int]:
    return [int(each.name) for each in folder.iterdir()]


async def test_a_child_that_dies_is_started_again(tmp_path: Path) -> None:
    deaths: list[int] = []
    async with _running(tmp_path, deaths) as child:
        await until(lambda: _pids(tmp_path) == [child.pid])
        first = child.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: len(_pids(tmp_path)) == 2)
        assert deaths == [-signal.SIGKILL]
        assert child.pid != first


async def test_a_child_that_is_asked_to_stop_ends_in_order_and_stays_away(tmp_path: Path) -> None:
    deaths: list[int] = []
    async with _running(tmp_path, deaths):
        await until(lambda: len(_pids(tmp_path)) == 1)
    assert _pids(tmp_path) == []
    assert deaths == []


async def test_a_child_that_refuses_its_settings_is_not_started_again() -> None:
    refusals: list[tuple[str, int]] = []
    deaths: list[int] = []
    child = Child(
        "program",
        [sys.executable, "-c", f"raise SystemExit({supervisor.REFUSED})"],
        dict(os.environ),
        on_death=lambda name, code, delay: deaths.append(code),
        stop_deadline=timedelta(seconds=10),
        on_refusal=lambda name, code: refusals.append((name, code)),
    )
    async with asyncio.timeout(20):
        await child.run()
    assert refusals == [("program", supervisor.REFUSED)]
    assert deaths == []


async def test_a_child_that_is_cancelled_is_killed(tmp_path: Path) -> None:
    child = Child(
        "program",
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        dict(os.environ),
        on_death=lambda name, code, delay: None,
        stop_deadline=timedelta(seconds=10),
    )
    task = asyncio.create_task(child.run())
    await until(lambda: len(_pids(tmp_path)) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    pid = child.pid
    assert pid is not None
    await until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in _state(pid))


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent = (
        "import asyncio, os, sys\n"
        "from datetime import timedelta\n"
        "from cronwell.runtime.supervisor import Child\n"
        f"child = Child('x', [sys.executable, '-c', {PROGRAM!r}, {str(tmp_path)!r}], dict(os.environ),\n"
        "    on_death=print, stop_deadline=timedelta(seconds=1))\n"
        "asyncio.run(child.run())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent])
    try:
        until_blocking(lambda: len(_pids(tmp_path)) == 1, within=30)
    finally:
        process.kill()
        process.wait()
    until_blocking(lambda: _pids(tmp_path) == [], within=30)


async def test_without_a_lifeline_there_is_nothing_to_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LIFELINE, raising=False)
    stop = asyncio.Event()
    watch_lifeline(stop)
    assert not stop.is_set()


async def test_restarts_come_later_and_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_RESTART", 0.01)
    delays: list[float] = []
    child = Child(
        "falls over",
        [sys.executable, "-c", "raise SystemExit(3)"],
        dict(os.environ),
        on_death=lambda name, code, delay: delays.append(delay),
        stop_deadline=timedelta(seconds=1),
    )
    task = asyncio.create_task(child.run())
    await until(lambda: len(delays) >= 3)
    child.stop()
    await task
    assert delays[:3] == [0.02, 0.04, 0.08]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
