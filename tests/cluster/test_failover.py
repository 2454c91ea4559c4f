"""The whole system, as processes, while its PostgreSQL is lost under load and a standby takes its place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cronwell.config import DatabaseSettings, Settings
from cronwell.model.execution import ExecutionKey, Kind
from cronwell.runtime.postgres import Database
from cronwell.store.postgres.migrate import migrate
from tests.support.house import SECOND, TENANT, House
from tests.support.ports import free_port
from tests.support.processes import Cluster, Process, cluster
from tests.support.receiver import Receiver, receiving
from tests.support.replication import Pair, pair
from tests.support.waiting import until, until_async

CRONS = 20
CRON = {"schedule": "* * * * * *", "catch_up": "all", "overlap": "allow"}
RETRY = {"initial_delay": "100ms", "max_delay": "1s", "max_attempts": 10}
ROLES = ("api", "scheduler", "scheduler", "worker", "worker")
ON_TIME = 1.0
RECOVERY = 15.0
HELD_BACK = 3.0


@dataclass(slots=True)
class Client:
    """Somebody who makes jobs, one after the other, and asks again with the same key until there is an answer."""

    api: str
    target: str
    acknowledged: dict[str, float] = field(default_factory=dict)
    """The names of the jobs whose creation was answered, and when."""
    is_done: bool = False

    async def run(self, session: aiohttp.ClientSession) -> None:
        number = 0
        while not self.is_done:
            number += 1
            await self.create(session, {"name": f"once-{number}", "schedule": "in 1s"})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await asyncio.Event().wait()

    async def create(self, session: aiohttp.ClientSession, job: dict[str, Any]) -> None:
        body = {"target": self.target, "retry": RETRY, **job}

        async def is_answered() -> bool:
            try:
                async with session.post(
                    f"{self.api}/v1/jobs", json=body, headers={"Idempotency-Key": job["name"]}
                ) as answer:
                    assert answer.status in (201, 503), await answer.text()
                    return answer.status == 201
            except (aiohttp.ClientError, TimeoutError):
                return False

        await until_async(is_answered, within=40)
        self.acknowledged[job["name"]] = time.time()


@dataclass(slots=True)
class Scene:
    """The system under load."""

    servers: Pair
    processes: Cluster
    receiver: Receiver
    client: Client
    began_at: datetime
    working: asyncio.Task[None]

    def late(self, since: float) -> list[float]:
        """Arrivals of slots since a time that were late."""
        return [d.arrived for d in self.receiver.deliveries if d.arrived > since and d.lateness > ON_TIME]

    async def is_on_time_again(self, since: float) -> float:
        """Seconds from `since` until slots of crons arrive on time, and three seconds of them have."""
        found: list[float] = []

        def is_so() -> bool:
            late = max(self.late(since), default=since)
            fresh = {d.slot for d in self.receiver.deliveries if d.slot > max(since, late)}
            found[:] = [late - since]
            return len(fresh) >= 3

        await until(is_so, within=40)
        return found[0]

    def events(self, process: Process, words: str) -> list[dict[str, Any]]:
        lines = [line for line in process.output.splitlines() if words in line and line.startswith("{")]
        return [json.loads(line) for line in lines]

    async def settle(self) -> tuple[House, datetime]:
        """Let all that is due end, and return a way to the database and the last slot that is settled."""
        self.client.is_done = True
        await self.working
        house = await House.open(self.servers.url, Settings())
        last = house.clock.now().replace(microsecond=0)

        async def are_done() -> bool:
            left = await house.database.fetchval(
                "select count(*) from executions as e join jobs as j on j.id = e.job_id "
                "where (e.slot <= $1 or j.name like 'once-%') and e.state in ('pending', 'running', 'retrying')",
                last,
            )
            return bool(left == 0)

        await until_async(are_done, within=20)
        return house, last


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    with receiving(tmp_path / "receiver") as made:
        yield made


@contextlib.asynccontextmanager
async def scene(receiver: Receiver, *, is_synchronous: bool) -> AsyncIterator[Scene]:
    """Roles on a pair of servers, crons that fire every second, and a client that goes on making one-offs."""
    port = free_port()
    with (
        pair(is_synchronous=is_synchronous) as servers,
        cluster(
            CRONWELL_DATABASE_URL=servers.url,
            CRONWELL_SCHEDULER_LOOK_AHEAD="5s",
            CRONWELL_WORKER_LEASE="6s",
            CRONWELL_WORKER_HEARTBEAT="500ms",
            CRONWELL_EGRESS_ALLOW="127.0.0.1",
            CRONWELL_PORT=str(port),
        ) as processes,
    ):
        database = await Database.connect(DatabaseSettings(), servers.url, application_name="test")
        await migrate(database)
        await database.close()
        house = await House.open(servers.url, Settings())
        receiver.secret = await house.store.signing_secret(TENANT)
        await house.close()
        for role in ROLES:
            processes.start(role)
        client = Client(f"http://127.0.0.1:{port}", receiver.url)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5)) as session:
            for n in range(CRONS):
                await client.create(session, {"name": f"cron-{n}", **CRON})
            began_at = datetime.now(UTC).replace(microsecond=0) + SECOND
            working = asyncio.create_task(client.run(session))
            await until(lambda: len(receiver.deliveries) > 4 * CRONS, within=40)
            yield Scene(servers, processes, receiver, client, began_at, working)
            client.is_done = True
            await working
        for process in processes.processes:
            assert process.stop() == 0, process.output


async def test_a_failover_to_a_synchronous_standby_loses_nothing_and_doubles_nothing(
    receiver: Receiver,
) -> None:
    async with scene(receiver, is_synchronous=True) as here:
        lost_at = time.time()
        await asyncio.to_thread(here.servers.fail_over)
        assert await here.is_on_time_again(lost_at) < RECOVERY
        house, last = await here.settle()

        jobs = await house.database.fetch("select id, name from jobs")
        assert here.client.acknowledged.keys() <= {row["name"] for row in jobs}
        await _check_slots(house, here.began_at, last)
        onces = await house.database.fetch(
            "select j.name, e.state from executions e join jobs j on j.id = e.job_id where j.name like 'once-%'"
        )
        assert Counter(row["name"] for row in onces if row["state"] == "succeeded") == Counter(
            row["name"] for row in jobs if row["name"].startswith("once-")
        )
        kept = await house.database.fetch(
            "select job_id, kind, slot from executions where state = 'succeeded'"
        )
        arrived = {delivery.headers["webhook-id"] for delivery in receiver.deliveries}
        assert receiver.refused == []
        assert {str(ExecutionKey(row["job_id"], Kind(row["kind"]), row["slot"])) for row in kept} <= arrived
        await house.close()
        for process in here.processes.processes:
            told = here.events(process, "another database server answers")
            told = [event for event in told if "window_s" in event]
            assert [event["event"].endswith("known to be lost") for event in told] == [True], process.output


async def test_a_failover_to_an_asynchronous_standby_tells_what_may_be_lost_and_goes_on(
    receiver: Receiver,
) -> None:
    async with scene(receiver, is_synchronous=False) as here:
        await asyncio.to_thread(here.servers.hold_back)
        held_at = time.time()
        await until(lambda: time.time() > held_at + HELD_BACK)
        await asyncio.to_thread(here.servers.primary.kill)
        lost_at = time.time()
        await asyncio.to_thread(here.servers.standby.promote)
        assert await here.is_on_time_again(lost_at) < RECOVERY
        house, last = await here.settle()

        windows = []
        for process in here.processes.processes:
            told = [
                event
                for event in here.events(process, "another database server answers")
                if "window_s" in event
            ]
            assert [event["event"].endswith("commits are lost") for event in told] == [True], process.output
            windows.append(float(told[0]["window_s"]))
        assert HELD_BACK - 0.5 < max(windows) < lost_at - held_at + 2.5

        there = {row["name"] for row in await house.database.fetch("select name from jobs")}
        missing = {name: at for name, at in here.client.acknowledged.items() if name not in there}
        assert missing, "the test lost something"
        # No older than the bound that was told; and nothing that came before replication was held back.
        assert min(missing.values()) > max(lost_at - max(windows), held_at) - 0.5
        assert max(missing.values()) <= lost_at

        await _check_slots(house, here.began_at, last)
        incarnations = await house.database.fetch("select distinct incarnation from shards")
        assert [row["incarnation"] for row in incarnations] == [house.database.servers.incarnation]
        names = await house.database.fetch("select incarnation from workers where state = 'active'")
        assert {row["incarnation"] for row in names} == {house.database.servers.incarnation}
        await house.close()


async def _check_slots(house: House, first: datetime, last: datetime) -> None:
    """Each slot of each cron from `first` to `last` has one execution, which succeeded and did not start early."""
    rows = await house.database.fetch(
        "select j.name, e.slot, e.state, e.started_at from executions e join jobs j on j.id = e.job_id "
        "where e.slot between $1 and $2 and j.name like 'cron-%'",
        first,
        last,
    )
    slots = [first + timedelta(seconds=n) for n in range((last - first) // SECOND + 1)]
    wanted = Counter((f"cron-{n}", slot, "succeeded") for n in range(CRONS) for slot in slots)
    assert Counter((row["name"], row["slot"], row["state"]) for row in rows) == wanted
    assert [row["slot"] for row in rows if row["started_at"] < row["slot"]] == []
