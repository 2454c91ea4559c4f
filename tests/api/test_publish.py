"""Publish targets as the API takes, shows and finds them; what it refuses is in test_bad_input."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest_asyncio

from cronwell.config import Settings
from cronwell.runtime.clock import DatabaseClock
from cronwell.runtime.postgres import Database
from tests.api.rig import HOURLY, Caller, serving

BROKERS = {"default": "redis://:hunter2@redis.internal:6379/0", "eu": "rediss://eu.internal"}
ORDERS = {"name": "orders", "target": {"publish": {"redis": {"stream": "orders", "maxlen": 1000}}}}


@pytest_asyncio.fixture(loop_scope="session")
async def publisher(api_database: Database, api_url: str) -> AsyncIterator[Caller]:
    """An installation with two brokers, neither of which has to be there."""
    clock = await DatabaseClock.measured(api_database)
    async with serving(api_database, api_url, clock, Settings(brokers=BROKERS)) as rig:
        yield rig.caller


async def test_a_job_that_publishes_is_made_changed_and_found_by_its_kind(publisher: Caller) -> None:
    made = await publisher.call("POST", "/v1/jobs", ORDERS)
    assert made.status == 201, made.body
    await publisher.call("POST", "/v1/jobs", HOURLY)
    [listed] = (await publisher.get("/v1/jobs?target=publish")).json["items"]
    assert (listed["name"], listed["target"]["publish"]["redis"]["stream"]) == ("orders", "orders")
    change = {"target": {"publish": {"broker": "eu", "redis": {"maxlen": None}}}}
    changed = await publisher.call("PATCH", "/v1/jobs/name:orders", change)
    assert changed.status == 200, changed.body
    assert changed.json["target"]["publish"] == {
        "broker": "eu",
        "redis": {"stream": "orders", "maxlen": None},
    }
    into = {"target": {"http": None, "publish": {"redis": {"stream": "hours"}}}}
    assert (await publisher.call("PATCH", "/v1/jobs/name:hourly", into)).status == 200
    assert len((await publisher.get("/v1/jobs?target=publish")).json["items"]) == 2


async def test_a_broker_that_is_not_there_is_refused_with_those_that_are_and_no_secret(
    publisher: Caller,
) -> None:
    wrong = {"name": "x", "target": {"publish": {"broker": "us", "redis": {"stream": "orders"}}}}
    one = await publisher.call("POST", "/v1/jobs", wrong)
    lines = {"Content-Type": "application/x-ndjson"}
    many = await publisher.call("POST", "/v1/jobs:batch", data=orjson.dumps(wrong), headers=lines)
    assert one.status == 422
    for reply in (one, many):
        said = reply.body.decode()
        for part in ("target.publish.broker", "default, eu", "CRONWELL_BROKERS_US"):
            assert part in said
        assert "hunter2" not in said
        assert ".internal" not in said
    assert (await publisher.get("/v1/jobs")).json["items"] == []
