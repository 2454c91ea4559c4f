"""Two servers behind one address: which of them is talked to, and what is known of it after a failover."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from cronwell import errors
from cronwell.config import DatabaseSettings
from cronwell.runtime.listener import Listener
from cronwell.runtime.postgres import Database
from cronwell.runtime.servers import Servers, each_of, is_behind
from cronwell.runtime.service import run_services
from tests.support.replication import Pair, pair
from tests.support.waiting import until, until_async


@pytest.fixture
def servers() -> Iterator[Pair]:
    with pair(is_synchronous=True) as made:
        yield made


@pytest.fixture
async def failing(servers: Pair) -> AsyncIterator[Database]:
    database = await Database.connect(DatabaseSettings(), servers.url, application_name="test")
    yield database
    await database.close()


async def test_the_one_that_takes_writes_is_found_before_and_after_a_failover(
    servers: Pair, failing: Database
) -> None:
    await failing.execute("create table kept (n integer)")
    await failing.execute("insert into kept values ($1)", 1)
    first = failing.servers.incarnation
    assert first is not None
    changes: list[str | None] = []
    failing.servers.on_change = lambda: changes.append(failing.servers.incarnation)

    servers.primary.kill()
    with pytest.raises(errors.StoreUnavailable):
        await failing.execute("insert into kept values ($1)", 2)
    servers.standby.promote()

    # Through the same statement, prepared anew on the other server.
    assert await until_async(lambda: _try(failing, "insert into kept values (3) returning n")) == 3
    assert await failing.fetchval("select array_agg(n) from kept") == [1, 3]
    second = failing.servers.incarnation
    assert second is not None
    assert changes == [second]
    assert second.partition("/")[0] == first.partition("/")[0], "the same system"
    assert is_behind(first, second)
    assert failing.servers.replaced_at < failing.servers.answered_at


async def test_a_plain_restart_is_the_same_incarnation(servers: Pair, failing: Database) -> None:
    before = failing.servers.incarnation
    changes: list[int] = []
    failing.servers.on_change = lambda: changes.append(1)
    servers.primary.stop(signal.SIGQUIT)
    servers.primary.start()
    assert await until_async(lambda: _try(failing, "select 1")) == 1
    servers.primary.stop()
    servers.primary.start()
    assert await until_async(lambda: _try(failing, "select 1")) == 1
    assert (failing.servers.incarnation, changes) == (before, [])


async def test_a_server_that_was_replaced_and_came_back_is_not_used(servers: Pair, failing: Database) -> None:
    await failing.execute("create table kept (n integer)")
    servers.fail_over()
    assert await until_async(lambda: _try(failing, "insert into kept values (1) returning n")) == 1
    servers.standby.stop()
    servers.primary.start()
    servers.primary.ask("alter system set synchronous_standby_names = ''")
    servers.primary.ask("select pg_reload_conf()")
    with pytest.raises(errors.StoreUnavailable, match="lost"):
        await failing.execute("insert into kept values (2)")
    with pytest.raises(errors.StoreUnavailable, match="it was replaced"):
        await failing.execute("insert into kept values (2)")
    # Who has not seen the other cannot know.
    fresh = await Database.connect(DatabaseSettings(), servers.url, application_name="test")
    await fresh.close()
    servers.standby.start()
    assert await until_async(lambda: _try(failing, "select count(*) from kept")) == 1


async def test_a_listener_hears_the_server_that_was_promoted(servers: Pair, failing: Database) -> None:
    heard: list[str] = []
    connected: list[int] = []
    listener = Listener(
        servers.url,
        ["news"],
        lambda _channel, text: heard.append(text),
        on_error=lambda *_: None,
        on_connect=lambda: connected.append(1),
    )
    stop = asyncio.Event()
    running = asyncio.create_task(run_services([listener], stop=stop))
    await until(lambda: connected)
    servers.fail_over()
    await until(lambda: len(connected) > 1, within=15)
    assert await until_async(lambda: _try(failing, "select true from pg_notify('news', 'again')"))
    await until(lambda: heard == ["again"])
    stop.set()
    await running


async def test_a_standby_alone_is_told_from_a_server_that_takes_writes(servers: Pair) -> None:
    alone = f"postgresql://postgres@/postgres?host={servers.standby.directory}"
    with pytest.raises(errors.StoreUnavailable, match="recovery is in progress"):
        await Database.connect(DatabaseSettings(), alone, application_name="test")


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("postgresql://u:p@a/db", ["postgresql://u:p@a/db"]),
        (
            "postgresql://u:p@a:1,b:2/db?sslmode=require",
            [
                "postgresql://u:p@a:1/db?sslmode=require&target_session_attrs=read-write",
                "postgresql://u:p@b:2/db?sslmode=require&target_session_attrs=read-write",
            ],
        ),
        (
            "postgresql://a,[::1]:5433/db?target_session_attrs=any",
            [
                "postgresql://a/db?target_session_attrs=any",
                "postgresql://[::1]:5433/db?target_session_attrs=any",
            ],
        ),
        (
            "postgresql:///db?host=/run/a,/run/b&port=1,2&user=x%26y",
            [
                "postgresql:///db?host=/run/a&port=1&user=x%26y&target_session_attrs=read-write",
                "postgresql:///db?host=/run/b&port=2&user=x%26y&target_session_attrs=read-write",
            ],
        ),
        (
            "postgresql:///db?host=/run/a,/run/b&port=7",
            [
                "postgresql:///db?host=/run/a&port=7&target_session_attrs=read-write",
                "postgresql:///db?host=/run/b&port=7&target_session_attrs=read-write",
            ],
        ),
    ],
)
def test_an_address_of_several_servers_is_an_address_of_each(url: str, wanted: list[str]) -> None:
    assert each_of(url) == wanted


def test_only_an_earlier_timeline_of_the_same_system_is_behind() -> None:
    assert is_behind("7/00000001", "7/0000000A")
    assert not is_behind("7/0000000A", "7/0000000A")
    assert not is_behind("7/0000000B", "7/0000000A")
    assert not is_behind("8/00000001", "7/0000000A")


async def test_a_machine_that_says_nothing_does_not_keep_the_next_one_from_being_tried(
    server: str,
) -> None:
    """It takes the connection and never answers, as one that hangs does."""
    silent = socket.create_server(("127.0.0.1", 0))
    port = silent.getsockname()[1]
    directory = server.partition("host=")[2].partition("&")[0]
    both = Servers(f"postgresql://postgres@/postgres?host=127.0.0.1,{directory}&port={port},5432")
    connection = await both.connect(timeout=2.0)
    assert await connection.fetchval("select 1") == 1
    connection.terminate()
    # From then on the one that answered is asked first.
    async with asyncio.timeout(0.9):
        again = await both.connect(timeout=2.0)
    again.terminate()
    silent.close()


async def _try(database: Database, sql: str) -> object:
    try:
        return await database.fetchval(sql)
    except (errors.StoreUnavailable, asyncpg.PostgresError):
        return None
