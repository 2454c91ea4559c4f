"""Jobs: added, found, listed page by page, changed and kept; answers to keyed requests; workers."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from cronwell import errors
from cronwell.store.port import Answer, Cursor, Job, JobFilter, Store
from tests.contract.desk import DAY, HOUR, MINUTE, NOON, SECOND, Desk, new_job, new_worker


async def test_a_job_is_found_as_it_was_added(desk: Desk, store: Store) -> None:
    job = await desk.job("nightly", pool="gpu", target_kind="http", tags='{"team": "a"}', spec='{"x":  1}')
    found = await store.get_job(1, job.id, NOON)
    assert found is not None
    assert (found.id, found.name, found.pool, found.target_kind) == (job.id, "nightly", "gpu", "http")
    assert found.spec == '{"x":  1}', "to the letter"
    assert (found.state, found.revision, found.plan, found.next_slot) == ("active", 1, job.plan, NOON)
    assert (found.created_at, found.updated_at, found.deleted_at) == (NOON - DAY, NOON - DAY, None)
    assert await store.find_job(1, "nightly") == job.id
    assert await store.find_job(1, "Nightly") is None
    assert await store.get_job(1, uuid4(), NOON) is None


async def test_the_next_staged_instant_is_told(desk: Desk, store: Store) -> None:
    job = await desk.job()
    found = await store.get_job(1, job.id, NOON)
    assert found is not None
    assert found.staged_at is None
    await desk.staged(job, NOON - MINUTE, NOON + MINUTE, NOON + SECOND)
    await desk.manual(job, NOON + timedelta(microseconds=1))
    found = await store.get_job(1, job.id, NOON)
    [listed] = await store.list_jobs(1, JobFilter(), None, 10, NOON)
    assert found is not None
    assert found.staged_at == listed.staged_at == NOON + SECOND


async def test_a_job_without_a_schedule_has_no_cursor(desk: Desk, store: Store) -> None:
    job = await desk.job(plan=None, next_slot=None)
    found = await store.get_job(1, job.id, NOON)
    assert found is not None
    assert (found.plan, found.next_slot) == (None, None)


async def test_a_name_that_is_taken_leaves_only_that_job_out(desk: Desk, store: Store) -> None:
    first = await desk.job("taken")
    doubles = [new_job("taken"), new_job("free"), new_job("twice"), new_job("twice")]
    async with store.transaction() as transaction:
        added = await transaction.insert_jobs(doubles, NOON)
        assert await transaction.insert_jobs([], NOON) == set()
    assert added == {doubles[1].id, doubles[2].id}
    assert await store.find_job(1, "taken") == first.id
    assert await store.get_job(1, doubles[3].id, NOON) is None


async def test_who_may_not_wait_for_a_lock_is_locked_out(desk: Desk, store: Store) -> None:
    async with store.transaction() as transaction:
        await transaction.insert_jobs([new_job("wanted")], NOON)
        with pytest.raises(errors.LockedOut):
            async with store.transaction(lock_timeout=timedelta(milliseconds=1)) as another:
                await another.insert_jobs([new_job("wanted")], NOON)


async def test_of_many_who_want_a_name_one_has_it(desk: Desk, store: Store) -> None:
    async def add() -> int:
        async with store.transaction() as transaction:
            return len(await transaction.insert_jobs([new_job("wanted")], NOON))

    assert sum(await asyncio.gather(*(add() for _ in range(10)))) == 1


async def test_a_deleted_jobs_name_is_free_again(desk: Desk, store: Store) -> None:
    first = await desk.job("again")
    await _delete(store, first.id)
    second = await desk.job("again")
    assert await store.find_job(1, "again") == second.id
    gone = await store.get_job(1, first.id, NOON)
    assert gone is not None
    assert (gone.state, gone.deleted_at) == ("deleted", NOON)


async def _delete(store: Store, job_id: Any) -> None:
    async with store.transaction() as transaction:
        await transaction.set_job_state(1, job_id, "deleted", NOON)
        await transaction.drop_cursor(1, job_id)


async def test_a_new_definition_is_a_new_revision(desk: Desk, store: Store) -> None:
    job = await desk.job()
    changed = dataclasses.replace(job, name="renamed", pool="gpu", tags='{"a": "b"}', spec='{"new": true}')
    async with store.transaction() as transaction:
        await transaction.keep_revision(1, job.id, NOON)
        await transaction.keep_revision(1, job.id, NOON)  # again does no harm
        assert await transaction.update_job(changed, "paused", NOON + HOUR) == 2
        assert await transaction.update_job(changed, "active", NOON + HOUR) == 3
    found = await store.get_job(1, job.id, NOON)
    assert found is not None
    assert (found.name, found.pool, found.spec) == ("renamed", "gpu", '{"new": true}')
    assert (found.revision, found.state, found.updated_at) == (3, "active", NOON + HOUR)
    assert found.created_at == NOON - DAY


async def test_a_job_cannot_take_anothers_name(desk: Desk, store: Store) -> None:
    await desk.job("first")
    second = await desk.job("second")
    with pytest.raises(errors.NameTaken, match="first"):
        async with store.transaction() as transaction:
            await transaction.update_job(dataclasses.replace(second, name="first"), "active", NOON)
    assert await store.find_job(1, "second") == second.id


async def test_a_pause_is_kept_with_its_note_and_end(desk: Desk, store: Store) -> None:
    job = await desk.job()
    async with store.transaction() as transaction:
        await transaction.set_job_state(
            1, job.id, "paused", NOON, note="holidays", paused_at=NOON, until=NOON + HOUR
        )
    found = await store.get_job(1, job.id, NOON)
    assert found is not None
    assert (found.state, found.pause_note) == ("paused", "holidays")
    assert (found.paused_at, found.paused_until) == (NOON, NOON + HOUR)
    assert await store.pauses_over(NOON + HOUR - SECOND, 10) == []
    assert await store.pauses_over(NOON + HOUR, 10) == [(1, job.id)]
    async with store.transaction() as transaction:
        await transaction.set_job_state(1, job.id, "active", NOON + HOUR)
    assert await store.pauses_over(NOON + DAY, 10) == []
    found = await store.get_job(1, job.id, NOON)
    assert found is not None
    assert (found.pause_note, found.paused_at, found.paused_until) == (None, None, None)


async def test_no_more_ended_pauses_are_told_than_asked_for(desk: Desk, store: Store) -> None:
    for _ in range(3):
        job = await desk.job()
        async with store.transaction() as transaction:
            await transaction.set_job_state(1, job.id, "paused", NOON, until=NOON)
    assert len(await store.pauses_over(NOON, 2)) == 2


async def test_a_locked_job_is_one_changers_at_a_time(desk: Desk, store: Store) -> None:
    job = await desk.job()
    order: list[str] = []

    async def change(name: str) -> None:
        async with store.transaction() as transaction:
            locked = await transaction.lock_job(1, job.id)
            assert locked is not None
            order.append(f"{name} has it")
            for _ in range(5):
                await store.ping()
            order.append(f"{name} is done")

    await asyncio.gather(*(change(str(n)) for n in range(5)))
    assert all(order[n].split()[0] == order[n + 1].split()[0] for n in range(0, 10, 2))
    async with store.transaction() as transaction:
        assert await transaction.lock_job(1, uuid4()) is None


async def test_who_waited_for_a_job_sees_the_cursor_that_it_got_meanwhile(desk: Desk, store: Store) -> None:
    """Else a pause would leave a job that was given its schedule in that moment to go on firing."""
    job = await desk.job(plan=None, next_slot=None)
    made = Cursor(1, job.id, 2, NOON, "plan")

    async def wait_for_it() -> Job | None:
        async with store.transaction() as transaction:
            return await transaction.lock_job(1, job.id)

    async with store.transaction() as transaction:
        assert await transaction.lock_job(1, job.id) is not None
        waiting = asyncio.create_task(wait_for_it())
        for _ in range(50):
            await store.ping()
        assert not waiting.done()
        await transaction.set_job_state(1, job.id, "active", NOON)
        await transaction.put_cursor(made, NOON + HOUR, is_held=False)
    seen = await waiting
    assert seen is not None
    assert (seen.plan, seen.next_slot) == ("plan", NOON + HOUR)


@pytest.fixture
async def shelf(desk: Desk, store: Store) -> dict[str, str]:
    """Jobs of every sort: names by id."""
    fields: dict[str, dict[str, Any]] = {
        "alpha": {"pool": "gpu", "tags": '{"team": "a", "tier": "1"}'},
        "beta": {"target_kind": "http", "tags": '{"team": "b"}'},
        "beta.2": {"tags": '{"team": "a"}'},
        "beta_3": {},
        "Gamma": {},
        "gone": {},
        "paused": {},
    }
    jobs = {name: await desk.job(name, **given) for name, given in fields.items()}
    await _delete(store, jobs["gone"].id)
    async with store.transaction() as transaction:
        await transaction.set_job_state(1, jobs["paused"].id, "paused", NOON)
    return {name: str(job.id) for name, job in jobs.items()}


async def _names(store: Store, after: Any = None, limit: int = 100, **where: Any) -> list[str]:
    return [job.name for job in await store.list_jobs(1, JobFilter(**where), after, limit, NOON)]


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ({}, ["Gamma", "alpha", "beta", "beta.2", "beta_3", "paused"]),
        ({"state": "active"}, ["Gamma", "alpha", "beta", "beta.2", "beta_3"]),
        ({"state": "paused"}, ["paused"]),
        ({"state": "finished"}, []),
        ({"state": "deleted"}, ["gone"]),
        ({"state": "deleted", "name_prefix": "x"}, []),
        ({"name_prefix": "beta"}, ["beta", "beta.2", "beta_3"]),
        ({"name_prefix": "beta_"}, ["beta_3"]),
        ({"name_prefix": "b%"}, []),
        ({"name_prefix": "gone"}, []),
        ({"tags": {"team": "a"}}, ["alpha", "beta.2"]),
        ({"tags": {"team": "a", "tier": "1"}}, ["alpha"]),
        ({"tags": {"tier": "2"}}, []),
        ({"pool": "gpu"}, ["alpha"]),
        ({"target_kind": "http"}, ["beta"]),
        ({"target_kind": "http", "pool": "gpu"}, []),
        ({"name_prefix": "beta", "tags": {"team": "a"}, "pool": "default"}, ["beta.2"]),
    ],
    ids=str,
)
async def test_each_filter_of_jobs_takes_what_it_says(
    store: Store, shelf: dict[str, str], where: dict[str, Any], names: list[str]
) -> None:
    assert await _names(store, **where) == names


async def test_pages_of_jobs_join_without_gap_or_double_also_under_writes(desk: Desk, store: Store) -> None:
    for number in range(10):
        await desk.job(f"job-{number:02d}")
    found: list[Job] = []
    page = await store.list_jobs(1, JobFilter(), None, 3, NOON)
    while page:
        found += page
        await desk.job(f"added-before-{len(found)}")
        await desk.job(f"zz-added-after-{len(found):02d}")
        last = page[-1]
        page = await store.list_jobs(1, JobFilter(name_prefix="job"), (last.name, last.id), 3, NOON)
    names = [job.name for job in found]
    assert names == sorted(set(names))
    assert set(names) >= {f"job-{number:02d}" for number in range(10)}


async def test_deleted_jobs_of_one_name_are_listed_one_by_one(desk: Desk, store: Store) -> None:
    ids = set()
    for _ in range(5):
        job = await desk.job("same")
        ids.add(job.id)
        await _delete(store, job.id)
    found: list[Job] = []
    where = JobFilter(state="deleted")
    page = await store.list_jobs(1, where, None, 2, NOON)
    while page:
        found += page
        page = await store.list_jobs(1, where, (page[-1].name, page[-1].id), 2, NOON)
    assert [job.id for job in found] == sorted(ids)


async def test_definitions_are_told_for_the_jobs_that_there_are(desk: Desk, store: Store) -> None:
    one, other = await desk.job("one", spec='{"a": 1}'), await desk.job("other")
    asked = [(1, one.id), (1, other.id), (1, uuid4())]
    told = {each.job_id: each for each in await store.definitions(asked)}
    assert set(told) == {one.id, other.id}
    assert (told[one.id].name, told[one.id].spec, told[one.id].revision) == ("one", '{"a": 1}', 1)
    assert await store.definitions([]) == []


async def test_a_tenant_has_a_signing_secret_and_a_stranger_none(store: Store) -> None:
    assert (await store.signing_secret(1)).startswith("whsec_")
    with pytest.raises(errors.NotFound):
        await store.signing_secret(404)


# What was answered to a keyed request.

ANSWER = Answer(b"print", 201, json.dumps({"id": "x", "list": [1, 2]}))


async def test_an_answer_is_recalled_as_it_was_given(store: Store) -> None:
    async with store.transaction() as transaction:
        assert await transaction.recall(1, "key") is None
        await transaction.remember(1, "key", ANSWER, NOON)
    async with store.transaction() as transaction:
        assert await transaction.recall(1, "key") == ANSWER
        assert await transaction.recall(1, "Key") is None
        assert await transaction.recall(2, "key") is None


async def test_one_request_with_a_key_goes_on_at_a_time_and_the_others_hear_its_answer(store: Store) -> None:
    acted = 0

    async def request() -> Answer:
        nonlocal acted
        async with store.transaction() as transaction:
            known = await transaction.recall(1, "key")
            if known is not None:
                return known
            acted += 1
            for _ in range(5):
                await store.ping()
            await transaction.remember(1, "key", ANSWER, NOON)
            return ANSWER

    assert await asyncio.gather(*(request() for _ in range(10))) == [ANSWER] * 10
    assert acted == 1


async def test_a_request_that_fails_leaves_its_key_to_the_next(store: Store) -> None:
    async def fail() -> None:
        async with store.transaction() as transaction:
            await transaction.recall(1, "key")
            await transaction.remember(1, "key", ANSWER, NOON)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with store.transaction() as transaction:
        assert await transaction.recall(1, "key") is None


async def test_requests_with_other_keys_or_of_other_tenants_do_not_wait(store: Store) -> None:
    async with asyncio.timeout(5), store.transaction() as one:
        await one.recall(1, "key")
        async with store.transaction() as other:
            await other.recall(1, "other key")
            await other.recall(2, "key")


async def test_old_keys_are_forgotten(store: Store) -> None:
    async with store.transaction() as transaction:
        await transaction.remember(1, "old", ANSWER, NOON - HOUR)
        await transaction.remember(1, "new", ANSWER, NOON)
    await store.forget(keys_before=NOON, workers_before=NOON)
    async with store.transaction() as transaction:
        assert await transaction.recall(1, "old") is None
        assert await transaction.recall(1, "new") == ANSWER


# Workers.


async def test_a_worker_is_listed_as_it_registered(store: Store) -> None:
    worker = new_worker(pools=("a", "b"), handlers=("x",), lease_until=NOON + MINUTE)
    await store.register(worker)
    assert await store.list_workers(NOON + DAY) == [worker]


async def test_a_heartbeat_lengthens_the_lease_of_a_living_worker_only(desk: Desk, store: Store) -> None:
    worker = await desk.worker(lease_until=NOON + MINUTE)
    later = NOON + SECOND
    assert await store.heartbeat(worker, later, NOON + HOUR, running=3, is_draining=False)
    [kept] = await store.list_workers(NOON)
    assert (kept.heartbeat_at, kept.lease_until, kept.running) == (later, NOON + HOUR, 3)
    assert await store.lose_workers(NOON + MINUTE * 2) == []
    assert await store.lose_workers(NOON + HOUR + SECOND) == [worker]
    assert not await store.heartbeat(worker, NOON + HOUR, NOON + DAY, running=0, is_draining=False)
    assert not await store.heartbeat(uuid4(), NOON, NOON + DAY, running=0, is_draining=False)
    assert await store.lose_workers(NOON + DAY) == [], "a loss is told once"
    [lost] = await store.list_workers(NOON)
    assert lost.state == "lost"


async def test_a_worker_that_drains_stays_so_and_then_leaves(desk: Desk, store: Store) -> None:
    worker = await desk.worker()
    await store.heartbeat(worker, NOON, NOON + HOUR, running=1, is_draining=True)
    await store.heartbeat(worker, NOON, NOON + HOUR, running=1, is_draining=False)
    assert [each.state for each in await store.list_workers(NOON)] == ["draining"]
    await store.leave(worker, NOON + SECOND)
    [left] = await store.list_workers(NOON)
    assert (left.state, left.running, left.lease_until) == ("stopped", 0, NOON + SECOND)
    assert not await store.heartbeat(worker, NOON, NOON + DAY, running=0, is_draining=False)
    assert await store.list_workers(NOON + HOUR) == []


async def test_a_worker_that_is_gone_is_forgotten_unless_it_still_holds_something(
    desk: Desk, store: Store
) -> None:
    idle, holding, living = [await desk.worker() for _ in range(3)]
    await desk.staged(await desk.job(), NOON)
    await desk.claim(holding)
    for worker in (idle, holding):
        await store.leave(worker, NOON)
    await store.forget(keys_before=NOON, workers_before=NOON + HOUR)
    assert {each.id for each in await store.list_workers(NOON - DAY)} == {holding, living}
    assert len(await store.orphans(10)) == 1, "or nobody would ever take its executions back"


async def test_a_store_that_answers_says_so(store: Store) -> None:
    assert await store.ping()
