"""The database pool: what is known after each kind of failure, and that it heals by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

from cronwell import errors
from cronwell.config import DatabaseSettings
from cronwell.runtime import postgres
from cronwell.runtime.postgres import Database
from tests.support.pooler import Pooler, pooler_to
from tests.support.postgres import temporary_server
from tests.support.proxy import Proxy, proxy_to
from tests.support.waiting import until_async

SHORT = DatabaseSettings(statement_timeout=timedelta(milliseconds=200))


@pytest.fixture
async def notes(database: Database) -> Database:
    """A database with a table to write in."""
    await database.execute("create table notes (id int primary key, text text not null default '')")
    return database


@pytest.fixture
async def proxy(notes: Database, database_url: str) -> AsyncIterator[Proxy]:
    async with proxy_to(database_url) as opened:
        yield opened


@pytest.fixture
async def proxied(proxy: Proxy) -> AsyncIterator[Database]:
    """The same database, seen through the proxy."""
    opened = await Database.connect(DatabaseSettings(), proxy.url, application_name="proxied")
    yield opened
    await opened.close()


@pytest.fixture
async def pooler(notes: Database, database_url: str) -> AsyncIterator[Pooler]:
    async with pooler_to(database_url) as opened:
        yield opened


async def ids(database: Database) -> list[int]:
    return [row["id"] for row in await database.fetch("select id from notes order by id")]


# What a session is


async def test_a_session_is_set_up_by_its_start_and_not_by_statements(database: Database) -> None:
    rows = await database.fetch(
        "select name, setting, source from pg_settings where name = any($1)",
        ["jit", "TimeZone", "application_name", "statement_timeout", "idle_in_transaction_session_timeout"],
    )
    assert {row["name"]: row["setting"] for row in rows} == {
        "jit": "off",
        "TimeZone": "UTC",
        "application_name": "test",
        "statement_timeout": "30000",
        "idle_in_transaction_session_timeout": "15000",
    }
    assert {row["source"] for row in rows} == {"client"}


async def test_json_travels_as_text(database: Database) -> None:
    assert await database.fetchval("""select '{"a": 1}'::jsonb""") == '{"a": 1}'
    assert await database.fetchval("select ($1::jsonb)->>'a'", '{"a": "b"}') == "b"


async def test_giving_a_connection_back_costs_no_round_trip(database: Database, database_url: str) -> None:
    other = await Database.connect(DatabaseSettings(), database_url, application_name="other", pool_size=1)
    await other.fetchval("select 'the last word'")
    last = "select query from pg_stat_activity where application_name = 'other'"
    assert await database.fetchval(last) == "select 'the last word'"
    await other.close()


async def test_no_more_connections_are_opened_than_allowed(database: Database, database_url: str) -> None:
    small = await Database.connect(DatabaseSettings(), database_url, application_name="small", pool_size=2)
    try:
        await asyncio.gather(*(small.fetchval("select pg_backend_pid()") for _ in range(20)))
        count = "select count(*) from pg_stat_activity where application_name = 'small'"
        assert await database.fetchval(count) == 2
    finally:
        await small.close()


# Transactions


async def test_a_transaction_commits_at_the_end_of_its_block(notes: Database) -> None:
    async with notes.transaction() as connection:
        await connection.execute("insert into notes values ($1)", 1)
        assert await connection.fetchval("select count(*) from notes") == 1
        assert await ids(notes) == []
    assert await ids(notes) == [1]


async def test_rows_can_be_copied_in(notes: Database) -> None:
    async with notes.transaction() as connection:
        rows = [(n, str(n)) for n in range(100)]
        await connection.copy_records_to_table("notes", records=rows, columns=("id", "text"))
        row = await connection.fetchrow("select text from notes where id = 42")
    assert row is not None
    assert row["text"] == "42"
    assert len(await ids(notes)) == 100


async def test_whatever_leaves_the_block_rolls_back(notes: Database) -> None:
    async def write_and_fail() -> None:
        async with notes.transaction() as connection:
            await connection.execute("insert into notes values (1)")
            raise LookupError

    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    with pytest.raises(LookupError):
        await write_and_fail()
    assert await ids(notes) == []
    # asyncpg complains where it finds a transaction open and has to end it itself.
    assert complaints == []


async def test_an_error_of_the_block_that_looks_like_a_lost_connection_is_left_alone(notes: Database) -> None:
    with pytest.raises(ConnectionResetError):
        async with notes.transaction():
            raise ConnectionResetError("a file server, say")


async def test_a_cancelled_transaction_rolls_back_and_gives_its_connection_back(database_url: str) -> None:
    single = await Database.connect(DatabaseSettings(), database_url, application_name="single", pool_size=1)
    try:
        await single.execute("create table notes (id int primary key)")
        written = asyncio.Event()

        async def write_slowly() -> None:
            async with single.transaction() as connection:
                await connection.execute("insert into notes values (1)")
                written.set()
                await connection.execute("select pg_sleep(60)")

        task = asyncio.create_task(write_slowly())
        await written.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await ids(single) == []
    finally:
        await single.close()


async def test_a_commit_after_a_swallowed_error_is_not_taken_for_success(notes: Database) -> None:
    async def write_and_swallow() -> None:
        async with notes.transaction() as connection:
            await connection.execute("insert into notes values (1)")
            with pytest.raises(asyncpg.UniqueViolationError):
                await connection.execute("insert into notes values (1)")

    with pytest.raises(asyncpg.InFailedSQLTransactionError, match="nothing was written"):
        await write_and_swallow()
    assert await ids(notes) == []


# What the server refuses stays what it is


async def test_a_violated_constraint_reaches_the_adapter(notes: Database) -> None:
    await notes.execute("insert into notes values (1)")
    with pytest.raises(asyncpg.UniqueViolationError):
        await notes.execute("insert into notes values (1)")


async def test_a_constraint_that_is_violated_at_commit_reaches_the_adapter(notes: Database) -> None:
    await notes.execute("create table links (id int references notes deferrable initially deferred)")
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        async with notes.transaction() as connection:
            await connection.execute("insert into links values (7)")
    assert await notes.fetchval("select count(*) from links") == 0


async def test_a_wrong_argument_is_a_mistake_and_not_an_outage(database: Database) -> None:
    with pytest.raises(asyncpg.DataError):
        await database.fetchval("select $1::int", "seven")
    assert await database.fetchval("select $1::int", 7) == 7


# What never will work is said at the start


@pytest.mark.parametrize(
    "url",
    [
        "mysql://localhost/db",
        "postgresql://localhost:port/db",
        "postgresql://u@/db?host=/x&port=1&sslmode=no",
    ],
)
async def test_a_wrong_address_is_a_wrong_setting(url: str) -> None:
    with pytest.raises(errors.ConfigError, match="CRONWELL_DATABASE_URL"):
        await Database.connect(DatabaseSettings(), url, application_name="test")


async def test_a_database_that_does_not_exist_is_a_wrong_setting(database_url: str) -> None:
    with pytest.raises(errors.ConfigError, match="does not exist"):
        await Database.connect(
            DatabaseSettings(), database_url.replace("/test_", "/missing_"), application_name="test"
        )


async def test_an_empty_pool_is_a_wrong_setting(database_url: str) -> None:
    with pytest.raises(errors.ConfigError, match="POOL_SIZE"):
        await Database.connect(DatabaseSettings(pool_size=0), database_url, application_name="test")


async def test_a_server_that_is_too_old_is_refused(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "OLDEST_SUPPORTED", 99)
    with pytest.raises(errors.ConfigError, match="needs 99 or later"):
        await Database.connect(DatabaseSettings(), database_url, application_name="test")


@pytest.mark.parametrize(
    "url", ["postgresql://u@127.0.0.1:1/db", "postgresql://u@/db?host=/nonexistent&port=1"]
)
async def test_a_server_that_is_not_there_is_an_outage(url: str) -> None:
    with pytest.raises(errors.StoreUnavailable, match="does not answer"):
        await Database.connect(DatabaseSettings(), url, application_name="test")


# Losing the server


async def test_a_connection_lost_before_commit_means_that_nothing_was_written(notes: Database) -> None:
    async def write_and_be_terminated() -> None:
        async with notes.transaction() as connection:
            await connection.execute("insert into notes values (1)")
            pid = await connection.fetchval("select pg_backend_pid()")
            await notes.execute("select pg_terminate_backend($1, 5000)", pid)
            await connection.execute("insert into notes values (2)")

    with pytest.raises(errors.StoreUnavailable) as raised:
        await write_and_be_terminated()
    assert not isinstance(raised.value, errors.CommitUnknown)
    assert await ids(notes) == []


async def test_a_connection_cut_before_commit_means_that_nothing_was_written(
    notes: Database, proxy: Proxy, proxied: Database
) -> None:
    async def write_and_be_cut_off() -> None:
        async with proxied.transaction() as connection:
            await connection.execute("insert into notes values (1)")
            proxy.cut()
            await connection.execute("insert into notes values (2)")

    with pytest.raises(errors.StoreUnavailable) as raised:
        await write_and_be_cut_off()
    assert not isinstance(raised.value, errors.CommitUnknown)
    assert await ids(proxied) == []


async def test_a_commit_that_never_arrived_is_unknown(proxy: Proxy, proxied: Database) -> None:
    proxy.cut_before = b"commit"
    with pytest.raises(errors.CommitUnknown):
        async with proxied.transaction() as connection:
            await connection.execute("insert into notes values (1)")
    assert await ids(proxied) == []


async def test_a_commit_whose_answer_was_lost_is_unknown_although_it_happened(
    notes: Database, proxy: Proxy, proxied: Database
) -> None:
    proxy.cut_after = b"commit"
    with pytest.raises(errors.CommitUnknown):
        async with proxied.transaction() as connection:
            await connection.execute("insert into notes values (1)")
    assert await until_async(lambda: ids(notes)) == [1]


async def test_a_lone_statement_whose_answer_was_lost_is_unknown_too(
    notes: Database, proxy: Proxy, proxied: Database
) -> None:
    await proxied.execute("insert into notes values ($1)", 1)
    proxy.cut_after = b"\0\0\0\x04\0\0\0\x02"  # the argument
    with pytest.raises(errors.CommitUnknown):
        await proxied.execute("insert into notes values ($1)", 2)
    assert await until_async(lambda: notes.fetchval("select count(*) = 2 from notes"))


async def test_a_commit_that_gets_no_answer_in_time_is_unknown(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "CLIENT_MARGIN", timedelta(milliseconds=100))
    impatient = await Database.connect(SHORT, proxy.url, application_name="impatient")

    async def commit_into_silence() -> None:
        async with impatient.transaction() as connection:
            await connection.execute("insert into notes values (1)")
            proxy.go_silent()

    with pytest.raises(errors.CommitUnknown, match="in time"):
        await commit_into_silence()
    proxy.speak()
    await impatient.close()


async def test_a_silent_server_inside_a_transaction_means_that_nothing_was_written(
    notes: Database, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "CLIENT_MARGIN", timedelta(milliseconds=100))
    monkeypatch.setattr(postgres, "ROLLBACK_TIMEOUT", timedelta(milliseconds=100))
    impatient = await Database.connect(SHORT, proxy.url, application_name="impatient")

    async def write_into_silence() -> None:
        async with impatient.transaction() as connection:
            await connection.execute("insert into notes values (1)")
            proxy.go_silent()
            await connection.execute("insert into notes values (2)")

    with pytest.raises(errors.StoreUnavailable, match="in time") as raised:
        await write_into_silence()
    assert not isinstance(raised.value, errors.CommitUnknown)
    proxy.speak()
    assert await ids(notes) == []
    await impatient.close()


async def test_a_statement_that_takes_too_long_is_given_up_by_the_server(
    notes: Database, database_url: str
) -> None:
    impatient = await Database.connect(SHORT, database_url, application_name="impatient")
    with pytest.raises(errors.StoreUnavailable, match="statement timeout") as raised:
        await impatient.execute("with slow as (select pg_sleep(60)) insert into notes select 1 from slow")
    assert not isinstance(raised.value, errors.CommitUnknown)
    assert await ids(impatient) == []
    await impatient.close()


async def test_waiting_for_a_free_connection_has_an_end(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "ACQUIRE_TIMEOUT", timedelta(milliseconds=50))
    single = await Database.connect(DatabaseSettings(), database_url, application_name="single", pool_size=1)
    async with single.transaction():
        with pytest.raises(errors.StoreUnavailable, match="no connection"):
            await single.fetchval("select 1")
    assert await single.fetchval("select 1") == 1
    await single.close()


async def test_a_closed_pool_says_so_and_closing_does_not_wait_for_ever(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "CLIENT_MARGIN", timedelta(milliseconds=50))
    closing = await Database.connect(DatabaseSettings(), database_url, application_name="closing")

    async def go_on_regardless() -> None:
        async with closing.transaction() as connection:
            await closing.close()
            await connection.execute("select 1")

    with pytest.raises(errors.StoreUnavailable):
        await go_on_regardless()
    with pytest.raises(errors.StoreUnavailable, match="no connection"):
        await closing.fetchval("select 1")


async def test_a_schema_that_moves_under_a_transaction_costs_one_retry(notes: Database) -> None:
    async def read_all() -> None:
        async with notes.transaction() as connection:
            await connection.fetch("select * from notes")

    await read_all()
    await notes.execute("alter table notes add column more text")
    with pytest.raises(errors.StoreUnavailable):
        await read_all()
    await read_all()


async def test_the_pool_recovers_by_itself_after_the_server_restarts() -> None:
    with temporary_server() as server:
        pool = await Database.connect(DatabaseSettings(), server.url, application_name="test")
        await asyncio.gather(*(pool.fetchval("select pg_sleep(0.01)") for _ in range(8)))
        for mode in ("fast", "immediate"):
            await asyncio.to_thread(server.restart, mode)

            async def answers() -> bool:
                try:
                    return bool(await pool.fetchval("select true"))
                except errors.StoreUnavailable:
                    return False

            await until_async(answers)
            assert await asyncio.gather(*(pool.fetchval("select true") for _ in range(8))) == [True] * 8
        await asyncio.to_thread(server.stop)
        with pytest.raises(errors.StoreUnavailable):
            await pool.fetchval("select 1")
        await pool.close()


# Behind a transaction pooler


async def test_everything_works_behind_a_transaction_pooler(pooler: Pooler) -> None:
    pooled = await Database.connect(DatabaseSettings(pooler=True), pooler.url, application_name="pooled")
    for number in range(10):
        await pooled.execute("insert into notes values ($1, $2)", number, "x")
    async with pooled.transaction() as connection:
        await connection.execute("update notes set text = $1 where id = any($2::int[])", "y", [1, 2])
        assert await connection.fetchval("select count(*) from notes where text = $1", "y") == 2
    assert await ids(pooled) == list(range(10))
    assert pooler.transactions > 10
    await pooled.close()


async def test_without_the_pooler_setting_a_pooler_refuses_us(pooler: Pooler) -> None:
    with pytest.raises(errors.StoreUnavailable, match="unsupported startup parameter"):
        await Database.connect(DatabaseSettings(), pooler.url, application_name="naive")
