"""Where a look for cursors begins, while one from the beginning costs too much."""

from datetime import UTC, datetime, timedelta

import pytest

from cronwell.scheduler import front
from cronwell.scheduler.front import Front
from cronwell.store.port import EVER
from tests.support.house import House

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
AGES = 1000.0
OURS = {3: 7, 4: 1}


def front_after(seconds: float, found: int = 0, look_ahead: timedelta = timedelta(minutes=1)) -> Front:
    made = Front(look_ahead)
    made.since(OURS)
    made.looked(seconds, found)
    made.staged(OURS, {3: NOON})
    return made


def test_a_look_that_took_long_is_followed_by_some_that_begin_where_it_ended() -> None:
    assert front_after(AGES).since(OURS) == {3: NOON, 4: EVER}


def test_a_look_that_took_no_time_is_followed_by_another_from_the_beginning() -> None:
    assert front_after(0.001).since(OURS) == dict.fromkeys(OURS, EVER)


def test_what_was_found_is_allowed_its_time() -> None:
    assert front_after(0.1, found=10_000).since(OURS) == dict.fromkeys(OURS, EVER)


def test_a_look_from_the_beginning_comes_again() -> None:
    assert front_after(AGES, look_ahead=timedelta()).since(OURS) == dict.fromkeys(OURS, EVER)


def test_a_shard_of_another_epoch_begins_anew() -> None:
    assert front_after(AGES).since({3: 8}) == {3: EVER}


def test_a_shard_of_which_only_a_part_was_staged_stays_where_it_was() -> None:
    made = front_after(AGES)
    made.staged(OURS, {4: NOON})
    assert made.since(OURS) == {3: NOON, 4: NOON}


async def test_jobs_that_are_staged_in_steps_are_found_by_looks_that_begin_where_the_last_one_ended(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "SLOW", -1.0)
    monkeypatch.setattr(front, "rest_after", lambda seconds: AGES)
    jobs = [await house.create(f"each-second-{n}", schedule="every 1s") for n in range(3)]
    now = house.clock.now()
    next_slot = now.replace(microsecond=0) + timedelta(seconds=1)
    await house.database.execute("delete from executions")
    await house.database.execute("update cursors set next_slot = $1", next_slot)
    staging = house.staging()
    while await staging.run_once():
        pass
    last = now.replace(microsecond=0) + timedelta(minutes=1)
    for job in jobs:
        staged = await house.database.fetchval(
            "select count(*) from executions where job_id = $1 and slot between $2 and $3",
            job,
            next_slot,
            last,
        )
        assert staged == 60
