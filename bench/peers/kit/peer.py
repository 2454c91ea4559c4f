"""The worker's side of the protocol, for peers in Python: every start in memory, told at the end."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable

WORK = os.environ["PEER_WORK"]
JOBS = int(os.environ["PEER_JOBS"])
RATE = int(os.environ["PEER_RATE"])
SCHEDULES = int(os.environ["PEER_SCHEDULES"])
PERIOD = float(os.environ["PEER_PERIOD"])
START = float(os.environ["PEER_START"])
CORES = int(os.environ["PEER_CORES"])
DATABASE_URL = os.environ["PEER_DATABASE_URL"]
REDIS_URL = os.environ["PEER_REDIS_URL"]

_seen: list[tuple[float, float | None, int | None]] = []
_voice = threading.Lock()


def due(number: int) -> float:
    """When a job of the steady rate is due."""
    return START + number / RATE


def started(moment: float | None = None, key: int | None = None) -> None:
    """Keep that a job has started: the moment that it was due, and its number, where known."""
    # One append, because handlers may run in several threads.
    _seen.append((time.time(), moment, key))


def say(**words: object) -> None:
    """One line to the runner."""
    with _voice:
        sys.stdout.write(json.dumps(words) + "\n")
        sys.stdout.flush()


def watch(stop: Callable[[], object]) -> None:
    """Say that jobs are taken from now on, tell how many started, and call `stop` when the runner closes the input."""

    def tell() -> None:
        told = 0
        while True:
            time.sleep(0.05)
            if len(_seen) != told:
                told = len(_seen)
                say(done=told)

    def listen() -> None:
        sys.stdin.read()
        stop()

    say(ready=True)
    threading.Thread(target=tell, daemon=True).start()
    threading.Thread(target=listen, daemon=True).start()


def report() -> None:
    """The last line: every start."""
    seen = list(_seen)
    has_dues = all(due is not None for _, due, _ in seen)
    has_keys = all(key is not None for _, _, key in seen)
    say(
        starts=[start for start, _, _ in seen],
        dues=[due for _, due, _ in seen] if has_dues else None,
        keys=[key for _, _, key in seen] if has_keys else None,
    )
