"""Letting time pass in the rig, where the passing is the point: how long a fault lasts, how far apart requests are."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import TypeVar

T = TypeVar("T")


async def lasting(seconds: float, until: asyncio.Event | None = None) -> None:
    """Return after so many seconds, or as soon as the event is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await (until or asyncio.Event()).wait()


@contextlib.asynccontextmanager
async def aside(manager: AbstractContextManager[T]) -> AsyncIterator[T]:
    """Enter and leave in a thread: what takes a second there keeps no other run from going on here."""
    value = await asyncio.to_thread(manager.__enter__)
    try:
        yield value
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)
