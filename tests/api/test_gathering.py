"""Jobs that are made at once share transactions, and each is answered, refused and written down as if it had come alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import orjson
import pytest

from cronwell import errors
from cronwell.control import gathering
from cronwell.control.adding import Placed
from cronwell.control.definitions import Definition, judge
from cronwell.control.gathering import ALONE, MOST, Gathering
from cronwell.runtime.postgres import Connection, Database
from tests.api.rig import HOURLY, Caller, Reply, Rig, calling
from tests.support.waiting import until, until_async

AT_ONCE = 40
TENANT = 1


@pytest.fixture
def is_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, nobody goes on alone because of a lock, or goes ahead of those before."""
    monkeypatch.setattr(gathering, "LOCK_TIMEOUT", timedelta(seconds=10))
    monkeypatch.setattr(gathering, "PATIENCE", timedelta(seconds=10))


@pytest.fixture
def is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that meets a lock is as one whose connection has fallen silent."""
    monkeypatch.setattr(gathering, "LOCK_TIMEOUT", timedelta(minutes=1))


async def _make(api: Caller, name: str, **fields: object) -> Reply:
    """Make a job by a request whose id is told by its name."""
    headers = {"X-Request-Id": f"by-{name}"}
    return await api.call("POST", "/v1/jobs", {**HOURLY, "name": name, **fields}, headers=headers)


async def _made_by(database: Database, *names: str) -> dict[str, str]:
    """The requests that the audit says jobs came by."""
    rows = await database.fetch(
        "select after ->> 'name' as name, request_id from audit where action = 'created'"
        " and object in (select 'job:' || id from jobs where name = any($1))",
        list(names),
    )
    return {row["name"]: row["request_id"] for row in rows}


@asynccontextmanager
async def _held(database: Database) -> AsyncIterator[None]:
    """Let no job be added for a while, so that those that come gather."""
    async with database.transaction() as connection:
        await connection.execute("lock table jobs in exclusive mode")
        yield


async def _together(gathered: Gathering, rig: Rig, *names: str) -> dict[str, Placed | BaseException]:
    """What comes of jobs that are added at the very same time; by name, of which the first of several counts."""
    ended = await asyncio.gather(
        *(gathered.add(TENANT, _new(rig, name)) for name in names), return_exceptions=True
    )
    came = [end if isinstance(end, BaseException) else end[1] for end in ended]
    return dict(zip(reversed(names), reversed(came), strict=True))


def _new(rig: Rig, name: str, **fields: object) -> Definition:
    return judge({**HOURLY, "name": name, **fields}, now=rig.clock.now(), settings=rig.settings)


def _of(rig: Rig) -> Gathering:
    return Gathering(rig.store, rig.clock, rig.settings.scheduler)


@asynccontextmanager
async def _renaming(database: Database, name: str, to: str) -> AsyncIterator[Connection]:
    """Be about to rename a job: whoever wants its new name waits for what becomes of that."""
    async with database.transaction() as connection:
        await connection.execute(f"update jobs set name = '{to}' where name = '{name}'")
        yield connection


async def _batch(api: Caller, names: str) -> Reply:
    lines = b"\n".join(orjson.dumps({**HOURLY, "name": name}) for name in names)
    return await api.call(
        "POST", "/v1/jobs:batch", data=lines, headers={"Content-Type": "application/x-ndjson"}
    )


async def _has(database: Database, *names: str) -> bool:
    return set(names) <= await _names(database)


async def _names(database: Database) -> set[str]:
    return {row["name"] for row in await database.fetch("select name from jobs where state <> 'deleted'")}


async def _are_waiting(database: Database, count: int = 1) -> bool:
    query = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    return int(await database.fetchval(query)) >= count


async def test_jobs_made_at_once_share_transactions_and_each_is_written_down_by_its_own_request(
    api: Caller, api_database: Database, is_patient: None
) -> None:
    names = [f"together-{n:02}" for n in range(AT_ONCE)]
    async with asyncio.TaskGroup() as tasks, _held(api_database):
        asked = [tasks.create_task(_make(api, name), name=name) for name in names]
        await until_async(lambda: _are_waiting(api_database))
    replies = [task.result() for task in asked]
    assert [(reply.status, reply.json["name"]) for reply in replies] == [(201, name) for name in names]
    query = "select count(distinct xmin::text) from jobs where name like 'together-%'"
    # One that found nobody, perhaps some that came before the next began, and all others.
    assert await api_database.fetchval(query) <= 4
    assert await _made_by(api_database, *names) == {name: f"by-{name}" for name in names}


async def test_more_than_share_a_transaction_are_all_made(api: Caller, api_database: Database) -> None:
    async with calling(api.url) as other, asyncio.TaskGroup() as tasks, _held(api_database):
        asked = [
            tasks.create_task(_make(caller, f"{place}-{n}"), name="make")
            for place, caller in enumerate((api, other))
            for n in range(MOST)
        ]
        await until_async(lambda: _are_waiting(api_database))
    assert {task.result().status for task in asked} == {201}
    assert await api_database.fetchval("select count(*) from jobs") == 2 * MOST


async def test_large_jobs_share_a_transaction_up_to_a_size(
    rig: Rig, api_database: Database, is_patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "MOST_BYTES", 3000)
    gathered = _of(rig)
    sizes = {"a": 1000, "b": 1000, "large": 5000, "c": 1000, "d": 1000}
    async with asyncio.TaskGroup() as tasks, _held(api_database):
        tasks.create_task(_together(gathered, rig, "first"), name="first")
        await until_async(lambda: _are_waiting(api_database))
        for name, size in sizes.items():
            tasks.create_task(gathered.add(TENANT, _new(rig, name, payload="x" * size)), name=name)
        await asyncio.sleep(0)
    rows = await api_database.fetch(
        "select string_agg(name, ' ' order by name) as names from jobs group by xmin::text"
    )
    assert {row["names"] for row in rows} == {"first", "a b", "large", "c d"}


async def test_of_one_name_the_one_that_is_made_is_written_down_by_its_request(
    api: Caller, api_database: Database, is_patient: None
) -> None:
    async def make(number: int) -> Reply:
        return await api.post("/v1/jobs", {**HOURLY, "name": "wanted"}, X_Request_Id=f"number-{number}")

    async with asyncio.TaskGroup() as tasks, _held(api_database):
        asked = [tasks.create_task(make(n), name="make") for n in range(AT_ONCE)]
        await until_async(lambda: _are_waiting(api_database))
    replies = [task.result() for task in asked]
    [winner] = [place for place, reply in enumerate(replies) if reply.status == 201]
    assert {reply.status for place, reply in enumerate(replies) if place != winner} == {409}
    assert await _made_by(api_database, "wanted") == {"wanted": f"number-{winner}"}


async def test_one_that_cannot_be_written_fails_alone(
    api: Caller, api_database: Database, is_patient: None
) -> None:
    await api_database.execute(
        "create function refuse() returns trigger language plpgsql as"
        " $$ begin if new.name = 'poison' then raise 'no'; end if; return new; end $$;"
        " create trigger refuse before insert on jobs for each row execute function refuse()"
    )
    try:
        async with asyncio.TaskGroup() as tasks, _held(api_database):
            asked = {
                name: tasks.create_task(_make(api, name), name=name)
                for name in ["first", "poison", *(f"other-{n}" for n in range(10))]
            }
            await until_async(lambda: _are_waiting(api_database))
    finally:
        await api_database.execute("drop trigger refuse on jobs; drop function refuse()")
    statuses = {name: task.result().status for name, task in asked.items()}
    assert statuses.pop("poison") == 500
    assert set(statuses.values()) == {201}
    assert await _made_by(api_database, *statuses) == {name: f"by-{name}" for name in statuses}


async def test_who_goes_away_takes_nobody_along(rig: Rig, api_database: Database) -> None:
    api = rig.caller
    async with asyncio.TaskGroup() as tasks, _held(api_database):
        gone = tasks.create_task(_make(api, "gone"), name="gone")
        await until_async(lambda: _are_waiting(api_database))
        impatient = tasks.create_task(_make(api, "impatient"), name="impatient")
        others = [tasks.create_task(_make(api, f"stays-{n}"), name="stays") for n in range(10)]
        # Answered after those that were sent before it have come, as all are served by one loop.
        assert (await api.get("/healthz")).status == 200
        gone.cancel()
        impatient.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(gone, impatient)
    assert {task.result().status for task in others} == {201}
    # What nobody waits for was made or not, but is whole: nothing of it is in the way of another try.
    again = await _make(api, "gone")
    assert again.status in (201, 409)


async def test_a_job_that_nobody_waits_for_any_more_is_not_added(
    rig: Rig, api_database: Database, is_patient: None
) -> None:
    gathered = _of(rig)
    async with asyncio.TaskGroup() as tasks, _held(api_database):
        tasks.create_task(_together(gathered, rig, "first"), name="first")
        await until_async(lambda: _are_waiting(api_database))
        gone = asyncio.create_task(gathered.add(TENANT, _new(rig, "gone")), name="gone")
        stays = tasks.create_task(gathered.add(TENANT, _new(rig, "stays")), name="stays")
        # They come, and stand in line.
        await asyncio.sleep(0)
        gone.cancel()
    assert isinstance(stays.result()[1], tuple)
    assert await _names(api_database) == {"first", "stays"}


async def test_what_needs_a_transaction_of_its_own_is_made_beside_the_others(
    api: Caller, api_database: Database
) -> None:
    await api.create(name="upstream")
    follower = {"target": HOURLY["target"], "after": ["upstream"]}
    replies = await asyncio.gather(
        *(_make(api, f"plain-{n}") for n in range(10)),
        *(api.post("/v1/jobs", {"name": f"follows-{n}", **follower}) for n in range(5)),
        *(
            api.post("/v1/jobs", {**HOURLY, "name": f"keyed-{n}"}, Idempotency_Key=f"key-{n}")
            for n in range(5)
        ),
    )
    assert {reply.status for reply in replies} == {201}, [reply.body for reply in replies]
    assert await api_database.fetchval("select count(*) from dependencies") == 5


async def test_each_is_written_down_in_the_name_of_who_sent_it(
    api: Caller, api_database: Database, is_patient: None
) -> None:
    keys = [
        (await api.post("/v1/keys", {"name": f"key-{n}", "scopes": ["read", "write"]})).json for n in (1, 2)
    ]
    async with asyncio.TaskGroup() as tasks, _held(api_database):
        asked = [
            tasks.create_task(
                api.post(
                    "/v1/jobs",
                    {**HOURLY, "name": f"{key['prefix']}-{n}"},
                    Authorization=f"Bearer {key['key']}",
                ),
                name="make",
            )
            for n in range(AT_ONCE // 2)
            for key in keys
        ]
        await until_async(lambda: _are_waiting(api_database))
    assert {task.result().status for task in asked} == {201}
    rows = await api_database.fetch(
        "select after ->> 'name' as name, actor from audit where action = 'created'"
        " and object in (select 'job:' || id from jobs)"
    )
    names = {row["name"]: row["actor"] for row in rows}
    assert len(names) == AT_ONCE
    for name, actor in names.items():
        assert actor == f"key {name.rpartition('-')[0]}"


async def test_a_name_that_is_taken_or_comes_twice_takes_no_room_from_the_others(
    rig: Rig, api_database: Database
) -> None:
    taken = [f"taken-{n}" for n in range(3)]
    for name in taken:
        await rig.caller.create(name=name)
    try:
        await _limit(rig.caller, 5)
        came = await _together(_of(rig), rig, *taken, "new-1", "new-1", "new-2", "new-3")
        assert all(isinstance(came[name], errors.NameTaken) for name in taken)
        assert isinstance(came["new-3"], errors.QuotaExceeded)
        assert await _names(api_database) == {*taken, "new-1", "new-2"}
    finally:
        await _limit(rig.caller, None)


async def test_who_finds_the_last_room_taken_by_those_it_came_with_is_told_of_them(rig: Rig) -> None:
    try:
        await _limit(rig.caller, 2)
        came = await _together(_of(rig), rig, "a", "b", "c")
        assert "has 2 jobs and may have 2" in str(came["c"])
    finally:
        await _limit(rig.caller, None)


async def _limit(api: Caller, jobs: int | None) -> None:
    assert (await api.call("PATCH", "/v1/tenants/default", {"quotas": {"jobs": jobs}})).status == 200


async def test_a_name_that_somebody_holds_keeps_no_other_waiting(api: Caller, api_database: Database) -> None:
    await api.create(name="another")
    async with (
        asyncio.timeout(20),
        asyncio.TaskGroup() as tasks,
        _renaming(api_database, "another", "wanted"),
    ):
        wanted = tasks.create_task(_make(api, "wanted"), name="wanted")
        await until_async(lambda: _are_waiting(api_database))
        free = await asyncio.gather(*(_make(api, f"free-{n}") for n in range(10)))
        assert {reply.status for reply in free} == {201}
        assert not wanted.done()
    assert wanted.result().status == 409


async def test_those_who_came_together_with_a_name_that_somebody_holds_do_not_wait_for_it(
    rig: Rig, api_database: Database
) -> None:
    await rig.caller.create(name="another")
    names = ["free-1", "wanted", "free-2"]
    async with (
        asyncio.timeout(20),
        asyncio.TaskGroup() as tasks,
        _renaming(api_database, "another", "wanted"),
    ):
        came = tasks.create_task(_together(_of(rig), rig, *names), name="together")
        await until_async(lambda: _has(api_database, "free-1", "free-2"))
        assert not came.done()
    assert isinstance(came.result()["wanted"], errors.NameTaken)


async def test_those_who_go_on_alone_leave_connections_to_everybody_else(
    rig: Rig, api_database: Database
) -> None:
    names = [f"alone-{n}" for n in range(20)]
    async with asyncio.TaskGroup() as tasks, _held(api_database):
        tasks.create_task(_together(_of(rig), rig, *names), name="together")
        await until_async(lambda: _are_waiting(api_database, ALONE))
        assert (await rig.caller.get("/v1/jobs")).status == 200
    assert await _names(api_database) == set(names)


async def test_a_transaction_that_takes_long_keeps_nobody_in_line_waiting(
    rig: Rig, api_database: Database, is_stuck: None
) -> None:
    await rig.caller.create(name="another")
    gathered = _of(rig)
    async with (
        asyncio.timeout(20),
        asyncio.TaskGroup() as tasks,
        _renaming(api_database, "another", "wanted"),
    ):
        stuck = tasks.create_task(_together(gathered, rig, "wanted"), name="stuck")
        await until_async(lambda: _are_waiting(api_database))
        await _together(gathered, rig, "free-1", "free-2")
        assert not stuck.done()
    assert await _names(api_database) == {"wanted", "free-1", "free-2"}


async def test_who_waits_in_line_for_too_long_is_refused_and_not_added_later(
    rig: Rig, api_database: Database, is_stuck: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = _of(rig)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks, _held(api_database):
        tasks.create_task(_together(gathered, rig, "first"), name="first")
        await until_async(lambda: _are_waiting(api_database))
        monkeypatch.setattr(gathering, "LONGEST_WAIT", timedelta(0))
        with pytest.raises(errors.StoreUnavailable, match="nothing was written"):
            await gathered.add(TENANT, _new(rig, "late"))
    assert await _names(api_database) == {"first"}


async def test_who_waits_for_too_long_to_go_on_alone_is_refused_and_not_added_later(
    rig: Rig, api_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "LONGEST_WAIT", timedelta(seconds=2))
    gathered = _of(rig)
    names = [f"alone-{n}" for n in range(10)]
    async with asyncio.TaskGroup() as tasks, _held(api_database):
        asked = [tasks.create_task(_together(gathered, rig, name), name=name) for name in names]
        await until(lambda: sum(task.done() for task in asked) == len(names) - ALONE)
        refused = {name: came for task in asked if task.done() for name, came in task.result().items()}
        assert {type(each) for each in refused.values()} == {errors.StoreUnavailable}
    assert await _names(api_database) == set(names) - set(refused)


async def test_who_is_turned_away_in_a_circle_of_locks_tries_again_alone(
    rig: Rig, api_database: Database, is_patient: None
) -> None:
    for name in ("one", "other"):
        await rig.caller.create(name=name)
    async with asyncio.TaskGroup() as tasks, _renaming(api_database, "one", "z") as connection:
        came = tasks.create_task(_together(_of(rig), rig, "a", "m", "z"), name="together")
        await until_async(lambda: _are_waiting(api_database))
        # They wait for z, and this for a, until PostgreSQL ends one of the two: those who began to wait first.
        await connection.execute("update jobs set name = 'a' where name = 'other'")
    assert isinstance(came.result()["m"], tuple)
    assert all(isinstance(came.result()[name], errors.NameTaken) for name in ("a", "z"))


async def test_two_batches_of_the_same_names_in_other_orders_do_not_wait_in_a_circle(
    api: Caller, api_database: Database
) -> None:
    await api.create(name="one")
    async with asyncio.TaskGroup() as tasks, _renaming(api_database, "one", "b") as connection:
        asked = [tasks.create_task(_batch(api, names), name=names) for names in ("abc", "cba")]
        await until_async(lambda: _are_waiting(api_database, 2))
        await connection.execute("update jobs set name = 'one' where name = 'b'")
    told = [[orjson.loads(line) for line in task.result().body.splitlines()] for task in asked]
    assert sorted([each["status"] for each in lines] for lines in told) == [["created"] * 3, ["error"] * 3]
    assert {each["problem"]["type"] for lines in told for each in lines if "problem" in each} == {
        "urn:cronwell:name-taken"
    }


async def test_what_may_have_been_written_is_not_tried_again(rig: Rig, api_database: Database) -> None:
    await api_database.execute(
        "create function linger() returns trigger language plpgsql as"
        " $$ begin perform pg_sleep(60); return null; end $$;"
        " create constraint trigger linger after insert on jobs deferrable initially deferred"
        " for each row when (new.name = 'b') execute function linger()"
    )
    try:
        asked = asyncio.create_task(_together(_of(rig), rig, "a", "b", "c"), name="together")
        end = (
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and query = 'commit' and wait_event = 'PgSleep'"
        )
        await until_async(lambda: api_database.fetchval(end))
        came = await asked
    finally:
        await api_database.execute("drop trigger linger on jobs; drop function linger()")
    assert {type(each) for each in came.values()} == {errors.CommitUnknown}
    assert await _names(api_database) == set()


async def test_what_is_not_added_when_the_gathering_is_closed_is_not_added_later(
    rig: Rig, api_database: Database
) -> None:
    gathered = _of(rig)
    async with _held(api_database):
        asked = asyncio.create_task(_together(gathered, rig, "a", "b", "c"), name="together")
        # Each has gone on alone, and those that come now wait together.
        await until_async(lambda: _are_waiting(api_database, 3))
        late = asyncio.create_task(_together(gathered, rig, "d", "e"), name="late")
        await until_async(lambda: _are_waiting(api_database, 4))
        await gathered.close()
        for came in (await asked, await late):
            assert {type(each) for each in came.values()} == {asyncio.CancelledError}
        assert not await _are_waiting(api_database)
    assert await _names(api_database) == set()


@pytest.mark.parametrize("turns", range(4))
async def test_nobody_waits_for_ever_who_comes_as_the_gathering_is_closed(
    rig: Rig, api_database: Database, turns: int
) -> None:
    gathered = _of(rig)

    async def close() -> None:
        # Whatever the job waits for by then: most of it is ended before its first step.
        for _ in range(turns):
            await asyncio.sleep(0)
        await gathered.close()

    async with asyncio.timeout(10):
        came, _ = await asyncio.gather(gathered.add(TENANT, _new(rig, "a")), close(), return_exceptions=True)
    assert isinstance(came, asyncio.CancelledError)
    assert await _names(api_database) == set()


async def test_who_comes_after_the_gathering_was_closed_is_refused(rig: Rig, api_database: Database) -> None:
    gathered = _of(rig)
    await gathered.close()
    with pytest.raises(errors.StoreUnavailable, match="nothing was written"):
        await gathered.add(TENANT, _new(rig, "a"))
    assert await _names(api_database) == set()
