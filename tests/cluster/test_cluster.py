"""Several real processes, killed, frozen and stopped while work is due."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cronwell.config import SchedulerSettings, Settings
from cronwell.model.execution import Result, State
from tests.support import tally
from tests.support.house import CALLER, SECOND, TENANT, House
from tests.support.processes import Cluster, cluster
from tests.support.stalls import Event, skip_for, too_late, watching
from tests.support.stalls import read as read_stalls
from tests.support.waiting import until, until_async

LEASE = timedelta(seconds=3)
LOOK_AHEAD = timedelta(seconds=5)
ON_TIME = 1.0
OTHER_TENANT = 2


@pytest.fixture
async def house(migrated_url: str) -> AsyncIterator[House]:
    """With the look-ahead of the processes: what lies beyond it is for them to stage, not for this one."""
    scheduler = SchedulerSettings(look_ahead=LOOK_AHEAD)
    opened = await House.open(migrated_url, Settings(scheduler=scheduler))
    yield opened
    await opened.close()


@pytest.fixture
def started(migrated_url: str, tmp_path: Path) -> Iterator[Cluster]:
    with cluster(
        CRONWELL_DATABASE_URL=migrated_url,
        CRONWELL_SCHEDULER_LOOK_AHEAD=f"{LOOK_AHEAD.seconds}s",
        CRONWELL_WORKER_LEASE=f"{LEASE.seconds}s",
        CRONWELL_WORKER_HEARTBEAT="500ms",
        CRONWELL_WORKER_IMPORTS="tests.support.tally",
        TALLY_FOLDER=str(tmp_path),
    ) as processes:
        yield processes


async def _living_workers(house: House, count: int) -> None:
    async def are_up() -> bool:
        workers = await house.store.list_workers(house.clock.now())
        return sum(worker.state == "active" for worker in workers) == count

    await until_async(are_up, within=60)


async def _staging(house: House) -> None:
    """Wait until a scheduler has its shards."""

    async def is_up() -> bool:
        return all(shard.owner for shard in await house.store.list_shards())

    await until_async(is_up, within=60)


async def _all_done(house: House, count: int, *, within: float) -> None:
    async def are_done() -> bool:
        done = await house.database.fetchval("select count(*) from executions where state = 'succeeded'")
        return bool(done >= count)

    await until_async(are_done, within=within)


def _job(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "target": {"handler": {"name": "tally"}}, **fields}


async def test_two_schedulers_and_three_workers_do_ten_thousand_executions_once_each(
    house: House, started: Cluster, tmp_path: Path
) -> None:
    for _ in range(2):
        started.start("scheduler")
    for _ in range(3):
        started.start("worker")
    await _living_workers(house, 3)
    # Beyond the look-ahead, so that the schedulers stage them and not this process.
    start = house.clock.now() + 20 * SECOND
    jobs = [
        _job(f"job-{n}", schedule={"at": (start + timedelta(milliseconds=n % 5000)).isoformat()})
        for n in range(10_000)
    ]
    made = await house.jobs.create_many(CALLER, jobs)
    assert all(each.error is None for each in made)
    staged = await house.database.fetchval("select count(*) from executions")
    is_early = house.clock.now() < start - house.settings.scheduler.look_ahead
    assert staged == 0 or not is_early, (
        "this process stages nothing; a slow machine lets the schedulers begin"
    )
    await _all_done(house, 10_000, within=600)
    ends = Counter(line.execution for line in tally.read(tmp_path) if line.event == "end")
    assert len(ends) == 10_000
    assert set(ends.values()) == {1}
    assert len({line.pid for line in tally.read(tmp_path)}) == 3
    left = await house.database.fetchval("select count(*) from executions where state <> 'succeeded'")
    assert left == 0
    for process in started.processes:
        assert process.stop() == 0, process.output
    held = await house.database.fetchval(
        "select (select count(*) from duties) + (select count(*) from members)"
    )
    workers = await house.store.list_workers(house.clock.now() - timedelta(hours=1))
    assert held == 0
    assert {worker.state for worker in workers} == {"stopped"}


async def test_the_death_of_the_scheduler_just_before_a_herd_costs_nothing(
    house: House, started: Cluster, tmp_path: Path
) -> None:
    scheduler = started.start("scheduler")
    started.start("worker")
    await _living_workers(house, 1)
    await _staging(house)
    # Beyond the look-ahead, so that the scheduler stages them and not this process.
    instant = (house.clock.now() + 9 * SECOND).replace(microsecond=0)
    await house.jobs.create_many(
        CALLER, [_job(f"job-{n}", schedule={"at": instant.isoformat()}) for n in range(1000)]
    )
    assert await house.database.fetchval("select count(*) from executions") == 0
    with watching(tmp_path / "stalls") as stalls:
        await until(lambda: house.clock.now() > instant - SECOND, within=30)
        scheduler.kill()
        assert house.clock.now() < instant, "the scheduler died before the instant"
        await _all_done(house, 1000, within=60)
        starts = [line for line in tally.read(tmp_path) if line.event == "start"]
        assert len(starts) == len({line.execution for line in starts}) == 1000
        assert starts[0].at >= instant.timestamp()
        events = [Event(line.execution, due=instant.timestamp(), happened=line.at) for line in starts]
        failed, excused = too_late(events, ON_TIME, read_stalls(stalls))
    assert failed == []
    skip_for(excused[:3])


async def test_a_herd_of_one_tenant_does_not_hold_up_another_tenants_one_a_second(
    house: House, started: Cluster, tmp_path: Path
) -> None:
    """L2: 600 executions of some half a second each on 50 places are at work for seconds; the other goes between them."""
    started.start("scheduler")
    started.start("worker", CRONWELL_WORKER_CONCURRENCY="50")
    await _living_workers(house, 1)
    await _staging(house)
    await house.database.execute(
        "insert into tenants (id, name, signing_secret) values ($1, 'other', 'whsec_other')", OTHER_TENANT
    )
    instant = (house.clock.now() + 9 * SECOND).replace(microsecond=0)
    work = {"handler": {"name": "tally.second"}}
    at = {"at": instant.isoformat()}
    # Of different lengths, so that places fall free one by one.
    herd = [
        _job(f"job-{n}", schedule=at, target=work, payload={"seconds": 0.2 + n % 50 / 100})
        for n in range(600)
    ]
    await house.jobs.create_many(CALLER, herd)
    times = [instant + n * SECOND for n in range(6)]
    other = _job("other", schedule={"at": [time.isoformat() for time in times]})
    [made] = await house.jobs.create_many(dataclasses.replace(CALLER, tenant_id=OTHER_TENANT), [other])
    assert made.job_id is not None
    with watching(tmp_path / "stalls") as stalls:
        await _all_done(house, 606, within=90)
        starts = [line for line in tally.read(tmp_path) if line.event == "start"]
        assert len(starts) == len({line.execution for line in starts}) == 606
        others = [line for line in starts if made.job_id.hex in line.execution]
        events = [
            Event(line.execution, due=time.timestamp(), happened=line.at)
            for line, time in zip(others, times, strict=True)
        ]
        failed, excused = too_late(events, ON_TIME, read_stalls(stalls))
    assert failed == []
    skip_for(excused[:3])


async def test_a_killed_workers_attempt_is_tried_again_after_the_lease_with_a_higher_fence(
    house: House, started: Cluster, tmp_path: Path
) -> None:
    started.start("scheduler")
    first = started.start("worker")
    await _living_workers(house, 1)
    await house.create(target={"handler": {"name": "tally.wait"}}, retry={"initial_delay": "0s"})
    key = await house.trigger()
    await until_async(lambda: _is_running(house, key, tmp_path), within=30)
    first.kill()
    killed = house.clock.now()
    started.start("worker")
    done = await house.until_state(key, State.SUCCEEDED, within=60)
    assert (done.fence, done.output) == (2, "fence 2")
    assert done.started_at is not None
    assert done.started_at - killed > LEASE - timedelta(seconds=1)
    [lost] = await house.store.list_attempts(TENANT, key)
    assert (lost.fence, lost.result) == (1, Result.WORKER_LOST)


async def test_a_worker_that_wakes_after_its_lease_cannot_record_its_result(
    house: House, started: Cluster, tmp_path: Path
) -> None:
    started.start("scheduler")
    zombie = started.start("worker")
    await _living_workers(house, 1)
    await house.create(target={"handler": {"name": "tally.wait"}}, retry={"initial_delay": "0s"})
    key = await house.trigger()
    await until_async(lambda: _is_running(house, key, tmp_path), within=30)
    zombie.freeze()
    started.start("worker")
    await house.until_state(key, State.SUCCEEDED, within=60)
    (tmp_path / "release").touch()
    zombie.thaw()
    # It finds its lease gone, drops what it had, and enters under a new name.
    await _living_workers(house, 2)
    after = await house.get(key)
    assert (after.state, after.fence, after.output) == (State.SUCCEEDED, 2, "fence 2")


async def test_a_rolling_restart_of_workers_loses_and_doubles_nothing(
    house: House, started: Cluster, tmp_path: Path
) -> None:
    started.start("scheduler")
    workers = [started.start("worker"), started.start("worker")]
    await _living_workers(house, 2)
    start = house.clock.now() + 6 * SECOND
    await house.jobs.create_many(
        CALLER,
        [
            _job(f"job-{n}", schedule={"at": (start + timedelta(milliseconds=4 * n)).isoformat()})
            for n in range(1500)
        ],
    )
    for _ in range(2):
        await until_async(lambda: _has_begun(tmp_path), within=60)
        workers.append(started.start("worker"))
        await _living_workers(house, 3)
        assert workers.pop(0).stop() == 0
    await _all_done(house, 1500, within=60)
    ends = Counter(line.execution for line in tally.read(tmp_path) if line.event == "end")
    assert len(ends) == 1500
    assert set(ends.values()) == {1}


async def _is_running(house: House, key: Any, folder: Path) -> bool:
    del house, key
    return any(line.event == "start" for line in tally.read(folder))


async def _has_begun(folder: Path) -> bool:
    return bool(tally.read(folder))
