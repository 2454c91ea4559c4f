"""Handlers of the rig's workers: one that will not let go of the event loop."""

from __future__ import annotations

import time

from cronwell import Context, handler

BUSY_SECONDS = 8.0
"""Longer than the lease that the rig gives its workers."""


@handler("rig.busy")
async def busy(ctx: Context) -> None:
    """Keep the loop that it is called on from doing anything else, for longer than a lease."""
    del ctx
    end = time.monotonic() + BUSY_SECONDS
    while time.monotonic() < end:
        pass
