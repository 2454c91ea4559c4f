"""Tells whether a late event was late, or the whole machine stood still.

A thread of a process of its own wants to wake every few milliseconds and notes each time that it could not. That process
has nothing else to do, so when it is held up, so is everything else. What is judged is an event's lateness without the
time for which the machine stood still meanwhile: a product that is late on a machine that runs is still late.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.processes import ROOT

BEAT_SECONDS = 0.01
NOTED_SECONDS = 0.03
"""A beat that comes later than this is noted; less is the ordinary business of a scheduler of processes."""


@dataclass(frozen=True, slots=True)
class Stall:
    """From when to when nothing ran, on the machine's clock."""

    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Event:
    """What should have happened at `due` and happened at `happened`."""

    name: str
    due: float
    happened: float

    @property
    def lateness(self) -> float:
        return self.happened - self.due


def watch(file: Path) -> None:
    """Note stalls in a file, for as long as the process lives."""
    pause = threading.Event()
    due = time.time() + BEAT_SECONDS
    with file.open("a", buffering=1) as notes:
        while not pause.wait(BEAT_SECONDS):
            now = time.time()
            if now - due > NOTED_SECONDS:
                notes.write(f"{due:.6f} {now:.6f}\n")
            due = now + BEAT_SECONDS


def read(file: Path) -> list[Stall]:
    if not file.exists():
        return []
    return [Stall(*map(float, line.split())) for line in file.read_text().splitlines()]


@contextmanager
def watching(file: Path) -> Iterator[Path]:
    """A process that notes stalls in `file` while the block runs."""
    process = subprocess.Popen([sys.executable, "-m", "tests.support.stalls", str(file)], cwd=ROOT)
    try:
        yield file
    finally:
        process.kill()
        process.wait()


def too_late(events: Iterable[Event], limit: float, stalls: Iterable[Stall]) -> tuple[list[str], list[str]]:
    """The events that came after more than `limit` seconds, and those that did only because the machine stood still."""
    stalls = list(stalls)
    failed: list[str] = []
    excused: list[str] = []
    for event in events:
        if event.lateness < limit:
            continue
        stood = sum(max(0.0, min(each.ended, event.happened) - max(each.began, event.due)) for each in stalls)
        told = f"{event.name}: {event.lateness * 1000:.0f} ms late, {stood * 1000:.0f} ms of it the machine stood still"
        (excused if event.lateness - stood < limit else failed).append(told)
    return failed, excused


def skip_for(excused: list[str]) -> None:
    """Say that a test could not judge: its last line, once all else has been shown."""
    if excused:
        pytest.skip(f"the machine stood still, so these prove nothing: {'; '.join(excused)}")


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
