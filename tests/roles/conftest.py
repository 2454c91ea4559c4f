"""A house whose clock stands still until a test moves it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from cronwell.config import Settings
from cronwell.runtime.clock import ManualClock
from tests.support.house import House


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 5, 5, 12, tzinfo=UTC))


@pytest.fixture
async def still_house(migrated_url: str, clock: ManualClock) -> AsyncIterator[House]:
    opened = await House.open(migrated_url, Settings(), clock)
    yield opened
    await opened.close()
