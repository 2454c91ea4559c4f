"""The database is lost and restored from its backups, to a moment that is past: what becomes of jobs and slots."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cronwell.config import DatabaseSettings, Settings
from cronwell.runtime.clock import ManualClock
from cronwell.runtime.postgres import Database
from cronwell.store.postgres.migrate import migrate
from tests.support.backups import Backups, backups
from tests.support.house import SECOND, TENANT, House
from tests.support.ports import free_port
from tests.support.processes import Cluster, Process, cluster
from tests.support.receiver import Delivery, Receiver, receiving
from tests.support.waiting import until, until_async

LOOK_AHEAD = 3.0
GRACE = 1.0
BEYOND = 3.0
"""Seconds that go on after the last slot that was staged at the moment of the restore."""
EACH_SECOND = {"schedule": "* * * * * *", "overlap": "allow", "catch_up_window": "1h"}
LOAD = 10
UNFINISHED = ("pending", "running", "retrying")


@dataclass(slots=True)
class Scene:
    """A cluster whose PostgreSQL has backups, and the API's client."""

    backups: Backups
    processes: Cluster
    receiver: Receiver
    api: str
    session: aiohttp.ClientSession
    roles: dict[str, Process]

    def start(self, role: str) -> None:
        self.roles[role] = self.processes.start(role)

    def kill(self, *roles: str) -> None:
        for role in roles:
            self.roles.pop(role).kill()

    async def create(self, name: str, **fields: Any) -> None:
        job = {"name": name, "target": self.receiver.url, **fields}
        headers = {"Idempotency-Key": name}
        async with self.session.post(f"{self.api}/v1/jobs", json=job, headers=headers) as answer:
            assert answer.status == 201, await answer.text()

    async def trigger(self, name: str) -> str:
        return str((await self._tell(name, "trigger"))["id"])

    async def pause(self, name: str) -> None:
        await self._tell(name, "pause")

    async def _tell(self, name: str, verb: str) -> dict[str, Any]:
        async with self.session.post(f"{self.api}/v1/jobs/name:{name}/{verb}", json={}) as answer:
            assert answer.status < 300, await answer.text()
            told: dict[str, Any] = await answer.json()
            return told

    async def status_of(self, path: str) -> int:
        """What the API answers; 0 where it does not."""
        try:
            async with self.session.get(f"{self.api}{path}") as answer:
                return answer.status
        except (aiohttp.ClientError, TimeoutError):
            return 0

    async def until_ready(self) -> None:
        async def is_ready() -> bool:
            return await self.status_of("/readyz") == 200

        await until_async(is_ready, within=40)

    def of(self, job: str, since: float = 0.0) -> list[Delivery]:
        return [d for d in self.receiver.deliveries if d.body["job"] == job and d.arrived > since]

    def events(self, role: str, words: str) -> list[dict[str, Any]]:
        lines = [line for line in self.roles[role].output.splitlines() if words in line]
        return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    with receiving(tmp_path / "receiver") as made:
        yield made


@contextlib.asynccontextmanager
async def scene(receiver: Receiver) -> AsyncIterator[Scene]:
    port = free_port()
    with (
        backups() as made,
        cluster(
            CRONWELL_DATABASE_URL=made.url,
            CRONWELL_SCHEDULER_LOOK_AHEAD=f"{LOOK_AHEAD:.0f}s",
            CRONWELL_SCHEDULER_LATE_GRACE=f"{GRACE:.0f}s",
            CRONWELL_WORKER_LEASE="6s",
            CRONWELL_WORKER_HEARTBEAT="500ms",
            CRONWELL_SHELL_ENABLED="true",
            CRONWELL_EGRESS_ALLOW="127.0.0.1",
            CRONWELL_PORT=str(port),
        ) as processes,
    ):
        database = await Database.connect(DatabaseSettings(), made.url, application_name="test")
        await migrate(database)
        await database.close()
        house = await House.open(made.url, Settings())
        receiver.secret = await house.store.signing_secret(TENANT)
        await house.close()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5)) as session:
            here = Scene(made, processes, receiver, f"http://127.0.0.1:{port}", session, {})
            for role in ("api", "scheduler", "worker"):
                here.start(role)
            await here.until_ready()
            yield here
        for process in here.roles.values():
            assert process.stop() == 0, process.output


async def test_a_restore_to_a_moment_runs_what_came_after_it_by_policy_under_the_same_ids(
    receiver: Receiver,
) -> None:
    async with scene(receiver) as here:
        for policy in ("none", "last", "all"):
            await here.create(policy, catch_up=policy, **EACH_SECOND)
        for n in range(LOAD):
            await here.create(f"load-{n}", **EACH_SECOND)
        await here.create("held", catch_up="all", **EACH_SECOND)
        await here.create("manual")
        await here.create(
            "long", target={"shell": {"command": "exec sleep 5"}}, retry={"initial_delay": "100ms"}
        )
        await until(lambda: len(here.of("all")) > 1, within=30)
        await asyncio.to_thread(here.backups.take_base)

        early_trigger = await here.trigger("manual")
        await until(lambda: here.of("manual"))
        await here.create("once", schedule="in 4s")
        long = await here.trigger("long")
        await until_async(lambda: _is_running(here, long))
        moment = here.backups.server.ask("select clock_timestamp()")
        at = datetime.fromisoformat(f"{moment}:00" if moment[-3] in "+-" else moment)

        # What happens from here on, the restored database will not know.
        await here.create("after", **EACH_SECOND)
        late_trigger = await here.trigger("manual")
        gone_on = at + timedelta(seconds=LOOK_AHEAD + GRACE + BEYOND)
        await until(lambda: any(d.slot > gone_on.timestamp() for d in here.of("all")), within=30)
        assert here.of("once")
        await asyncio.to_thread(here.backups.until_archived)
        lost_at = time.time()
        await asyncio.to_thread(here.backups.server.kill)
        here.kill("scheduler", "worker")
        before = list(here.receiver.deliveries)

        await asyncio.to_thread(here.backups.restore, moment)
        # With the API alone one can look: nothing is staged and nothing runs.
        await here.until_ready()
        assert await here.status_of("/v1/jobs/name:once") == 200
        assert await here.status_of("/v1/jobs/name:after") == 404
        house = await House.open(here.backups.url, Settings())
        await _check_what_the_living_tell(here, at, lost_at)
        reconciled = await house.reconcile.reconcile(TENANT, since=at, before=house.clock.now())
        assert reconciled.missing >= BEYOND * (3 + LOAD)
        staged = await house.database.fetch("select job_id, slot from executions where kind = 'scheduled'")
        done = await house.database.fetch(
            "select job_id, kind, slot from executions where state = 'succeeded'"
        )

        # What must not run a second time is held back.
        await here.pause("held")

        # With a scheduler each slot gets its verdict, and still nothing runs.
        here.start("scheduler")

        async def is_accounted_for() -> bool:
            found = await house.reconcile.reconcile(TENANT, since=at, before=house.clock.now())
            return found.missing == 0

        await until_async(is_accounted_for, within=30)
        assert here.receiver.deliveries == before

        here.start("worker")
        began = time.time()
        await until(lambda: any(d.slot > began for d in here.of("all", began)), within=30)
        last = house.clock.now().replace(microsecond=0) - SECOND
        await until_async(lambda: _is_settled(house, last), within=30)

        names = {row["id"]: row["name"] for row in await house.database.fetch("select id, name from jobs")}
        known = {(names[row["job_id"]], row["slot"]) for row in staged if row["job_id"] in names}
        await _check_policies(here, house, known, at, last, began)
        _check_ids(here, before, began)
        # What had succeeded by then stays so and is not sent again.
        again = {(d.body["job"], d.slot) for d in here.receiver.deliveries if d.arrived > began}
        assert not again & {(names[row["job_id"]], row["slot"].timestamp()) for row in done}
        assert {d.headers["webhook-id"] for d in here.of("manual")} == {early_trigger, late_trigger}
        assert await here.status_of(f"/v1/executions/{early_trigger}") == 200
        assert await here.status_of(f"/v1/executions/{late_trigger}") == 404
        assert [d.headers["webhook-id"] for d in here.of("once")] == [
            here.of("once")[0].headers["webhook-id"]
        ] * 2

        assert here.of("held", began) == []
        await here.create("after", **EACH_SECOND)
        assert await here.status_of("/v1/jobs/name:after") == 200

        # What ran at that moment was lost with its worker, and is tried again.
        attempts = await house.database.fetch(
            "select a.result from attempts a join jobs j on j.id = a.job_id where j.name = 'long'"
        )
        assert [row["result"] for row in attempts] == ["worker_lost"]

        incarnation = house.database.servers.incarnation
        assert incarnation is not None
        assert incarnation.endswith("/00000002")
        for table in ("shards", "workers where state = 'active'"):
            rows = await house.database.fetch(f"select distinct incarnation from {table}")
            assert [row["incarnation"] for row in rows] == [incarnation]
        await house.close()


async def test_a_dump_restored_into_a_new_server_goes_on_from_its_cursors() -> None:
    with backups() as made:
        database = await Database.connect(DatabaseSettings(), made.url, application_name="test")
        await migrate(database)
        await database.close()
        house = await House.open(made.url, Settings())
        job = await house.create(schedule="*/5 * * * * *")
        await house.staging().run_once()
        await asyncio.to_thread(made.take_dump)
        before = await house.history(job)
        await house.create("after", schedule="*/5 * * * * *")
        incarnation = made.server.ask("select incarnation()")
        await house.close()

        await asyncio.to_thread(made.restore_dump)
        assert made.server.ask("select incarnation()") != incarnation
        database = await Database.connect(DatabaseSettings(), made.url, application_name="test")
        assert await migrate(database) == []
        await database.close()
        later = ManualClock(datetime.now(UTC) + timedelta(minutes=3))
        house = await House.open(made.url, Settings(), later)
        assert made.server.ask("select name from jobs") == "job"
        while await house.staging().run_once():
            pass
        slots = [each.key.slot for each in await house.history(job)]
        assert slots[: len(before)] == [each.key.slot for each in before]
        assert len(slots) > len(before)
        assert slots == [slots[0] + 5 * n * SECOND for n in range(len(slots))]
        await house.close()


async def _check_what_the_living_tell(here: Scene, at: datetime, lost_at: float) -> None:
    """The API has lived through it: it says that commits are lost, and how far back at most."""
    words = "another database server answers"
    await until(lambda: here.events("api", words))
    [told] = here.events("api", words)
    assert told["event"] == "another database server answers, and commits are lost"
    lost = lost_at - at.timestamp()
    # It looks once a second, on a machine that has other things to do.
    assert lost - 1.5 < told["window_s"] < lost + 3


async def _check_policies(
    here: Scene, house: House, staged: set[tuple[str, datetime]], at: datetime, last: datetime, began: float
) -> None:
    """What was staged by the moment runs; of what was not, by its job's policy, each with its verdict."""
    rows = await house.database.fetch(
        "select j.name, e.slot, e.state, e.reason from executions e join jobs j on j.id = e.job_id "
        "where e.slot between $1 and $2 and j.name in ('none', 'last', 'all')",
        at,
        last,
    )
    of: defaultdict[str, dict[datetime, tuple[str, str | None]]] = defaultdict(dict)
    for row in rows:
        assert row["slot"] not in of[row["name"]]
        of[row["name"]][row["slot"]] = (row["state"], row["reason"])
    first = at.replace(microsecond=0) + SECOND
    slots = {first + n * SECOND for n in range((last - first) // SECOND + 1)}
    for name, verdicts in of.items():
        assert verdicts.keys() == slots, name
        assert {verdicts[slot][0] for slot in slots if (name, slot) in staged} == {"succeeded"}, name
    assert {state for state, _ in of["all"].values()} == {"succeeded"}
    for name, runs in (("none", 0), ("last", 1)):
        missed = {slot for slot, (_, reason) in of[name].items() if reason == "catch_up"}
        assert len(missed) >= BEYOND, name
        states = Counter(of[name][slot][0] for slot in missed)
        assert states == Counter({"skipped": len(missed) - runs, "succeeded": runs}), name
        if runs:
            assert of[name][max(missed)][0] == "succeeded"
        sent = {d.slot for d in here.of(name, began)}
        skipped = {slot.timestamp() for slot in missed if of[name][slot][0] == "skipped"}
        assert not sent & skipped, name


def _check_ids(here: Scene, before: list[Delivery], began: float) -> None:
    """A slot that ran before the loss and again after it has one id, and its fences begin anew."""
    ids: defaultdict[tuple[str, float], set[str]] = defaultdict(set)
    for delivery in here.receiver.deliveries:
        if delivery.body["job"] != "manual":
            ids[delivery.body["job"], delivery.slot].add(delivery.headers["webhook-id"])
    assert max(len(each) for each in ids.values()) == 1
    assert here.receiver.refused == []
    was = {d.headers["webhook-id"]: d for d in before}
    twice = [d for d in here.receiver.deliveries if d.arrived > began and d.headers["webhook-id"] in was]
    assert len({d.body["job"] for d in twice}) >= LOAD
    assert "1" in {d.headers["cronwell-fence"] for d in twice}


async def _is_running(here: Scene, execution: str) -> bool:
    async with here.session.get(f"{here.api}/v1/executions/{execution}") as answer:
        return bool((await answer.json())["state"] == "running")


async def _is_settled(house: House, last: datetime) -> bool:
    left = await house.database.fetchval(
        "select count(*) from executions where slot <= $1 and state = any($2::execution_state[])",
        last,
        UNFINISHED,
    )
    return bool(left == 0)
