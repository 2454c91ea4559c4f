"""Two releases side by side: the one before the newest migrations goes on working on the migrated database.

Its code is taken from the repository's history, so there is nothing to keep up to date here; where the history is not
there (an archive, a shallow clone) there is nothing to run.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cronwell.config import SchedulerSettings, Settings
from tests.support.house import CALLER, TENANT, House
from tests.support.ports import free_port
from tests.support.processes import ROOT, Cluster, Process, cluster
from tests.support.receiver import Receiver, receiving
from tests.support.waiting import until, until_async

FIRST_OF_THIS_RELEASE = "src/cronwell/store/postgres/migrations/0003_cluster.sql"
JOBS = 12
LOOK_AHEAD = timedelta(seconds=5)


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"the history is not here: git {arguments[0]} says {done.stderr.decode()[:200]}")
    return done.stdout


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of the release before this one."""
    added = _git("log", "--diff-filter=A", "--format=%H", "--", FIRST_OF_THIS_RELEASE).decode().split()
    if not added:
        pytest.skip("the history is not here: it does not tell when the newest migrations came")
    folder = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=BytesIO(_git("archive", f"{added[-1]}^", "src"))) as archive:
        archive.extractall(folder, filter="data")
    assert not (folder / FIRST_OF_THIS_RELEASE).exists()
    return folder / "src"


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def started(migrated_url: str, port: int) -> Iterator[Cluster]:
    with cluster(
        CRONWELL_DATABASE_URL=migrated_url,
        CRONWELL_PORT=str(port),
        CRONWELL_SCHEDULER_LOOK_AHEAD=f"{LOOK_AHEAD.seconds}s",
        CRONWELL_EGRESS_ALLOW="127.0.0.1",
    ) as processes:
        yield processes


async def _post(port: int, path: str, body: dict[str, Any]) -> bool:
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"http://127.0.0.1:{port}{path}", json=body) as reply,
        ):
            assert reply.status < 300, await reply.text()
            return True
    except aiohttp.ClientConnectionError:
        return False


def _job(name: str, url: str) -> dict[str, Any]:
    return {"name": name, "schedule": "* * * * * *", "target": url, "overlap": "allow"}


def _told(process: Process) -> list[str]:
    """What a process logged that an operator would have to look at."""
    lines = [line for line in process.output.splitlines() if line.strip()]
    return [
        line
        for line in lines
        if not line.startswith("{") or json.loads(line)["level"] not in ("info", "debug")
    ]


def _slots(receiver: Receiver) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for each in receiver.deliveries:
        found.setdefault(each.headers["cronwell-job"], []).append(each.slot)
    return {name: sorted(slots) for name, slots in found.items()}


async def test_a_rolling_restart_from_the_release_before_misses_and_doubles_nothing(
    migrated_url: str, previous: Path, started: Cluster, port: int, tmp_path: Path
) -> None:
    house = await House.open(migrated_url, Settings(scheduler=SchedulerSettings(look_ahead=LOOK_AHEAD)))
    path = os.pathsep.join([str(previous), *filter(None, [os.environ.get("PYTHONPATH")])])

    def old(role: str) -> Process:
        return started.start(role, PYTHONPATH=path, COVERAGE_PROCESS_CONFIG="")  # not what is measured here

    migrate = old("migrate")
    assert await asyncio.to_thread(migrate.popen.wait, 60) == 0, "a database that is ahead is fine"
    assert "the schema is up to date" in migrate.output
    befores = [old(role) for role in ("api", "scheduler", "worker")]
    with receiving(tmp_path / "receiver") as receiver:
        receiver.secret = await house.store.signing_secret(TENANT)
        for number in range(JOBS):
            job = _job(f"old-{number}", receiver.url)
            await until_async(lambda job=job: _post(port, "/v1/jobs", job), within=60)  # type: ignore[misc]  # a default binds it
        await until(lambda: len(receiver.deliveries) >= 3 * JOBS, within=40)
        assert await house.database.fetchval("select count(*) from nodes") == 0, "these are old ones"

        afters = [started.start(role) for role in ("scheduler", "worker")]
        for number in range(JOBS):
            await house.jobs.create(CALLER, _job(f"new-{number}", receiver.url))

        async def are_side_by_side() -> bool:
            return bool(
                await house.database.fetchval("select count(*) = 2 from workers where state = 'active'")
                and await house.database.fetchval(
                    "select count(*) = 64 from shards where marked_at > now() - interval '5 s'"
                )
            )

        await until_async(are_side_by_side, within=40)
        mark = len(receiver.deliveries)
        await until(lambda: len(receiver.deliveries) >= mark + 6 * JOBS, within=30)

        async def have_both_run() -> bool:
            return bool(await house.database.fetchval("select count(distinct worker) = 2 from executions"))

        await until_async(have_both_run, within=30)
        for process in befores:
            assert await asyncio.to_thread(process.stop) == 0, process.output
        mark = len(receiver.deliveries)
        await until(lambda: len(receiver.deliveries) >= mark + 6 * JOBS, within=30)
        last = house.clock.now().timestamp() - 2
        for process in afters:
            assert await asyncio.to_thread(process.stop) == 0, process.output

        assert receiver.refused == []
        doubled = [
            each
            for each, count in Counter(d.headers["webhook-id"] for d in receiver.deliveries).items()
            if count > 1
        ]
        assert doubled == []
        slots = _slots(receiver)
        assert len(slots) == 2 * JOBS
        for name, seen in slots.items():
            assert seen == [seen[0] + n for n in range(len(seen))], f"{name} has a gap"
            assert seen[-1] >= last - 1, name
    rows = await house.database.fetch("select distinct state::text from executions where ready_at < now()")
    assert {row["state"] for row in rows} <= {"succeeded", "pending"}
    for process in befores:
        assert _told(process) == []
    await house.close()
