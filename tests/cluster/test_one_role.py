"""One role as a process by itself: what it may do, what it leaves behind, and what it says of itself."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from cronwell.model.execution import State
from cronwell.runtime.web import first_answer
from tests.support.house import TENANT, House
from tests.support.ports import free_port
from tests.support.processes import Cluster, cluster
from tests.support.receiver import receiving
from tests.support.waiting import until_async


@pytest.fixture
def started(migrated_url: str) -> Iterator[Cluster]:
    with cluster(CRONWELL_DATABASE_URL=migrated_url) as processes:
        yield processes


@pytest.fixture
def port() -> int:
    return free_port()


async def test_a_worker_by_itself_may_not_call_its_own_machine(
    house: House, started: Cluster, tmp_path: Path
) -> None:
    started.start("worker")
    with receiving(tmp_path / "receiver") as receiver:
        receiver.secret = await house.store.signing_secret(TENANT)
        await house.create(target=receiver.url)
        ended = await house.until_state(await house.trigger(), State.SUCCEEDED, State.FAILED, within=60)
        assert (ended.state, ended.error_kind) == (State.FAILED, "egress")
        assert receiver.deliveries == []


async def test_a_worker_by_itself_may_call_what_the_setting_allows(
    house: House, started: Cluster, tmp_path: Path
) -> None:
    started.start("worker", CRONWELL_EGRESS_ALLOW="127.0.0.1")
    with receiving(tmp_path / "receiver") as receiver:
        receiver.secret = await house.store.signing_secret(TENANT)
        await house.create(target=receiver.url)
        await house.until_state(await house.trigger(), State.SUCCEEDED, within=60)
        assert len(receiver.deliveries) == 1


@pytest.mark.parametrize("role", ["worker", "scheduler"])
async def test_a_role_that_cannot_listen_ends_and_leaves_nothing_in_the_database(
    house: House, started: Cluster, role: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = started.start(role, CRONWELL_OPS_PORT=str(port))
        assert process.popen.wait(timeout=60) != 0
    assert f"cannot listen on 127.0.0.1:{port}" in process.output
    assert "choose another with CRONWELL_OPS_PORT" in process.output
    assert await house.database.fetchval("select count(*) from workers") == 0
    assert await house.database.fetchval("select count(*) from members") == 0


@pytest.mark.parametrize("role", ["worker", "api"])
async def test_a_role_is_not_ready_while_the_database_lacks_a_migration(
    house: House, started: Cluster, port: int, role: str
) -> None:
    setting = "CRONWELL_PORT" if role == "api" else "CRONWELL_OPS_PORT"
    started.start(role, **{setting: str(port)})

    async def says(*reasons: str) -> bool:
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{port}/readyz") as reply,
            ):
                told = await reply.json()
                return (reply.status, told["reasons"]) == (503 if reasons else 200, list(reasons))
        except aiohttp.ClientConnectionError:
            return False

    await until_async(says, within=60)
    await house.database.execute("alter table schema_migrations rename to put_aside")
    reason = "the database lacks migration 0001 (core); run `cronwell migrate`"
    await until_async(lambda: says(reason), within=20)
    await house.database.execute("alter table put_aside rename to schema_migrations")
    await until_async(says, within=20)


EVERYWHERE = "0.0.0.0"


async def test_an_api_that_others_reach_starts_once_there_is_a_key(started: Cluster, port: int) -> None:
    given = {"CRONWELL_HOST": EVERYWHERE, "CRONWELL_PORT": str(port)}
    refused = started.start("api", **given)
    assert refused.popen.wait(timeout=60) == 2
    assert "run `cronwell bootstrap`" in refused.output
    made = started.start("bootstrap")
    assert made.popen.wait(timeout=60) == 0, made.output
    key = next(line for line in made.output.splitlines() if line.startswith("cw_"))
    api = started.start("api", **given)
    address = f"http://127.0.0.1:{port}"
    assert await first_answer("127.0.0.1", port, "/healthz", timedelta(seconds=30)), api.output
    async with aiohttp.ClientSession() as session:
        statuses = []
        for path in ("/v1/jobs", "/metrics", "/v1/cluster"):
            for headers in ({}, {"Authorization": f"Bearer {key}"}):
                async with session.get(address + path, headers=headers) as answer:
                    statuses.append(answer.status)
    assert statuses == [401, 200, 401, 200, 401, 200]
    listed = started.start("key", "list", CRONWELL_URL=address, CRONWELL_API_KEY=key)
    assert listed.popen.wait(timeout=60) == 0
    assert key[:15] in listed.output
    assert key not in listed.output
    unknown = started.start("bootstrap", "--tenant", "nobody")
    assert unknown.popen.wait(timeout=60) == 1
    assert "there is no tenant 'nobody'" in unknown.output
