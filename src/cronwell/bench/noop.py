"""Handlers for workers under measurement (`cronwell worker --import cronwell.bench.noop`): one does nothing, one waits."""

from __future__ import annotations

import asyncio
import signal

from cronwell.targets.handler import handler

NAME = "cronwell.noop"
WAIT = "cronwell.wait"
LET_GO = signal.SIGUSR1
"""Sent to a worker, it ends the waiting of every handler that waits there."""

_waiting: set[asyncio.Future[None]] = set()


@handler(NAME)
async def noop() -> None:
    """Succeed at once."""


@handler(WAIT)
async def wait() -> None:
    """Wait until the worker is sent LET_GO, or the attempt is cancelled."""
    loop = asyncio.get_running_loop()
    if not _waiting:
        loop.add_signal_handler(LET_GO, _let_go)
    # In a set, from which one of a hundred thousand is taken out in no time.
    future: asyncio.Future[None] = loop.create_future()
    _waiting.add(future)
    try:
        await future
    finally:
        _waiting.discard(future)


def _let_go() -> None:
    for future in list(_waiting):
        if not future.done():
            future.set_result(None)
