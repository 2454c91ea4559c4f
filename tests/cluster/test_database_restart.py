"""The whole system, as processes, while PostgreSQL dies under load and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from cronwell.config import DatabaseSettings, Settings
from cronwell.model.execution import ExecutionKey
from cronwell.runtime.embedded import EmbeddedPostgres
from cronwell.runtime.postgres import Database
from cronwell.store.postgres.migrate import migrate
from tests.support import tally
from tests.support.house import CALLER, SECOND, House
from tests.support.postgres import SURVIVES_A_KILL, temporary_server
from tests.support.processes import Cluster, cluster
from tests.support.waiting import until, until_async, until_blocking

JOBS = 100
"""Each fires every second and takes one: as many executions begin each second, and as many run at any moment."""
BEFORE = 3 * SECOND
AFTER = 4 * SECOND


@pytest.fixture
def own_server() -> Iterator[EmbeddedPostgres]:
    with temporary_server(**SURVIVES_A_KILL) as server:
        yield server


@pytest.fixture
def started(own_server: EmbeddedPostgres, tmp_path: Path) -> Iterator[Cluster]:
    with cluster(
        CRONWELL_DATABASE_URL=own_server.url,
        CRONWELL_SCHEDULER_LOOK_AHEAD="5s",
        CRONWELL_WORKER_LEASE="3s",
        CRONWELL_WORKER_HEARTBEAT="500ms",
        CRONWELL_WORKER_IMPORTS="tests.support.tally",
        TALLY_FOLDER=str(tmp_path),
    ) as processes:
        yield processes


def restart_immediately(server: EmbeddedPostgres) -> None:
    server.restart("immediate")


def kill_and_start(server: EmbeddedPostgres) -> None:
    os.kill(server.pid, signal.SIGKILL)
    until_blocking(lambda: not server.is_running)
    assert server.ensure_running()


@pytest.mark.parametrize("die", [restart_immediately, kill_and_start])
async def test_every_slot_succeeds_once_although_postgresql_died_under_load(
    own_server: EmbeddedPostgres, started: Cluster, tmp_path: Path, die: Callable[[EmbeddedPostgres], None]
) -> None:
    first = await _create_jobs(own_server.url)
    for role in ("scheduler", "scheduler", "worker", "worker"):
        started.start(role)
    await until(lambda: _ends_since(tmp_path, first + BEFORE) >= JOBS, within=60)

    pid = own_server.pid
    await until(lambda: _are_running(tmp_path), within=10)
    await asyncio.to_thread(die, own_server)
    assert own_server.pid != pid
    house = await House.open(own_server.url, Settings())
    last = (house.clock.now() + AFTER).replace(microsecond=0)
    await until(lambda: _ends_since(tmp_path, last) >= JOBS, within=60)

    async def are_done() -> bool:
        left = await house.database.fetchval(
            "select count(*) from executions where slot <= $1 and state in ('pending', 'running', 'retrying')",
            last,
        )
        return bool(left == 0)

    await until_async(are_done, within=30)
    for process in started.processes:
        assert process.stop() == 0, process.output
    assert await house.database.fetchval("select count(*) from executions where state = 'running'") == 0
    await _check_window(house, first, last)
    await house.close()
    _check_starts(tmp_path)


def _are_running(folder: Path) -> bool:
    """Whether attempts run. Between the ends of one second and the starts of the next there may be none for a moment."""
    events = Counter(line.event for line in tally.read(folder))
    return events["start"] > events["end"]


async def _create_jobs(url: str) -> datetime:
    """Jobs that fire each second, may overlap, and miss nothing; returns the first slot that all of them have."""
    database = await Database.connect(DatabaseSettings(), url, application_name="test")
    await migrate(database)
    await database.close()
    house = await House.open(url, Settings())
    made = await house.jobs.create_many(
        CALLER,
        [
            {
                "name": f"job-{n}",
                "schedule": "* * * * * *",
                "target": {"handler": {"name": "tally.second"}},
                "overlap": "allow",
                "catch_up": "all",
                "retry": {"initial_delay": "0s", "max_attempts": 10},
            }
            for n in range(JOBS)
        ],
    )
    assert all(each.error is None for each in made)
    first = house.clock.now().replace(microsecond=0) + SECOND
    await house.close()
    return first


async def _check_window(house: House, first: datetime, last: datetime) -> None:
    """Each slot of each job from `first` to `last` has one execution, which succeeded and did not start early."""
    rows = await house.database.fetch(
        "select job_id, slot, state, started_at from executions where slot between $1 and $2", first, last
    )
    verdicts = Counter((row["job_id"], row["slot"], row["state"]) for row in rows)
    jobs = {row["job_id"] for row in rows}
    seconds = (last - first) // SECOND + 1
    slots = [first + timedelta(seconds=n) for n in range(seconds)]
    assert len(jobs) == JOBS
    assert verdicts == Counter((job, slot, "succeeded") for job in jobs for slot in slots)
    assert [row["slot"] for row in rows if row["started_at"] < row["slot"]] == []


def _check_starts(folder: Path) -> None:
    """No attempt began before its slot, and no fence began twice: a retry has a fence of its own."""
    starts = [line for line in tally.read(folder) if line.event == "start"]
    early = [line for line in starts if line.at < ExecutionKey.parse(line.execution).slot.timestamp()]
    assert early == []
    assert max(Counter((line.execution, line.fence) for line in starts).values()) == 1


def _ends_since(folder: Path, slot: datetime) -> int:
    return sum(
        line.event == "end" and ExecutionKey.parse(line.execution).slot >= slot for line in tally.read(folder)
    )
