"""Nothing runs and somebody notices: the sentinel beside a real cluster that is taken away piece by piece."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from cronwell.config import DatabaseSettings
from cronwell.runtime.embedded import EmbeddedPostgres
from cronwell.runtime.postgres import Database
from cronwell.store.postgres.migrate import migrate
from tests.support.pages import PagingDesk, paging_desk
from tests.support.postgres import SURVIVES_A_KILL, temporary_server
from tests.support.processes import Cluster, cluster
from tests.support.waiting import until, until_async

LOOK_AHEAD = 6.0
OPTIONS = ("--every", "200ms", "--patience", "1s", "--unanswered", "2s", "--overdue", "2s")


@pytest.fixture
def own_server() -> Iterator[EmbeddedPostgres]:
    with temporary_server(**SURVIVES_A_KILL) as server:
        yield server


@pytest.fixture
def started(own_server: EmbeddedPostgres) -> Iterator[Cluster]:
    with cluster(
        CRONWELL_DATABASE_URL=own_server.url,
        CRONWELL_SCHEDULER_LOOK_AHEAD=f"{LOOK_AHEAD:.0f}s",
        CRONWELL_WORKER_LEASE="2s",
        CRONWELL_WORKER_HEARTBEAT="500ms",
    ) as processes:
        yield processes


@pytest.fixture
def desk() -> Iterator[PagingDesk]:
    with paging_desk() as opened:
        yield opened


def _once(started: Cluster) -> tuple[int, str]:
    look = started.start("sentinel", "--once", *OPTIONS[2:])
    return look.popen.wait(timeout=30), look.output


async def _until_fine(started: Cluster) -> None:
    async def is_fine() -> bool:
        code, _ = await asyncio.to_thread(_once, started)
        return code == 0

    await until_async(is_fine, within=60)


async def test_whatever_is_taken_away_somebody_is_called_and_told_once_that_it_is_back(
    own_server: EmbeddedPostgres, started: Cluster, desk: PagingDesk
) -> None:
    database = await Database.connect(DatabaseSettings(), own_server.url, application_name="test")
    await migrate(database)
    await database.close()
    assert (await asyncio.to_thread(_once, started))[0] == 2, "nothing runs yet"
    schedulers = [started.start("scheduler") for _ in range(2)]
    worker = started.start("worker")
    await _until_fine(started)
    sentinel = started.start("sentinel", *OPTIONS, CRONWELL_SENTINEL_WEBHOOK=desk.url)
    await until(lambda: "sentinel is running" in sentinel.output, within=30)

    began = time.monotonic()
    for each in schedulers:
        each.kill()
    await until(lambda: desk.of("watermark") == ["page"], within=LOOK_AHEAD + 5)
    assert time.monotonic() - began < LOOK_AHEAD, "before anything is late"
    assert (await asyncio.to_thread(_once, started))[0] == 2
    schedulers = [started.start("scheduler") for _ in range(2)]
    await until(lambda: desk.of("watermark") == ["page", "resolve"], within=30)

    worker.kill()
    await until(lambda: desk.of("workers") == ["page"], within=15)
    worker = started.start("worker")
    await until(lambda: desk.of("workers") == ["page", "resolve"], within=30)

    await asyncio.to_thread(own_server.stop, "immediate")
    await until(lambda: desk.of("database") == ["page"], within=15)
    code, told = await asyncio.to_thread(_once, started)
    assert (code, "CRITICAL: the database does not answer" in told) == (2, True)
    await asyncio.to_thread(own_server.start)
    await until(lambda: desk.of("database") == ["page", "resolve"], within=30)
    await _until_fine(started)
    for kind in {each["kind"] for each in desk.notices}:
        events = desk.of(kind)
        await until(lambda kind=kind: desk.of(kind)[-1] == "resolve", within=20)  # type: ignore[misc]  # a default binds it
        assert desk.of(kind) == ["page", "resolve"] * (len(desk.of(kind)) // 2), events
    # On a slow machine a worker may be longer in coming back than the sentinel has patience, which is told as well.
    assert desk.of("database") == desk.of("workers")[:2] == ["page", "resolve"]
    assert sentinel.stop(signal.SIGTERM) == 0, sentinel.output


async def test_the_sentinel_needs_little(started: Cluster) -> None:
    """It must start where the rest of the product cannot: no API, no bus, no coordinator."""
    probe = "import sys, cronwell.sentinel.watching; print(*sorted(m for m in sys.modules if m.startswith('cronwell')))"
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[1] for name in done.stdout.split() if "." in name}
    assert loaded.isdisjoint(
        {"api", "bus", "cli", "control", "coordination", "scheduler", "store", "wiring", "worker"}
    )
