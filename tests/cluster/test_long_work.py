"""Long work in real processes: the death of a worker costs neither what waits for its callback nor a checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from cronwell.model.execution import Result, State
from cronwell.runtime.web import first_answer
from tests.support.house import TENANT, House
from tests.support.ports import free_port
from tests.support.processes import Cluster, cluster
from tests.support.waiting import until, until_async
from tests.targets.rig import Receiver, Request, answering

QUICK = {"initial_delay": "100ms", "jitter": 0}


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver(answer=answering("202 Accepted")) as listening:
        yield listening


async def _call_back(request: Request, action: str, body: object = None) -> tuple[int, Any]:
    """Do as a receiver does: send JSON to the address that came with the delivery."""
    address = f"{request.headers['cronwell-callback']}/{action}"
    async with aiohttp.ClientSession() as session, session.post(address, json=body or {}) as answer:
        return answer.status, await answer.json(content_type=None)


async def test_long_work_outlives_its_worker(
    migrated_url: str, house: House, receiver: Receiver, tmp_path: Path
) -> None:
    port = free_port()
    with cluster(
        CRONWELL_DATABASE_URL=migrated_url,
        CRONWELL_PORT=str(port),
        CRONWELL_PUBLIC_URL=f"http://127.0.0.1:{port}",
        CRONWELL_EGRESS_ALLOW="127.0.0.0/8",
        CRONWELL_WORKER_LEASE="2s",
        CRONWELL_WORKER_HEARTBEAT="300ms",
        CRONWELL_WORKER_IMPORTS="tests.support.tally",
        TALLY_FOLDER=str(tmp_path),
    ) as processes:
        processes.start("api")
        processes.start("scheduler")
        doomed = processes.start("worker")
        assert await first_answer("127.0.0.1", port, "/readyz", timedelta(seconds=60))
        await _one_is_killed_while_two_wait(house, receiver, processes, doomed)


async def _one_is_killed_while_two_wait(
    house: House, receiver: Receiver, processes: Cluster, doomed: Any
) -> None:
    target = receiver.target(callback={"deadline": "1h"})
    hurried = receiver.target(path="/hurried", callback={"deadline": "1h", "heartbeat": "4s"})
    await house.create("patient", target=target, retry=QUICK)
    await house.create("hurried", target=hurried, retry=QUICK)
    await house.create("steps", target={"handler": {"name": "tally.steps"}}, retry=QUICK)
    patient, silent, steps = [await house.trigger(name) for name in ("patient", "hurried", "steps")]

    async def all_are_under_way() -> bool:
        found = [await house.get(key) for key in (patient, silent, steps)]
        return all(each.callback_until for each in found[:2]) and found[2].checkpoint == '{"step":3}'

    await until_async(all_are_under_way, within=60)
    first = next(each for each in receiver.requests if each.path == "/hurried")
    assert (await _call_back(first, "checkpoint", {"checkpoint": {"row": 500}}))[0] == 200
    doomed.kill()
    processes.start("worker")

    # The handler that died with its worker goes on from its last checkpoint.
    done = await house.until_state(steps, State.SUCCEEDED, within=60)
    assert (done.attempt, done.output) == (2, "went on after 3")
    [lost] = await house.store.list_attempts(TENANT, steps)
    assert lost.result is Result.WORKER_LOST
    # The one that nobody heard of for too long is tried again, with what it had left; its first attempt is over.
    await until(lambda: sum(each.path == "/hurried" for each in receiver.requests) == 2, within=60)
    second = [each for each in receiver.requests if each.path == "/hurried"][1]
    body = orjson.loads(second.body)
    assert (body["attempt"], body["checkpoint"]) == (2, {"row": 500})
    status, told = await _call_back(first, "complete", {"output": "too late"})
    assert (status, "stop working on this one" in told["detail"]) == (409, True)
    # The one that waits is not touched by any of that, and ends by its callback.
    waiting = await house.get(patient)
    assert (waiting.state, waiting.attempt, waiting.worker) == (State.RUNNING, 1, None)
    [delivered] = [each for each in receiver.requests if each.path == "/run"]
    answers = await asyncio.gather(
        _call_back(delivered, "complete", {"output": "at last"}), _call_back(second, "complete")
    )
    assert [status for status, _ in answers] == [200, 200]
    ended = [await house.get(key) for key in (patient, silent)]
    assert [(each.state, each.attempt) for each in ended] == [(State.SUCCEEDED, 1), (State.SUCCEEDED, 2)]
    assert ended[0].output == "at last"
    [attempt] = await house.store.list_attempts(TENANT, silent)
    assert (attempt.result, attempt.error_kind) == (Result.TIMED_OUT, "callback_heartbeat")
