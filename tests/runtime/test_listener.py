"""The listener: hears notifications, and comes back whatever happens to its connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from cronwell.runtime import listener as listening
from cronwell.runtime.listener import Listener
from cronwell.runtime.postgres import Database
from tests.support.postgres import temporary_server
from tests.support.proxy import proxy_to
from tests.support.waiting import until


@dataclass
class Heard:
    """All that a listener told."""

    messages: list[tuple[str, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    connects: int = 0

    def message(self, channel: str, payload: str) -> None:
        self.messages.append((channel, payload))

    def error(self, name: str, error: Exception, delay: float) -> None:
        self.errors.append(f"{name}: {error}")

    def connect(self) -> None:
        self.connects += 1


@contextlib.asynccontextmanager
async def listening_to(url: str, heard: Heard) -> AsyncIterator[Listener]:
    listener = Listener(
        url, ["work", "Other Channel"], heard.message, on_error=heard.error, on_connect=heard.connect
    )
    running = asyncio.create_task(listener.run())
    try:
        yield listener
    finally:
        listener.stop()
        await asyncio.wait_for(running, 5)
        assert not listener.is_connected


async def test_it_hears_every_channel_and_payload(database: Database, database_url: str) -> None:
    heard = Heard()
    async with listening_to(database_url, heard) as listener:
        await until(lambda: heard.connects == 1)
        assert listener.is_connected
        await database.execute("select pg_notify('work', 'seven')")
        await database.execute("select pg_notify('Other Channel', '')")
        await database.execute("select pg_notify('elsewhere', 'unheard')")
        await database.execute("select pg_notify('work', 'eight')")
        await until(lambda: len(heard.messages) == 3)
    assert heard.messages == [("work", "seven"), ("Other Channel", ""), ("work", "eight")]
    assert heard.errors == []


async def test_it_subscribes_again_after_its_connection_is_ended(
    database: Database, database_url: str
) -> None:
    heard = Heard()
    async with listening_to(database_url, heard) as listener:
        for round_number in (1, 2, 3):
            await until(lambda: heard.connects == len(heard.messages) + 1 and listener.is_connected)
            await database.execute("select pg_notify('work', $1)", str(round_number))
            await until(lambda: heard.connects == len(heard.messages))
            await database.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1",
                "cronwell listener",
            )
        await until(lambda: heard.connects == 4)
    assert [payload for _, payload in heard.messages] == ["1", "2", "3"]
    assert len(heard.errors) == 3


async def test_it_comes_back_after_the_server_was_away() -> None:
    heard = Heard()
    with temporary_server() as server:
        url = server.url
        async with listening_to(url, heard) as listener:
            await until(lambda: listener.is_connected)
            await asyncio.to_thread(server.stop)
            await until(lambda: any("cannot listen" in error for error in heard.errors))
            assert not listener.is_connected
            await asyncio.to_thread(server.start)
            await until(lambda: heard.connects == 2)


async def test_a_connection_that_died_without_a_word_is_found_out(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "CHECK_EVERY", timedelta(milliseconds=50))
    monkeypatch.setattr(listening, "CHECK_TIMEOUT", timedelta(milliseconds=100))
    heard = Heard()
    async with proxy_to(database_url) as proxy, listening_to(proxy.url, heard) as listener:
        await until(lambda: listener.is_connected)
        proxy.go_silent()
        await until(lambda: heard.errors)
        assert not listener.is_connected
        proxy.speak()
        await until(lambda: listener.is_connected)


async def test_its_health_is_that_of_its_connection(database_url: str) -> None:
    async with listening_to(database_url, Heard()) as listener:
        assert listener.last_success_age is None
        await until(lambda: listener.last_success_age is not None)


async def test_it_stops_at_once_although_nothing_answers() -> None:
    heard = Heard()
    async with listening_to("postgresql://u@127.0.0.1:1/db", heard):
        await until(lambda: heard.errors)
