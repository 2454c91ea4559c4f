"""Where a look for cursors begins, while one from the beginning costs too much."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from cronwell.model.identity import new_job_ids
from cronwell.model.shards import shard_of
from cronwell.scheduler import front
from cronwell.scheduler.front import Front
from cronwell.scheduler.staging import Staging
from cronwell.store.port import EVER
from tests.support.house import House
from tests.support.waiting import until_async

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
AGES = 1000.0
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
OURS = {3: 7, 4: 1}


def front_after(seconds: float, found: int = 0, look_ahead: timedelta = timedelta(minutes=1)) -> Front:
    made = Front(look_ahead)
    made.since(OURS, NOON)
    made.looked(seconds, found)
    made.staged(OURS, {3: NOON, 4: NOON + SECOND})
    return made


def test_a_look_that_took_long_is_followed_by_some_that_begin_where_it_ended() -> None:
    assert front_after(AGES).since(OURS, NOON) == {3: NOON, 4: NOON + SECOND}


def test_a_look_that_took_no_time_is_followed_by_another_from_the_beginning() -> None:
    assert front_after(0.001).since(OURS, NOON) == dict.fromkeys(OURS, EVER)


def test_what_was_found_is_allowed_its_time() -> None:
    assert front_after(0.1, found=10_000).since(OURS, NOON) == dict.fromkeys(OURS, EVER)


def test_a_look_from_the_beginning_comes_again() -> None:
    assert front_after(AGES, look_ahead=timedelta()).since(OURS, NOON) == dict.fromkeys(OURS, EVER)


def test_a_shard_of_another_epoch_begins_anew() -> None:
    assert front_after(AGES).since({3: 8}, NOON) == {3: EVER}


def test_now_and_then_a_look_begins_a_look_ahead_before_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "NEAR_EVERY", 0.0)
    made = front_after(AGES)
    assert made.since(OURS, NOON) == dict.fromkeys(OURS, NOON - MINUTE)
    assert made.since(OURS, NOON + 2 * MINUTE) == {3: NOON, 4: NOON + SECOND}, (
        "that is later than was reached"
    )


def test_a_look_that_failed_is_not_tried_again_soon(wholes: list[float]) -> None:
    wholes.append(0.0)
    made = front_after(0.0)
    begins = [made.since(OURS, NOON + 2 * MINUTE) for _ in range(3)]
    assert begins == [dict.fromkeys(OURS, EVER), *[{3: NOON, 4: NOON + SECOND}] * 2]


@pytest.fixture
def wholes(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Rests after the next looks from the beginning; when all have been taken, none begins there for long."""
    rests: list[float] = []
    monkeypatch.setattr(front, "SLOW", -AGES)
    monkeypatch.setattr(
        front, "rest_after", lambda seconds, least=0.0: least or (rests.pop() if rests else AGES)
    )
    return rests


@pytest.mark.usefixtures("wholes")
async def test_jobs_that_are_staged_in_steps_are_found_by_looks_that_begin_where_the_last_one_ended(
    still_house: House,
) -> None:
    jobs = [await still_house.create(f"each-second-{n}", schedule="every 1s") for n in range(3)]
    await _set_back(still_house)
    await _stage_all(still_house.staging())
    assert await _staged(still_house) == dict.fromkeys(jobs, 60)


async def test_where_a_look_from_the_beginning_finds_a_part_of_what_came_up_behind_the_rest_is_found_too(
    still_house: House, wholes: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    # One at a time, and all in one shard.
    still_house.settings = replace(
        still_house.settings, scheduler=replace(still_house.settings.scheduler, batch=1)
    )
    monkeypatch.setattr(
        "cronwell.control.adding.new_job_ids",
        lambda now, random: [UUID(int=each.int - shard_of(each)) for each in new_job_ids(now, random)],
    )
    jobs = [await still_house.create(f"each-second-{n}", schedule="every 1s") for n in range(3)]
    staging = still_house.staging()
    wholes.append(0.0)
    await _stage_all(staging)
    await _set_back(still_house)
    await _stage_all(staging)
    assert await _staged(still_house) == dict.fromkeys(jobs, 60)


@pytest.mark.usefixtures("wholes")
async def test_what_is_written_near_now_is_found_soon(
    still_house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "NEAR_EVERY", 0.001)
    job = await still_house.create(schedule="every 1s")
    staging = still_house.staging()
    await _stage_all(staging)
    await _set_back(still_house)
    await until_async(lambda: _is_staged(staging, still_house, job))


async def _is_staged(staging: Staging, house: House, job: UUID) -> bool:
    await _stage_all(staging)
    return await _staged(house) == {job: 60}


async def _set_back(house: House) -> None:
    """Have everything to be staged from the next second on."""
    await house.database.execute("delete from executions")
    await house.database.execute("update cursors set next_slot = $1", _begin(house))


async def _stage_all(staging: Staging) -> None:
    while await staging.run_once():
        pass


async def _staged(house: House) -> dict[UUID, int]:
    """How many slots of the next minute each job has."""
    rows = await house.database.fetch(
        "select job_id, count(*) from executions where slot >= $1 and slot < $2 group by job_id",
        _begin(house),
        _begin(house) + timedelta(minutes=1),
    )
    return dict(map(tuple, rows))


def _begin(house: House) -> datetime:
    return house.clock.now().replace(microsecond=0) + SECOND
