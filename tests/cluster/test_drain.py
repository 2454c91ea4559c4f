"""Stopping processes from afar: they end in order wherever they run, and nobody starts them again by mistake."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cronwell.model.execution import State
from tests.support import tally
from tests.support.house import CALLER, House
from tests.support.ports import free_port
from tests.support.postgres import temporary_directory
from tests.support.processes import Cluster, Process, cluster
from tests.support.waiting import until, until_async


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def started(migrated_url: str, tmp_path: Path, port: int) -> Iterator[Cluster]:
    with cluster(
        CRONWELL_DATABASE_URL=migrated_url,
        CRONWELL_PORT=str(port),
        CRONWELL_WORKER_IMPORTS="tests.support.tally",
        TALLY_FOLDER=str(tmp_path),
    ) as processes:
        yield processes


async def _shown(port: int) -> dict[str, Any]:
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/v1/cluster") as reply,
        ):
            shown: dict[str, Any] = await reply.json()
            return shown
    except aiohttp.ClientError:
        return {}


async def _until_shown(port: int, *roles: str) -> dict[str, dict[str, Any]]:
    """Wait until each of these roles has one living process; the processes by role."""

    async def living() -> dict[str, dict[str, Any]]:
        shown = await _shown(port)
        nodes = {each["role"]: each for each in shown.get("nodes", []) if each["state"] == "active"}
        return nodes if set(nodes) >= set(roles) and shown["summary"]["unowned_shards"] == 0 else {}

    return await until_async(living, within=60)


def _ended(process: Process, within: float = 60) -> tuple[int, str]:
    return process.popen.wait(timeout=within), process.output


async def test_a_drained_worker_finishes_what_runs_and_ends_with_0(
    house: House, started: Cluster, port: int, tmp_path: Path
) -> None:
    api, _, worker = (started.start(role) for role in ("api", "scheduler", "worker"))
    nodes = await _until_shown(port, "api", "scheduler", "worker")
    await house.jobs.create(CALLER, {"name": "slow", "target": {"handler": {"name": "tally.wait"}}})
    key = await house.trigger("slow")
    await until(lambda: any(line.event == "start" for line in tally.read(tmp_path)), within=30)
    drain = started.start("drain", nodes["worker"]["name"], "--wait", "--timeout", "50s")

    async def is_draining() -> bool:
        [shown] = [each for each in (await _shown(port))["workers"] if each["node"] == nodes["worker"]["id"]]
        return bool(shown["state"] == "draining")

    await until_async(is_draining, within=20)
    assert worker.is_running, "it lets the attempt finish"
    (tmp_path / "release").touch()
    await house.until_state(key, State.SUCCEEDED)
    assert await asyncio.to_thread(_ended, worker) == (0, worker.output)
    assert await asyncio.to_thread(_ended, drain) == (0, f"worker {nodes['worker']['name']} has stopped\n")
    again = started.start("drain", nodes["worker"]["id"])
    code, told = await asyncio.to_thread(_ended, again)
    assert (code, "is gone: it stopped at" in told) == (4, True)
    unknown = started.start("drain", "nowhere:1")
    code, told = await asyncio.to_thread(_ended, unknown)
    assert (code, "there is no process 'nowhere:1'" in told) == (3, True)
    # Also the one that we talk to.
    drain = started.start("drain", nodes["api"]["id"][:8], "--wait")
    assert await asyncio.to_thread(_ended, api) == (0, api.output)
    assert (await asyncio.to_thread(_ended, drain))[0] == 0


async def test_a_drained_scheduler_gives_its_shards_to_the_other_at_once(
    house: House, started: Cluster, port: int
) -> None:
    started.start("api")
    first = started.start("scheduler")
    nodes = await _until_shown(port, "api", "scheduler")
    owner = nodes["scheduler"]
    started.start("scheduler")

    async def is_shared() -> bool:
        return len({each["owner"] for each in (await _shown(port))["shards"]}) == 2

    await until_async(is_shared, within=60)
    assert started.start("drain", owner["name"], "--wait").popen.wait(timeout=60) == 0
    assert await asyncio.to_thread(_ended, first) == (0, first.output)

    async def are_anothers() -> bool:
        shards = (await _shown(port))["shards"]
        return all(each["owner"] != owner["id"] and each["state"] == "owned" for each in shards)

    await until_async(are_anothers, within=3)


async def test_up_does_not_start_a_drained_role_again_and_ends_when_all_are(port: int) -> None:
    with (
        temporary_directory() as folder,
        cluster(CRONWELL_DATA_DIR=str(folder / "data"), CRONWELL_PORT=str(port)) as processes,
    ):
        up = processes.start("up")
        nodes = await _until_shown(port, "api", "scheduler", "worker")
        for role in ("worker", "scheduler", "api"):
            assert processes.start("drain", nodes[role]["id"], "--wait").popen.wait(timeout=60) == 0
            await until(lambda role=role: f"The {role} was drained" in up.output, within=20)  # type: ignore[misc]  # a default binds the role
        assert await asyncio.to_thread(_ended, up) == (0, up.output)
        assert "Everything is drained." in up.output
        assert "started again" not in up.output.replace("is not started again", "")
