"""Handlers of the rig's workers: one that will not let go of the event loop."""

from __future__ import annotations

import time
from pathlib import Path

from cronwell import Context, handler

BUSY_SECONDS = 8.0
"""Longer than the lease that the rig gives its workers."""


@handler("rig.busy")
async def busy(ctx: Context) -> None:
    """Keep the loop that it is called on from doing anything else, for longer than a lease."""
    del ctx
    _compute(BUSY_SECONDS)


def _compute(seconds: float) -> None:
    """In stretches of milliseconds with a system call between them: so it also starves other threads, unless they see to it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(100_000))
        Path("/").exists()
