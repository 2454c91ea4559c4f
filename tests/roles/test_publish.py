"""A worker and a broker that goes away: attempts fail, messages do not."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from cronwell.config import PublishSettings, Settings
from cronwell.model.execution import State
from cronwell.targets.publish import PublishRunner
from tests.support.house import TENANT, House
from tests.support.redis import DURABLE, RedisServer, needs_redis, temporary_redis
from tests.support.waiting import until_async

pytestmark = needs_redis

TARGET = {"publish": {"redis": {"stream": "orders"}}}
SOON_AGAIN = {"max_attempts": 100, "backoff": "fixed", "initial_delay": "300ms", "jitter": 0}


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with temporary_redis(*DURABLE) as server:
        yield server


@pytest.fixture
async def house(migrated_url: str, redis: RedisServer) -> AsyncIterator[House]:
    opened = await House.open(migrated_url, Settings(brokers={"default": redis.address}))
    yield opened
    await opened.close()


async def test_a_lost_broker_costs_attempts_and_no_message(house: House, redis: RedisServer) -> None:
    """Killed, then frozen: what fails meanwhile is tried again until it is there, and its place is free in between."""
    runner = PublishRunner({"default": redis.address}, PublishSettings(timeout=timedelta(seconds=1)))
    await house.create(target=TARGET, retry=SOON_AGAIN, overlap="allow")
    async with house.working({"publish": runner}, concurrency=1):
        keys = [await house.trigger() for _ in range(3)]
        for key in keys:
            await house.until_state(key, State.SUCCEEDED, within=30)
        await asyncio.to_thread(redis.stop)
        keys.append(await house.trigger())
        await house.until_state(keys[-1], State.RETRYING, within=30)
        await asyncio.to_thread(redis.start)
        await house.until_state(keys[-1], State.SUCCEEDED, within=30)
        redis.signal(signal.SIGSTOP)
        keys += [await house.trigger() for _ in range(2)]

        async def have_both_failed() -> bool:
            lost = [await house.store.list_attempts(TENANT, key) for key in keys[-2:]]
            return all(attempts and attempts[0].error_kind == "broker_lost" for attempts in lost)

        # With one place between them.
        await until_async(have_both_failed, within=30)
        redis.signal(signal.SIGCONT)
        for key in keys[-2:]:
            await house.until_state(key, State.SUCCEEDED, within=30)
    await runner.close()
    published = {entry.fields["execution"] for entry in redis.entries("orders")}
    assert published == {str(key) for key in keys}
