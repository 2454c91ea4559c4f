"""Waiting in tests: for something to become true, with a deadline, never for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.005


async def until(holds: Callable[[], object], *, within: float = 10.0) -> None:
    """Return once `holds()` is true; fail the test after `within` seconds."""
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, f"still not true after {within} s"
        await asyncio.sleep(_POLL_SECONDS)


async def until_async(holds: Callable[[], Awaitable[T]], *, within: float = 10.0) -> T:
    """Return what `holds()` answers once it is truthy; fail the test after `within` seconds."""
    deadline = time.monotonic() + within
    while not (answer := await holds()):
        assert time.monotonic() < deadline, f"still not true after {within} s"
        await asyncio.sleep(_POLL_SECONDS)
    return answer


def until_blocking(holds: Callable[[], object], *, within: float = 10.0) -> None:
    """`until` for tests without an event loop."""
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, f"still not true after {within} s"
        time.sleep(_POLL_SECONDS)
