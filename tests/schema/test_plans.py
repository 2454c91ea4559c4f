"""At a million rows, and on a database that is still empty, every statement finds its rows by the right index."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta

import pytest

from cronwell.config import DatabaseSettings
from cronwell.runtime.acting import acting_for, judged_by_statement
from cronwell.runtime.postgres import Connection, Database
from cronwell.store.port import EVER
from tests.schema import million, plans
from tests.schema.guards import COLD, HOT, KEY, PLACE, STATEMENTS, UNGUARDED, Guard, Way, way
from tests.schema.million import NOON, worker_id
from tests.support import postgres


@pytest.fixture(scope="module")
def million_url(server: str, migrated: str) -> Iterator[str]:
    """A database with a million jobs, cursors and executions; nothing that a test does to it is kept."""
    url = asyncio.run(_database(server, migrated, million.load))
    yield url
    asyncio.run(postgres.drop_database(server, url))


@pytest.fixture(scope="module")
def empty_url(server: str, migrated: str) -> str:
    """A database that has days and nothing else, as on the first start."""

    async def make_days(database: Database) -> None:
        async with database.transaction() as connection:
            await million.make_days(connection)

    return asyncio.run(_database(server, migrated, make_days))


async def _database(server: str, migrated: str, fill: Callable[[Database], Awaitable[None]]) -> str:
    url = await postgres.create_database(server, template=migrated)
    database = await Database.connect(DatabaseSettings(), url, application_name="test")
    await fill(database)
    await database.close()
    return url


TENANT = 1


class _Undone(Exception):
    """Ends a transaction of which nothing is to be kept."""


async def _connection(url: str, *, is_hot: bool) -> AsyncIterator[Connection]:
    database = await Database.connect(DatabaseSettings(), url, application_name="test", is_hot=is_hot)
    try:
        async with database.transaction() as connection:
            yield connection
            raise _Undone
    except _Undone:
        pass
    finally:
        await database.close()


@pytest.fixture
async def hot(million_url: str) -> AsyncIterator[Connection]:
    """A connection as schedulers and workers have it, to a million rows."""
    async for connection in _connection(million_url, is_hot=True):
        yield connection


@pytest.fixture
async def cold(million_url: str) -> AsyncIterator[Connection]:
    """A connection as the API has it, to a million rows."""
    async for connection in _connection(million_url, is_hot=False):
        yield connection


@pytest.fixture
async def empty(empty_url: str) -> AsyncIterator[Connection]:
    """A connection as schedulers and workers have it, to a database that has no rows yet."""
    async for connection in _connection(empty_url, is_hot=True):
        yield connection


def _named(guard: Guard) -> str:
    return guard.statement


@pytest.mark.parametrize("guard", HOT, ids=_named)
async def test_a_hot_statement_goes_by_its_index_at_a_million_rows(guard: Guard, hot: Connection) -> None:
    guard.check(await plans.generic_plan(hot, guard.sql, guard.args))


# Whether a day is busy is asked of days that have been full for weeks.
@pytest.mark.parametrize("guard", [each for each in HOT if each.statement != "is_day_busy"], ids=_named)
async def test_a_plan_from_an_empty_database_still_serves_when_it_is_full(
    guard: Guard, empty: Connection
) -> None:
    guard.check(await plans.generic_plan(empty, guard.sql, guard.args))


@pytest.mark.parametrize("guard", COLD, ids=_named)
async def test_what_users_ask_for_is_found_by_an_index(guard: Guard, cold: Connection) -> None:
    # Planned anew for each call, so it may read a day through that is empty at this moment.
    plan = await plans.custom_plan(cold, guard.sql, guard.args)
    guard.check(plan, besides=million.empty_partitions())


@pytest.mark.parametrize("guard", COLD, ids=_named)
async def test_row_level_security_takes_no_index_away(guard: Guard, million_url: str) -> None:
    by_tags = any(way.index == "jobs_tags" for ways in guard.ways.values() for way in ways)
    with acting_for(TENANT), judged_by_statement() if by_tags else contextlib.nullcontext():
        async for tenant in _connection(million_url, is_hot=False):
            plan = await plans.custom_plan(tenant, guard.sql, guard.args)
            # What compares an enum is not leakproof; a slot of a job has an execution of each kind at the most.
            guard.check(plan, besides=million.empty_partitions(), without=["kind"])


@pytest.mark.parametrize(
    ("function", "arguments", "ways"),
    [
        ("unfinished_before", ["until", "ready_by"], {"old": (way("executions_unfinished", "slot"),)}),
        ("begun_early", ["moment"], {"moved": (KEY,)}),
    ],
)
async def test_what_a_claim_asks_of_all_days_goes_by_its_index(
    function: str, arguments: list[str], ways: dict[str, tuple[Way, ...]], hot: Connection
) -> None:
    body: str = await hot.fetchval("select prosrc from pg_proc where proname = $1", function)
    sql = body.partition("return query")[2].rpartition(";\nend")[0]
    for place, name in enumerate(arguments, 1):
        sql = re.sub(rf"\b{name}\b", f"${place}::timestamptz", sql)
    guard = Guard(function, [NOON] * len(arguments), ways)
    guard.check(await plans.generic_plan(hot, sql, guard.args))


def test_every_statement_on_a_large_table_has_a_guard() -> None:
    guarded = {guard.statement for guard in (*HOT, *COLD)}
    assert set(STATEMENTS) == guarded | UNGUARDED
    assert not guarded & UNGUARDED


DROPS = {
    "jobs_pkey": "alter table jobs drop constraint jobs_pkey",
    "cursors_pkey": "alter table cursors drop constraint cursors_pkey",
    "executions_pkey": "alter table executions drop constraint executions_pkey",
    "attempts_pkey": "alter table attempts drop constraint attempts_pkey",
    **{
        index: f"drop index {index}"
        for index in (
            *("jobs_name", "jobs_deleted", "jobs_tags", "jobs_pause_ends", "cursors_due", "cursors_ended"),
            "cursors_awaiting",
            *("executions_claimable", "executions_running", "executions_unfinished", "executions_dead"),
            "executions_recent",
            "executions_called",
            "executions_followed",
        )
    },
}


@pytest.mark.parametrize("index", DROPS)
async def test_without_an_index_its_guards_fail(index: str, hot: Connection, cold: Connection) -> None:
    """A guard that nothing can break guards nothing; the drop is undone with the connection's transaction."""
    relying = [
        (guard, plans.generic_plan if is_hot else plans.custom_plan, hot if is_hot else cold)
        for is_hot, guards in ((True, HOT), (False, COLD))
        for guard in guards
        # What may go by its place does so without any index.
        if any(index in {way.index for way in ways} and PLACE not in ways for ways in guard.ways.values())
    ]
    assert relying
    unbroken = []
    for guard, explain, connection in relying:
        await connection.execute("savepoint whole")
        await connection.execute(DROPS[index])
        plan = await explain(connection, guard.sql, guard.args)
        try:
            guard.check(plan, besides=million.empty_partitions())
        except AssertionError:
            pass
        else:
            unbroken.append(guard.statement)
        await connection.execute("rollback to savepoint whole")
    assert unbroken == []


@pytest.mark.parametrize("batch", [1, 100, 1000])
async def test_a_claim_from_a_herd_reads_as_much_as_it_takes(batch: int, hot: Connection) -> None:
    args = ["default", 1, NOON, worker_id(1), batch, NOON, EVER, EVER]
    plan = await plans.run_plan(hot, STATEMENTS["claim"], args)
    # Each is looked at twice, as a candidate and by its key, in a herd of 200,000; one that is limited, as every second is, once
    # more among those of its job.
    assert 2 * batch <= plan.rows_read <= 2.5 * batch + 10
    assert plan.buffers <= 25 * batch + 100


@pytest.mark.parametrize("statement", ["claim", "claim_shares", "due_tiers", "complete", "succeed"])
async def test_a_statement_that_looks_for_new_slots_names_no_day_before_them(
    statement: str, hot: Connection
) -> None:
    """Each would cost it 0.01 ms."""
    [guard] = [each for each in HOT if each.statement == statement]
    *args, last = guard.args
    given = [*args[:-1], NOON, last] if statement == "claim_shares" else [*args, NOON]
    plan = await plans.run_plan(hot, guard.sql, given)
    found = {"candidate", "due", "e", "executions"}
    days = {scan.partition for scan in plan.scans if scan.alias in found}
    assert min(days) >= f"executions_{NOON - timedelta(days=1):%Y%m%d}", plan
    assert f"executions_{NOON:%Y%m%d}" in days


WRITING = [guard for guard in HOT if re.search(r"\b(update|delete)\b", guard.sql)]
LOOKED_AFTER = {
    # They look again, in all days, for what they did not find.
    *(("complete", "e"), ("succeed", "e")),
    # They change what they have locked.
    *((claim, "executions") for claim in ("claim", "claim_shares", "claim_found", "claim_gated")),
    # It is through with this before it changes anything.
    ("skip_blocked", "newer"),
}


@pytest.mark.parametrize("guard", WRITING, ids=_named)
async def test_what_waits_for_locks_leaves_out_days_beforehand_or_by_what_it_joins_but_not_by_both(
    guard: Guard, hot: Connection
) -> None:
    """PostgreSQL 18.4 finds nothing more by a search with both once a row was met that had just been changed."""
    for scan in (await plans.generic_plan(hot, guard.sql, guard.args)).scans:
        bounds = re.findall(r"\bslot (?:=|<|>|<=|>=) (\S+)", str(scan))
        given = [bound for bound in bounds if bound.lstrip("(").startswith(("$", "'"))]
        if scan.table in ("executions", "attempts") and (guard.statement, scan.alias) not in LOOKED_AFTER:
            assert not given or len(given) == len(bounds), scan


async def test_locking_due_cursors_reads_as_many_as_are_locked(hot: Connection) -> None:
    args = [list(range(64)), NOON + timedelta(hours=1), 32, [EVER] * 64]
    plan = await plans.run_plan(hot, STATEMENTS["lock_due"], args)
    assert plan.rows_read == 64 * 32
    assert plan.buffers <= 5 * plan.rows_read


@pytest.mark.parametrize("statement", ["hand_back", "report", "complete", "succeed", "park", "hear"])
async def test_a_result_reads_the_row_that_it_is_about(statement: str, hot: Connection) -> None:
    [guard] = [each for each in HOT if each.statement == statement]
    plan = await plans.run_plan(hot, guard.sql, guard.args)
    results = plans.literal(guard.args[1]).count(",") + 1
    assert plan.rows_read <= 2 * results, "as many as there are results, and again for those that failed"
