"""The handler that does nothing, for workers under measurement (`cronwell worker --import cronwell.bench.noop`)."""

from __future__ import annotations

from cronwell.targets.handler import handler

NAME = "cronwell.noop"


@handler(NAME)
async def noop() -> None:
    """Succeed at once."""
