"""History: every filter, pages that join, dead letters revived at a rate, and days that come and go."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest

from cronwell import errors
from cronwell.model.execution import ExecutionKey, Kind, State
from cronwell.store.port import ExecutionFilter, Store
from tests.contract.desk import DAY, HOUR, MINUTE, NOON, SECOND, Desk, ended, move, new_execution

ANY = ExecutionFilter()


@dataclasses.dataclass
class Archive:
    """One execution of each sort, by a name."""

    keys: dict[str, ExecutionKey]
    job: UUID
    other: UUID
    worker: UUID

    def names(self, keys: list[ExecutionKey]) -> list[str]:
        return [next(name for name, key in self.keys.items() if key == each) for each in keys]


@pytest.fixture
async def archive(desk: Desk, store: Store) -> Archive:
    job, other = await desk.job("one"), await desk.job("other")
    worker = await desk.worker()
    keys: dict[str, ExecutionKey] = {}

    async def end(name: str, slot: datetime, state: State, **fields: Any) -> None:
        [keys[name]] = await desk.staged(other if name == "others" else job, slot)
        [claim] = await desk.claim(worker if name == "by worker" else None, ready_by=slot)
        await store.complete([ended(claim, state, **fields)])

    await end("old", NOON - DAY * 2, State.SUCCEEDED)
    await end("by worker", NOON - HOUR, State.SUCCEEDED, output="All 100% done_ok C:\\temp")
    await end("failed", NOON - MINUTE * 2, State.FAILED, error="Connection refused")
    await end("others", NOON - MINUTE, State.SUCCEEDED, output="100 percent done-ok")
    keys["manual"] = await desk.manual(job, NOON - SECOND)
    [keys["ahead"]] = await desk.staged(job, NOON + DAY)
    return Archive(keys, job.id, other.id, worker)


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ({}, ["ahead", "manual", "others", "failed", "by worker", "old"]),
        ({"job_id": "job"}, ["ahead", "manual", "failed", "by worker", "old"]),
        ({"job_id": "other"}, ["others"]),
        ({"states": (State.FAILED,)}, ["failed"]),
        ({"states": (State.PENDING,)}, ["ahead", "manual"]),
        ({"states": (State.FAILED, State.PENDING)}, ["ahead", "manual", "failed"]),
        ({"states": (State.RUNNING,)}, []),
        ({"states": ()}, []),
        ({"from_slot": NOON - MINUTE}, ["ahead", "manual", "others"]),
        ({"to_slot": NOON - MINUTE}, ["failed", "by worker", "old"]),
        ({"from_slot": NOON - MINUTE * 2, "to_slot": NOON}, ["manual", "others", "failed"]),
        ({"from_slot": NOON, "to_slot": NOON}, []),
        ({"from_slot": NOON - DAY * 400, "to_slot": NOON - DAY * 300}, []),
        ({"from_slot": NOON + DAY * 300}, []),
        ({"worker": "worker"}, ["by worker"]),
        ({"kind": Kind.MANUAL}, ["manual"]),
        ({"kind": Kind.BACKFILL}, []),
        ({"text": "refused"}, ["failed"]),
        ({"text": "REFUSED"}, ["failed"]),
        ({"text": "100"}, ["others", "by worker"]),
        ({"text": "100%"}, ["by worker"]),
        ({"text": "done_ok"}, ["by worker"]),
        ({"text": "C:\\temp"}, ["by worker"]),
        ({"text": ""}, ["others", "failed", "by worker"]),
        ({"job_id": "job", "text": "done", "states": (State.SUCCEEDED,)}, ["by worker"]),
        ({"job_id": "other", "states": (State.FAILED,)}, []),
    ],
    ids=str,
)
async def test_each_filter_of_executions_takes_what_it_says_newest_first(
    desk: Desk, archive: Archive, where: dict[str, Any], names: list[str]
) -> None:
    ids = {"job": archive.job, "other": archive.other, "worker": archive.worker}
    given: dict[str, Any] = {
        key: ids[value] if isinstance(value, str) and value in ids else value for key, value in where.items()
    }
    assert archive.names(await desk.listed(**given)) == names


async def test_an_execution_names_its_job(desk: Desk, archive: Archive) -> None:
    assert (await desk.get(archive.keys["others"])).job_name == "other"


@pytest.mark.parametrize("where", ["all", "job", "dead"])
@pytest.mark.parametrize("size", [1, 3, 100])
async def test_pages_of_executions_join_without_gap_or_double_also_under_writes(
    desk: Desk, where: str, size: int
) -> None:
    jobs = [await desk.job() for _ in range(3)]
    for job in jobs:
        # The same slots for all jobs, some in one second, some days apart.
        await desk.staged(job, NOON, NOON - SECOND, NOON - MINUTE, NOON - DAY, NOON - DAY * 3)
        await desk.manual(job, NOON - SECOND)
    if where == "dead":
        claims = await desk.claim()
        await desk.store.complete([ended(claim, State.FAILED) for claim in claims])
    choices: dict[str, dict[str, Any]] = {
        "all": {},
        "job": {"job_id": jobs[0].id},
        "dead": {"states": (State.FAILED,)},
    }
    filters = choices[where]
    everything = await desk.listed(**filters)
    assert len(everything) == (6 if where == "job" else 18)
    assert everything == sorted(everything, key=_place, reverse=True)
    found: list[ExecutionKey] = []
    while page := await desk.listed(after=found[-1] if found else None, limit=size, **filters):
        found += page
        # What is added newer than the place reached does not shift what follows.
        await desk.staged(jobs[0], NOON + MINUTE * len(found))
    assert found[: len(everything)] == everything


def _place(key: ExecutionKey) -> tuple[datetime, UUID, int]:
    return key.slot, key.job_id, list(Kind).index(key.kind)


async def test_a_store_without_history_lists_nothing(desk: Desk) -> None:
    assert await desk.listed() == []
    assert await desk.listed(states=(State.FAILED,)) == []


async def test_what_waits_is_counted_by_pool(desk: Desk, store: Store) -> None:
    job, gpu = await desk.job(), await desk.job(pool="gpu")
    await desk.staged(job, NOON - HOUR, NOON, NOON + SECOND)
    await desk.staged(gpu, NOON - DAY)
    told = {each.pool: each for each in await store.backlog(NOON)}
    assert (told["default"].depth, told["default"].oldest) == (2, NOON - HOUR)
    assert (told["gpu"].depth, told["gpu"].oldest) == (1, NOON - DAY)
    [claim] = await desk.claim(limit=1)
    await store.complete([ended(claim, State.RETRYING, ready_at=NOON - MINUTE)])
    await desk.claim(pool="gpu")
    [left] = await store.backlog(NOON)
    assert (left.pool, left.depth, left.oldest) == ("default", 2, NOON - MINUTE)


# Dead letters.


async def test_a_dead_letter_is_revived_with_new_attempts_by_what_its_job_is_now(
    desk: Desk, store: Store
) -> None:
    job = await desk.job()
    key = await desk.dead(job, error="boom")
    await _edit(store, job)
    assert await store.revive_execution(1, key, NOON + HOUR) == "gpu"
    kept = await desk.get(key)
    assert (kept.state, kept.attempt, kept.fence, kept.ready_at) == (State.PENDING, 0, 1, NOON + HOUR)
    assert (kept.worker, kept.claimed_at, kept.started_at, kept.finished_at) == (None, None, None, None)
    assert (kept.reason, kept.revision, kept.pool) == ("redriven", 2, "gpu")
    assert len(await store.list_attempts(1, key)) == 1, "what happened stays told"


async def _edit(store: Store, job: Any) -> None:
    async with store.transaction() as transaction:
        await transaction.update_job(dataclasses.replace(job, pool="gpu"), "active", NOON)


async def test_only_what_failed_or_was_cancelled_is_revived(desk: Desk, store: Store) -> None:
    job = await desk.job()
    done = await desk.claimed(job, NOON - HOUR)
    await store.complete([ended(done)])
    running = await desk.claimed(job, NOON - MINUTE)
    [cancelled] = await desk.staged(job, NOON)
    await store.cancel_execution(1, cancelled, NOON)
    for key in (done.key, running.key, ExecutionKey(job.id, Kind.MANUAL, NOON)):
        assert await store.revive_execution(1, key, NOON) is None
    assert await store.revive_execution(1, cancelled, NOON) == "default"
    kept = await desk.get(cancelled)
    assert (kept.state, kept.cancel_requested_at) == (State.PENDING, None)


async def test_a_slot_ahead_that_was_cancelled_is_revived_for_its_instant(desk: Desk, store: Store) -> None:
    job = await desk.job()
    [cancelled] = await desk.staged(job, NOON + MINUTE)
    await store.cancel_execution(1, cancelled, NOON)
    await store.revive_execution(1, cancelled, NOON)
    assert (await desk.get(cancelled)).ready_at == NOON + MINUTE


async def test_a_revival_waits_for_the_deletion_of_its_job_and_then_is_none(desk: Desk, store: Store) -> None:
    job = await desk.job()
    key = await desk.dead(job)
    async with store.transaction() as transaction:
        await transaction.lock_job(1, job.id)
        reviving = asyncio.create_task(store.revive_execution(1, key, NOON))
        for _ in range(50):
            await store.ping()
        await transaction.withhold_due(1, job.id, NOON, "deleted")
        await transaction.set_job_state(1, job.id, "deleted", NOON)
    assert await reviving is None
    assert (await desk.get(key)).state is State.FAILED


async def test_a_revived_one_may_be_retried_again_after_a_pause(desk: Desk, store: Store) -> None:
    job = await desk.job()
    claim = await desk.claimed(job)
    async with store.transaction() as transaction:
        await transaction.withhold_due(1, job.id, NOON, "paused")
    await store.complete([ended(claim, State.FAILED)])
    await store.revive_execution(1, claim.key, NOON)
    [again] = await desk.claim()
    assert await store.complete([ended(again, State.RETRYING, ready_at=NOON)]) == [State.RETRYING]


async def test_a_deleted_jobs_dead_letters_stay_dead(desk: Desk, store: Store) -> None:
    job = await desk.job()
    key = await desk.dead(job)
    async with store.transaction() as transaction:
        await transaction.set_job_state(1, job.id, "deleted", NOON)
    assert await store.revive_execution(1, key, NOON) is None
    assert await _redrive(store) == []


async def test_a_dismissed_dead_letter_rests(desk: Desk, store: Store) -> None:
    key = await desk.dead(await desk.job())
    assert await store.dismiss(1, key)
    assert not await store.dismiss(1, key)
    kept = await desk.get(key)
    assert (kept.state, kept.reason) == (State.CANCELLED, "dismissed")
    assert await _redrive(store) == []


async def _redrive(store: Store, *, limit: int = 100, dead_by: datetime = NOON, **where: Any) -> list[str]:
    return await store.redrive(
        1, ExecutionFilter(**where), limit=limit, rate=2.0, start=NOON + HOUR, dead_by=dead_by
    )


async def test_dead_letters_come_back_oldest_first_at_a_rate(desk: Desk, store: Store) -> None:
    job = await desk.job()
    slots = [NOON - MINUTE * n for n in (1, 3, 2)] + [NOON - DAY * 2]
    for slot in slots:
        await desk.dead(job, slot)
    await _edit(store, job)
    assert await _redrive(store) == ["gpu"] * 4
    back = [await desk.get(key) for key in reversed(await desk.listed())]
    assert [each.key.slot for each in back] == sorted(slots)
    assert [each.ready_at for each in back] == [
        NOON + HOUR + n * timedelta(milliseconds=500) for n in range(4)
    ]
    assert {(each.state, each.attempt, each.fence, each.revision) for each in back} == {
        (State.PENDING, 0, 1, 2)
    }
    assert await _redrive(store) == []


async def test_a_redrive_takes_no_more_than_its_limit_and_the_oldest(desk: Desk, store: Store) -> None:
    job = await desk.job()
    keys = [await desk.dead(job, NOON - MINUTE * n) for n in range(5)]
    assert len(await _redrive(store, limit=2)) == 2
    assert await desk.states(keys) == [State.FAILED] * 3 + [State.PENDING] * 2


async def test_what_dies_after_the_redrive_began_is_left(desk: Desk, store: Store) -> None:
    job = await desk.job()
    before = await desk.dead(job, NOON - MINUTE, at=NOON)
    after = await desk.dead(job, NOON, at=NOON + SECOND)
    assert len(await _redrive(store, dead_by=NOON)) == 1
    assert await desk.states([before, after]) == [State.PENDING, State.FAILED]


@pytest.mark.parametrize("chosen", ["job", "slots", "error", "output", "keys", "no keys"])
async def test_a_redrive_can_be_narrowed(desk: Desk, store: Store, chosen: str) -> None:
    job, other = await desk.job(), await desk.job()
    wanted = await desk.dead(job, NOON - HOUR, error="50% timeout", output="wanted")
    rest = [
        await desk.dead(other, NOON - MINUTE, error="500 timeout"),
        await desk.dead(other, NOON - DAY, error="refused"),
    ]
    where: dict[str, dict[str, Any]] = {
        "job": {"job_id": job.id},
        "slots": {"from_slot": NOON - HOUR, "to_slot": NOON - MINUTE},
        "error": {"text": "50% TIME"},
        "output": {"text": "wanted"},
        "keys": {"keys": (wanted, ExecutionKey(uuid4(), Kind.MANUAL, NOON))},
        "no keys": {"keys": ()},
    }
    assert len(await _redrive(store, **where[chosen])) == (0 if chosen == "no keys" else 1)
    assert set(await desk.states(rest)) == {State.FAILED}


async def test_two_redrives_at_once_do_not_share(desk: Desk, store: Store) -> None:
    job = await desk.job()
    await desk.staged(job, *(NOON - SECOND * n for n in range(60)))
    await store.complete([ended(claim, State.FAILED, finished_at=NOON) for claim in await desk.claim()])
    taken = await asyncio.gather(*(_redrive(store, limit=20) for _ in range(6)))
    assert sum(map(len, taken)) <= 60
    while more := await _redrive(store, limit=20):
        taken.append(more)
    assert sum(map(len, taken)) == 60


# Days.

TODAY = NOON.date()


async def test_a_day_is_made_once_and_then_known(store: Store) -> None:
    assert await store.days() == []
    assert await store.ensure_day(TODAY)
    assert not await store.ensure_day(TODAY)
    assert await store.ensure_day(date(2027, 12, 31))
    assert await store.days() == [TODAY, date(2027, 12, 31)]


async def test_ten_at_once_make_a_day_once(desk: Desk) -> None:
    processes = [desk.another_process() for _ in range(10)]
    for day in (TODAY, TODAY + DAY):
        assert sorted(await asyncio.gather(*(each.ensure_day(day) for each in processes))) == [False] * 9 + [
            True
        ]


async def test_ten_at_once_stage_into_a_day_that_nobody_made(desk: Desk) -> None:
    jobs = [await desk.job() for _ in range(10)]
    far = NOON + DAY * 10

    async def stage(store: Store, job: Any) -> None:
        async with store.transaction() as transaction:
            await transaction.insert_execution(new_execution(job, far))

    await asyncio.gather(*(stage(desk.another_process(), job) for job in jobs))
    assert len(await desk.listed()) == 10
    assert await desk.store.days() == [far.date()]


@pytest.mark.parametrize(
    "slot", [datetime(2026, 5, 5, tzinfo=UTC), datetime(2026, 5, 5, 23, 59, 59, 999_999, tzinfo=UTC)]
)
async def test_a_day_begins_and_ends_at_midnight_utc(desk: Desk, slot: datetime) -> None:
    await desk.manual(await desk.job(), slot.astimezone(ZoneInfo("Pacific/Kiritimati")))
    assert await desk.store.days() == [date(2026, 5, 5)]


async def test_a_day_at_rest_goes_whole(desk: Desk, store: Store) -> None:
    job = await desk.job()
    dead = await desk.dead(job, NOON - DAY)
    kept = await desk.dead(job, NOON)
    assert await store.drop_day(TODAY - DAY)
    assert await store.days() == [TODAY]
    assert await store.get_execution(1, dead) is None
    assert await store.list_attempts(1, dead) == []
    assert await desk.listed() == [kept]


@pytest.mark.parametrize("state", ["pending", "running", "retrying"])
async def test_a_day_with_something_unfinished_is_kept(desk: Desk, store: Store, state: str) -> None:
    job = await desk.job()
    await desk.dead(job, NOON - DAY - MINUTE)
    claim = await desk.claimed(job, NOON - DAY)
    if state == "pending":
        await store.hand_back(claim.worker, [(1, claim.key, claim.fence)])
    elif state == "retrying":
        await store.complete([ended(claim, State.RETRYING, ready_at=NOON)])
    assert not await store.drop_day(TODAY - DAY)
    assert (await desk.get(claim.key)).state.value == state
    await store.cancel_execution(1, claim.key, NOON)
    await store.complete([ended(claim, State.CANCELLED)])
    assert await store.drop_day(TODAY - DAY)


async def test_a_day_that_was_dropped_can_be_had_again(desk: Desk, store: Store) -> None:
    job = await desk.job()
    elsewhere = desk.another_process()
    await store.ensure_day(TODAY)
    await elsewhere.ensure_day(TODAY)
    assert await elsewhere.drop_day(TODAY)

    async def stage() -> None:
        async with store.transaction() as transaction:
            await transaction.stage([move(job)], NOON)
            await transaction.insert_execution(new_execution(job))

    # This process still believes in the day; it finds out, and the next try makes the day anew.
    with pytest.raises(errors.StoreUnavailable, match="next try"):
        await stage()
    await stage()
    assert len(await desk.listed()) == 1


async def test_a_day_that_is_not_there_is_gone(store: Store) -> None:
    assert await store.drop_day(TODAY)


async def test_two_who_drop_a_day_at_once_do_no_harm(desk: Desk) -> None:
    for _ in range(3):
        await desk.store.ensure_day(TODAY)
        processes = [desk.another_process() for _ in range(4)]
        assert await asyncio.gather(*(each.drop_day(TODAY) for each in processes)) == [True] * 4
        assert await desk.store.days() == []


async def test_days_are_dropped_while_workers_claim_and_complete(desk: Desk, store: Store) -> None:
    """Nobody is turned away and nobody waits in a circle."""
    job = await desk.job()
    await desk.staged(job, *(NOON - SECOND * n for n in range(400)))
    days = [TODAY - DAY * n for n in range(2, 8)]
    for day in days:
        await store.ensure_day(day)
    done = 0

    async def work(worker: UUID) -> None:
        nonlocal done
        while claims := await desk.claim(worker, limit=5):
            await store.complete([ended(claim) for claim in claims])
            done += len(claims)

    async def drop() -> None:
        left = list(days)
        while left:
            try:
                assert await store.drop_day(left[-1])
                left.pop()
            except errors.StoreUnavailable:
                await asyncio.sleep(0)  # somebody was reading it: it gave way

    await asyncio.gather(drop(), *[work(await desk.worker()) for _ in range(4)])
    assert done == 400
    assert await store.days() == [TODAY]
