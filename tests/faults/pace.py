"""Letting time pass in the rig, where the passing is the point: how long a fault lasts, how far apart requests are."""

from __future__ import annotations

import asyncio
import contextlib


async def lasting(seconds: float, until: asyncio.Event | None = None) -> None:
    """Return after so many seconds, or as soon as the event is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await (until or asyncio.Event()).wait()
