"""Workers whose event loop is blocked, or who were stopped in their sleep: nobody is taken for lost who lives, and nobody
goes on who is lost."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from cronwell.config import Settings, ShellSettings
from cronwell.model.execution import ExecutionKey, Result, State
from cronwell.worker.keeper import GAVE_UP
from tests.support import tally
from tests.support.house import TENANT, House
from tests.support.processes import Cluster, cluster
from tests.support.proxy import Proxy, proxy_to
from tests.support.waiting import until, until_async

LEASE = timedelta(seconds=3)
AT_ONCE = {"initial_delay": "0s", "max_attempts": 4}


@pytest.fixture
async def house(migrated_url: str) -> AsyncIterator[House]:
    opened = await House.open(migrated_url, Settings(shell=ShellSettings(enabled=True)))
    yield opened
    await opened.close()


@pytest.fixture
def started(migrated_url: str, tmp_path: Path) -> Iterator[Cluster]:
    with cluster(
        CRONWELL_DATABASE_URL=migrated_url,
        CRONWELL_WORKER_LEASE=f"{LEASE.seconds}s",
        CRONWELL_WORKER_HEARTBEAT="300ms",
        CRONWELL_WORKER_IMPORTS="tests.support.tally",
        CRONWELL_SHELL_ENABLED="true",
        TALLY_FOLDER=str(tmp_path),
    ) as processes:
        yield processes


@pytest.fixture
async def proxy(migrated_url: str) -> AsyncIterator[Proxy]:
    async with proxy_to(migrated_url) as opened:
        yield opened


@pytest.mark.parametrize("handler", ["tally.block", "tally.spin"])
async def test_a_handler_that_blocks_the_loop_for_longer_than_the_lease_is_not_taken_for_lost(
    house: House, started: Cluster, tmp_path: Path, handler: str
) -> None:
    started.start("scheduler")
    started.start("worker")
    key = await _blocking(house, tmp_path, handler)
    began = time.time()
    started.start("worker")
    await until(lambda: time.time() > began + 2.5 * LEASE.total_seconds(), within=20)
    assert (await house.get(key)).state is State.RUNNING
    (tmp_path / "release").touch()
    done = await house.until_state(key, State.SUCCEEDED)
    assert (done.fence, done.attempt, done.output) == (1, 1, "fence 1")
    assert [line.event for line in tally.read(tmp_path)] == ["start", "end"]
    assert await house.store.list_attempts(TENANT, key) == []


async def test_a_blocked_worker_without_a_database_is_gone_before_its_lease_and_so_are_its_commands(
    house: House, started: Cluster, proxy: Proxy, tmp_path: Path
) -> None:
    started.start("scheduler")
    # The margin by which it gives up is a part of its lease: of a longer one, more is left where the machine is busy.
    lease = 3 * LEASE
    doomed = started.start(
        "worker", CRONWELL_DATABASE_URL=proxy.url, CRONWELL_WORKER_LEASE=f"{lease.seconds}s"
    )
    pid_file = tmp_path / "pid"
    await house.create(
        "command", target={"shell": {"command": f"echo $$ > {pid_file}; exec sleep 600"}}, retry=AT_ONCE
    )
    await house.trigger("command")
    await until(lambda: pid_file.exists() and pid_file.read_text().strip(), within=20)
    command = int(pid_file.read_text())
    key = await _blocking(house, tmp_path, "tally.block")

    proxy.go_silent()
    await until(lambda: not doomed.is_running, within=lease.total_seconds() + 2)
    gone_at = house.clock.now()
    lease_until: datetime = await house.database.fetchval("select lease_until from workers")
    assert doomed.popen.returncode == GAVE_UP, doomed.output
    assert gone_at < lease_until
    assert '"event": "this process ends itself"' in doomed.output.splitlines()[-1]
    assert "the event loop is blocked" in doomed.output.splitlines()[-1]
    await until(lambda: not _lives(command), within=1)

    (tmp_path / "release").touch()
    started.start("worker")
    done = await house.until_state(key, State.SUCCEEDED, within=20)
    assert (done.fence, done.output) == (2, "fence 2")
    [lost] = await house.store.list_attempts(TENANT, key)
    assert lost.result is Result.WORKER_LOST
    first, second, end = tally.read(tmp_path)
    assert [(each.event, each.fence) for each in (first, second, end)] == [
        ("start", 1),
        ("start", 2),
        ("end", 2),
    ]
    assert second.at > lease_until.timestamp(), "no two bodies at a time, and none before the lease ended"


async def test_a_worker_that_slept_through_its_lease_has_its_result_refused_and_counted(
    house: House, started: Cluster, tmp_path: Path
) -> None:
    started.start("scheduler")
    zombie = started.start("worker")
    key = await _blocking(house, tmp_path, "tally.block")
    zombie.freeze()
    lease_until: datetime = await house.database.fetchval("select max(lease_until) from workers")
    started.start("worker")
    await house.until_state(key, State.SUCCEEDED, within=20)
    (tmp_path / "release").touch()
    zombie.thaw()
    await until(lambda: "results were refused" in zombie.output)
    assert '"count": 1' in next(line for line in zombie.output.splitlines() if "refused" in line)
    after = await house.get(key)
    assert (after.state, after.fence, after.output) == (State.SUCCEEDED, 2, "fence 2")
    starts = [line for line in tally.read(tmp_path) if line.event == "start"]
    assert [line.fence for line in starts] == [1, 2]
    assert starts[1].at > lease_until.timestamp(), "two bodies overlap only after the lease"

    # It is not blamed for what it slept through: it lives, and enters under a new name.
    async def are_two() -> bool:
        return bool(await house.database.fetchval("select count(*) from workers where state = 'active'") == 2)

    await until_async(are_two)
    assert zombie.is_running


async def test_a_loop_that_is_blocked_for_longer_than_the_limit_is_given_up_and_its_work_done_by_another(
    house: House, started: Cluster, tmp_path: Path
) -> None:
    started.start("scheduler")
    stuck = started.start("worker", CRONWELL_WORKER_STALL_LIMIT="1500ms")
    key = await _blocking(house, tmp_path, "tally.block")
    await until(lambda: not stuck.is_running, within=10)
    assert stuck.popen.returncode == GAVE_UP, stuck.output
    assert "worker.stall_limit" in stuck.output.splitlines()[-1]
    started.start("worker")
    done = await house.until_state(key, State.SUCCEEDED, within=20)
    assert (done.fence, done.output) == (2, "fence 2")


async def _blocking(house: House, folder: Path, handler: str) -> ExecutionKey:
    """Have one execution block the loop of the worker that there is."""
    await house.create("blocking", target={"handler": {"name": handler}}, retry=AT_ONCE)
    key = await house.trigger("blocking")
    await until(lambda: tally.read(folder), within=30)
    return key


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
