"""`cronwell up` as a user runs it: one command, an embedded PostgreSQL, webhooks on the instant, Ctrl-C, start again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cronwell.runtime.service import SAME_SIGNAL
from tests.support.ports import free_port
from tests.support.postgres import furnish, temporary_directory
from tests.support.processes import Cluster, Process, cluster
from tests.support.receiver import Delivery, Receiver, receiving
from tests.support.stalls import Event, skip_for, too_late
from tests.support.waiting import until, until_async

READY = 60.0
ON_TIME = 0.25


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with temporary_directory() as folder:
        furnish(folder / "data")
        yield folder / "data"


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def started(data_dir: Path, port: int) -> Iterator[Cluster]:
    with cluster(CRONWELL_DATA_DIR=str(data_dir), CRONWELL_PORT=str(port)) as processes:
        yield processes


class Client:
    """Talks to the running service."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    async def call(self, method: str, path: str, body: object = None) -> Any:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.url + path, json=body) as answer,
        ):
            assert answer.status < 400, await answer.text()
            return await answer.json()

    async def is_ready(self) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.url}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def count(self, state: str) -> int:
        page = await self.call("GET", f"/v1/executions?state={state}&limit=1000")
        return len(page["items"])


def _secret(started: Cluster) -> str:
    """What `cronwell signing-secret` prints."""
    process = started.start("signing-secret")
    assert process.popen.wait(timeout=60) == 0, process.output
    return process.output.strip().splitlines()[-1]


async def _up(started: Cluster, client: Client) -> Process:
    process = started.start("up")
    await until_async(client.is_ready, within=READY)
    return process


async def test_webhooks_arrive_on_the_instant_and_verify_and_survive_a_restart(
    started: Cluster, port: int, tmp_path: Path
) -> None:
    client = Client(port)
    process = await _up(started, client)
    with receiving(tmp_path / "receiver") as receiver:
        receiver.secret = _secret(started)
        await client.call(
            "POST", "/v1/jobs", {"name": "once", "schedule": "in 2s", "target": f"{receiver.url}/once"}
        )
        await client.call(
            "POST",
            "/v1/jobs",
            {"name": "ticks", "schedule": "*/1 * * * * *", "target": f"{receiver.url}/ticks"},
        )
        await until(lambda: len(receiver.deliveries) >= 10, within=30)
        deliveries = receiver.deliveries[:10]
        assert [each.headers["cronwell-job"] for each in deliveries].count("once") == 1
        excused = await _check(receiver, client, deliveries)
        assert "Webhooks may call this machine" in process.output
        metrics = await _text(client, "/metrics")
        assert 'cronwell_attempts_total{result="succeeded",target="http"}' in metrics
        assert "cronwell_start_lateness_seconds_bucket" in metrics

        assert process.stop(signal.SIGINT) == 0, process.output
        assert "Stopped. All data is kept" in process.output
        before = len(receiver.deliveries)

        process = await _up(started, client)
        job = await client.call("GET", "/v1/jobs/name:ticks")
        assert (job["state"], job["schedule"]) == ("active", "*/1 * * * * *")
        assert (await client.call("GET", "/v1/jobs/name:once"))["state"] == "finished"
        # What came due while nothing ran is delivered first, and late; from then on each is on the instant again.
        await until(lambda: len(receiver.deliveries) > before, within=30)
        again = receiver.deliveries[before].arrived
        await until(lambda: sum(each.slot > again for each in receiver.deliveries) >= 5, within=30)
        excused += await _check(
            receiver, client, [each for each in receiver.deliveries if each.slot > again][:5]
        )
        assert process.stop() == 0, process.output
    skip_for(excused)


async def test_a_killed_parent_takes_its_children_along_and_the_next_one_finds_everything(
    started: Cluster, port: int, data_dir: Path
) -> None:
    client = Client(port)
    process = await _up(started, client)
    await client.call("POST", "/v1/jobs", {"name": "kept", "schedule": "@daily", "target": client.url})
    children = _children(process.popen.pid)
    assert len(children) >= 3
    process.kill()

    async def are_gone() -> bool:
        return not any(_is_alive(pid) for pid in children)

    await until_async(are_gone, within=60)
    again = await _up(started, client)
    assert (await client.call("GET", "/v1/jobs/name:kept"))["name"] == "kept"
    # By two ways at once, as `timeout make run` sends it.
    again.popen.send_signal(signal.SIGINT)
    assert again.stop() == 0, again.output
    assert not (data_dir / "postgres" / "postmaster.pid").exists()


async def test_a_second_signal_ends_everything_at_once_and_leaves_nothing_behind(
    started: Cluster, port: int, data_dir: Path
) -> None:
    client = Client(port)
    process = await _up(started, client)
    children = _children(process.popen.pid)
    # A role that does not stop, so that the first signal alone would take long.
    for pid in (pid for pid in children if "worker" in _command(pid)):
        os.kill(pid, signal.SIGSTOP)
    process.popen.send_signal(signal.SIGTERM)
    asked = time.monotonic()
    await until(lambda: time.monotonic() - asked > 2 * SAME_SIGNAL.total_seconds())
    try:
        assert process.stop() == 128 + signal.SIGTERM, process.output
        assert time.monotonic() - asked < 10
        await until(lambda: not (data_dir / "postgres" / "postmaster.pid").exists())
    finally:
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    await until(lambda: not any(_is_alive(pid) for pid in children), within=30)


async def test_a_dead_role_is_started_again(started: Cluster, port: int, tmp_path: Path) -> None:
    client = Client(port)
    process = await _up(started, client)
    with receiving(tmp_path / "receiver") as receiver:
        receiver.secret = _secret(started)
        await client.call(
            "POST",
            "/v1/jobs",
            {
                "name": "ticks",
                "schedule": "* * * * * *",
                "target": receiver.url,
                "retry": {"initial_delay": "0s"},
            },
        )
        await until(lambda: len(receiver.deliveries) >= 2, within=30)
        [worker] = [pid for pid in _children(process.popen.pid) if "worker" in _command(pid)]
        os.kill(worker, signal.SIGKILL)
        before = len(receiver.deliveries)
        await until(lambda: len(receiver.deliveries) >= before + 3, within=60)
    assert process.stop() == 0, process.output


async def test_a_second_up_on_the_same_data_says_who_has_it(started: Cluster, port: int) -> None:
    client = Client(port)
    first = await _up(started, client)
    second = started.start("up", CRONWELL_PORT="0")
    assert second.popen.wait(timeout=60) != 0
    assert f"in use by process {first.popen.pid}" in second.output
    assert first.stop() == 0


async def test_a_second_up_on_the_same_port_is_refused_and_stops_what_it_started(
    started: Cluster, port: int, data_dir: Path
) -> None:
    """It would find the first one's API ready and call itself so."""
    first = await _up(started, Client(port))
    second = started.start("up", CRONWELL_DATA_DIR=str(data_dir.parent / "other"))
    assert second.popen.wait(timeout=60) == 2, second.output
    assert f"cannot listen on 127.0.0.1:{port}" in second.output
    assert "is ready" not in second.output
    assert "Stopped." in second.output
    assert first.stop() == 0


async def _check(receiver: Receiver, client: Client, deliveries: list[Delivery]) -> list[str]:
    """Every delivery verified, none twice, none missing, and each of these on the instant: neither early nor late.

    Returns those that were late only because the machine stood still.
    """
    assert receiver.refused == []
    ids = [each.headers["webhook-id"] for each in receiver.deliveries]
    assert len(ids) == len(set(ids))
    for each in receiver.deliveries:
        assert each.headers["idempotency-key"] == each.headers["webhook-id"] == each.body["execution"]
        assert set(each.body) == {"job", "execution", "slot", "attempt", "payload"}
        # Each claim has a fence; what was held for its instant when all stopped was claimed once more.
        assert int(each.headers["cronwell-fence"]) - int(each.headers["cronwell-attempt"]) in (0, 1)
        assert len(each.headers["traceparent"].split("-")) == 4
    ticks = [each.slot for each in deliveries if each.headers["cronwell-job"] == "ticks"]
    assert ticks == [ticks[0] + n for n in range(len(ticks))]
    events = []
    for each in deliveries:
        assert each.headers["cronwell-attempt"] == each.headers["cronwell-fence"] == "1"
        execution = await client.call("GET", f"/v1/executions/{each.body['execution']}")
        started_at = datetime.fromisoformat(execution["started_at"]).timestamp()
        assert each.slot <= started_at <= each.arrived
        told = f"{execution['id']}, started after {execution['lateness_ms']} ms"
        events.append(Event(told, due=each.slot, happened=each.arrived))
    failed, excused = too_late(events, ON_TIME, receiver.stalls)
    assert failed == []
    return excused


async def _text(client: Client, path: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(client.url + path) as answer:
        return await answer.text()


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split() if _is_alive(int(line))]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _is_alive(pid: int) -> bool:
    command = _command(pid)
    return "cronwell" in command and "postgres" not in command.split(" ")[0]


def test_an_up_whose_handlers_cannot_be_imported_says_so_and_ends(started: Cluster) -> None:
    process = started.start("up", "--import", "no_such_module_of_mine")
    assert process.popen.wait(timeout=READY) == 2, process.output
    assert "no_such_module_of_mine" in process.output
    assert "The worker cannot start" in process.output
    assert "Stopped. All data is kept" in process.output
