"""Every async test of the targets runs on asyncio's own loop and on uvloop: workers use one, users' tests the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from tests.targets.rig import Receiver, Traces


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A real server on the loopback that remembers what it was sent."""
    async with Receiver() as opened:
        yield opened


@pytest.fixture
async def traces() -> AsyncIterator[Traces]:
    """Fails the test if it leaves a process, a thread or an open file behind."""
    found = Traces()
    yield found
    assert await found.left() == []
