"""A random graph of jobs, with failures and retries, while schedulers are killed: each dependent runs when its rule says so.

`CRONWELL_DAG=200x100` makes it 200 jobs over 100 slots.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cronwell.config import SchedulerSettings, Settings
from cronwell.control.overrides import Decision
from cronwell.model.execution import ExecutionKey, Kind
from tests.cluster import dag
from tests.support.house import CALLER, SECOND, TENANT, House
from tests.support.processes import Cluster, cluster
from tests.support.waiting import until_async

JOBS, SLOTS = (int(part) for part in os.environ.get("CRONWELL_DAG", "40x10").split("x"))
SEED = int(os.environ.get("CRONWELL_DAG_SEED", "6"))
LOOK_AHEAD = timedelta(seconds=5)
KILLS_EVERY = 4 * SECOND
# A result may be committed a little after one that ended later.
COMMITTED_WITHIN = 5 * SECOND


@pytest.fixture
async def house(migrated_url: str) -> AsyncIterator[House]:
    opened = await House.open(migrated_url, Settings(scheduler=SchedulerSettings(look_ahead=LOOK_AHEAD)))
    yield opened
    await opened.close()


async def test_each_dependent_of_a_random_graph_runs_exactly_when_its_rule_says(
    house: House, migrated_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "attempts"
    with cluster(
        CRONWELL_DATABASE_URL=migrated_url,
        CRONWELL_SCHEDULER_LOOK_AHEAD=f"{LOOK_AHEAD.seconds}s",
        CRONWELL_SCHEDULER_LEASE="1s",
        CRONWELL_WORKER_IMPORTS="tests.cluster.dag",
        CRONWELL_LOG_LEVEL="warning",
        DAG_FILE=str(file),
    ) as processes:
        schedulers = [processes.start("scheduler") for _ in range(2)]
        processes.start("worker")
        jobs = dag.make(SEED, JOBS)
        now = house.clock.now()
        first = now.replace(microsecond=0) + (8 + JOBS // 20) * SECOND
        last = first + (SLOTS - 1) * SECOND
        made = await house.jobs.create_many(CALLER, [each.definition(first, last) for each in jobs])
        assert [each.error for each in made if each.error is not None] == []
        ids = {each.name: each.job_id for each in made}
        skipped = await _skip_some(house, jobs, first, last)
        cancelled = await _cancel_some(house, jobs, first, ids)
        kills = await _kill_until(house, processes, schedulers, last)
        fates = dag.fates(jobs, first, last, skipped=skipped, cancelled=cancelled)
        rows = await _until_settled(house, len(fates))
    names = {job_id: name for name, job_id in ids.items()}
    found = {(names[row["job_id"]], row["slot"]): row for row in rows}
    assert found.keys() == fates.keys()
    told = {key: (row["state"], _reason(row)) for key, row in found.items()}
    wanted = {key: (fate.state, fate.reason) for key, fate in fates.items()}
    assert {key: each for key, each in told.items() if wanted[key] != each} == {}
    _check_attempts(file, jobs, fates)
    _check_times(jobs, found)
    assert await house.database.fetchval("select count(*) from waiting_slots") == 0
    ended = Counter(fate.state if fate.reason is None else fate.reason for fate in fates.values())
    sys.stderr.write(f"{JOBS} jobs, {SLOTS} slots, {kills} schedulers killed: {dict(ended)}\n")
    assert kills >= 2


def _reason(row: Any) -> str | None:
    return row["reason"] if row["state"] in ("skipped", "cancelled") else None


def _check_attempts(file: Path, jobs: list[dag.Job], fates: dict[tuple[str, datetime], dag.Fate]) -> None:
    """Each attempt was made once, none was made that should not be, and dependents were told what had ended."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    made = Counter((each["job"], datetime.fromisoformat(each["slot"]), each["attempt"]) for each in lines)
    wanted = {
        (name, slot, attempt)
        for (name, slot), fate in fates.items()
        for attempt in range(1, fate.attempts + 1)
    }
    assert set(made) == wanted
    assert set(made.values()) == {1}
    followed = {each.name: each for each in jobs}
    for each in lines:
        job, slot = followed[each["job"]], datetime.fromisoformat(each["slot"])
        states = {name: fates[name, slot].state for name, _ in job.upstreams if (name, slot) in fates}
        assert each["upstream"].items() <= states.items()
        if job.mode == "all":
            assert each["upstream"] == states


def _check_times(jobs: list[dag.Job], found: dict[tuple[str, datetime], Any]) -> None:
    """What ran became ready when the last of all, or the first of any, had ended, and started after that."""
    wanted = {"succeeded": ("succeeded",), "failed": ("failed",), "finished": ("succeeded", "failed")}
    for job in jobs:
        for (name, slot), row in found.items():
            if name != job.name or job.period or row["state"] not in ("succeeded", "failed"):
                continue
            above = [(on, found[each, slot]) for each, on in job.upstreams if (each, slot) in found]
            ends = [each["finished_at"] for on, each in above if each["state"] in wanted[on]]
            began = row["first_ready_at"] - job.delay
            if job.mode == "all":
                assert began == max(ends)
            else:
                assert began in ends
                assert began <= min(ends) + COMMITTED_WITHIN
            assert row["started_at"] >= row["first_ready_at"]


async def _skip_some(
    house: House, jobs: list[dag.Job], first: datetime, last: datetime
) -> frozenset[tuple[str, datetime]]:
    chosen = _some_slots(jobs, first, last, seed=1)
    for name, slot in chosen:
        await house.overrides.put(TENANT, f"name:{name}", slot, Decision(action="skip"))
    return frozenset(chosen)


async def _cancel_some(
    house: House, jobs: list[dag.Job], first: datetime, ids: dict[str, Any]
) -> frozenset[tuple[str, datetime]]:
    """Cancel slots as soon as they are staged."""
    skipped = set(_some_slots(jobs, first, first + (SLOTS - 1) * SECOND, seed=1))
    chosen = [each for each in _some_slots(jobs, first, first + 3 * SECOND, seed=2) if each not in skipped]
    for name, slot in chosen:
        key = ExecutionKey(ids[name], Kind.SCHEDULED, slot)

        async def is_staged(key: ExecutionKey = key) -> bool:
            return await house.store.get_execution(TENANT, key) is not None

        await until_async(is_staged, within=30)
        await house.executions.cancel(TENANT, str(key))
    return frozenset(chosen)


def _some_slots(
    jobs: list[dag.Job], first: datetime, last: datetime, *, seed: int
) -> list[tuple[str, datetime]]:
    every = [
        (job.name, slot)
        for job in jobs
        if job.period
        for slot in dag.slots(first, last)
        if not (slot - first) % (job.period * SECOND)
    ]
    return random.Random(seed).sample(every, k=max(1, len(every) // 20))


async def _kill_until(house: House, processes: Cluster, schedulers: list[Any], last: datetime) -> int:
    """Kill a scheduler every few seconds, in turn, and start another, until the last slot has come."""
    kills = 0
    while house.clock.now() < last:
        due = house.clock.now() + KILLS_EVERY

        async def is_due(due: datetime = due) -> bool:
            return house.clock.now() >= due

        await until_async(is_due, within=30)
        victim = schedulers.pop(0)
        victim.kill()
        kills += 1
        schedulers.append(processes.start("scheduler"))
    return kills


async def _until_settled(house: House, count: int) -> list[Any]:
    """Wait until as many executions as there should be have ended, or time is up; and return them."""

    async def are_settled() -> bool:
        ended = await house.database.fetchval(
            "select count(*) from executions where state in ('succeeded', 'failed', 'cancelled', 'skipped')"
            " and not is_followed"
        )
        return bool(ended >= count)

    with contextlib.suppress(AssertionError):
        await until_async(are_settled, within=60 + JOBS)
    return await house.database.fetch(
        "select e.job_id, e.slot, e.state, e.reason, e.started_at, e.finished_at,"
        " coalesce((select min(a.ready_at) from attempts as a where a.job_id = e.job_id and a.slot = e.slot), e.ready_at)"
        " as first_ready_at from executions as e"
    )
