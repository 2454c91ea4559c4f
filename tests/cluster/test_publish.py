"""Messages of real processes: a worker that dies between a message and its result publishes it again, under the same id."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from cronwell.config import Settings
from cronwell.model.execution import Result, State
from tests.support.house import TENANT, House
from tests.support.processes import Cluster, cluster
from tests.support.redis import DURABLE, RedisServer, needs_redis, temporary_redis
from tests.support.waiting import until

pytestmark = needs_redis

TARGET = {"publish": {"redis": {"stream": "orders"}}}
AT_ONCE = {"initial_delay": "0s"}


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with temporary_redis(*DURABLE) as server:
        yield server


@pytest.fixture
async def house(migrated_url: str, redis: RedisServer) -> AsyncIterator[House]:
    opened = await House.open(migrated_url, Settings(brokers={"default": redis.address}))
    yield opened
    await opened.close()


@pytest.fixture
def started(migrated_url: str, redis: RedisServer) -> Iterator[Cluster]:
    with cluster(
        CRONWELL_DATABASE_URL=migrated_url,
        CRONWELL_WORKER_LEASE="3s",
        CRONWELL_WORKER_HEARTBEAT="500ms",
        CRONWELL_PUBLISH_TIMEOUT="60s",
        CRONWELL_BROKERS_DEFAULT=redis.address,
    ) as processes:
        yield processes


async def test_a_worker_that_dies_between_a_message_and_its_result_publishes_it_again(
    house: House, started: Cluster, redis: RedisServer, migrated_url: str
) -> None:
    started.start("scheduler")
    first = started.start("worker")
    # The broker waits until the test has locked the row; then the worker's result waits for the test.
    redis.signal(signal.SIGSTOP)
    await house.create(target=TARGET, retry=AT_ONCE, timeout="60s")
    key = await house.trigger()
    await house.until_state(key, State.RUNNING, within=60)
    holder = await asyncpg.connect(migrated_url)
    try:
        await holder.execute("begin")
        await holder.execute("select 1 from executions for update")
        redis.signal(signal.SIGCONT)
        await until(lambda: redis.entries("orders"), within=30)
        first.kill()
        # What it had already asked the database to write is not written either, when the row is free.
        await holder.execute(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
            " where datname = current_database() and application_name = 'cronwell worker'"
        )
    finally:
        await holder.close()
    started.start("worker")
    done = await house.until_state(key, State.SUCCEEDED, within=60)
    *earlier, last = redis.entries("orders")
    assert earlier, "the message of the dead worker is there"
    assert {entry.fields["execution"] for entry in (*earlier, last)} == {str(key)}
    fences = [int(entry.fields["fence"]) for entry in (*earlier, last)]
    assert fences == sorted(set(fences)), "each attempt has published once"
    assert (int(last.fields["fence"]), last.id) == (done.fence, done.output)
    lost = await house.store.list_attempts(TENANT, key)
    assert Result.WORKER_LOST in {each.result for each in lost}
