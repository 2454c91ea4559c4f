"""A web server as a service: it finishes what is under way, and says when it cannot listen."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import aiohttp
import pytest

from cronwell import errors
from cronwell.runtime.service import run_services
from cronwell.runtime.web import WebServer, first_answer, wait_for_port

Send = Callable[[dict[str, Any]], Awaitable[None]]


async def _answer(send: Send, text: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": text})


async def test_a_request_that_is_under_way_is_answered_before_the_server_stops() -> None:
    arrived, release = asyncio.Event(), asyncio.Event()

    async def app(scope: dict[str, Any], receive: object, send: Send) -> None:
        arrived.set()
        await release.wait()
        await _answer(send, b"done")

    server = WebServer(app, "127.0.0.1", 0)
    stop = asyncio.Event()
    running = asyncio.create_task(run_services([server], stop=stop))
    async with aiohttp.ClientSession() as session:
        request = asyncio.create_task(session.get(f"http://127.0.0.1:{server.port}/"))
        await arrived.wait()
        stop.set()
        release.set()
        answer = await request
        assert await answer.text() == "done"
    await running


async def test_a_port_that_is_taken_is_named() -> None:
    async def app(scope: dict[str, Any], receive: object, send: Send) -> None:
        await _answer(send, b"")

    first = WebServer(app, "127.0.0.1", 0)
    stop = asyncio.Event()
    running = asyncio.create_task(run_services([first], stop=stop))
    assert await first_answer("127.0.0.1", first.port, "/", timedelta(seconds=10))
    with pytest.raises(errors.ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{first.port}.*--port"):
        WebServer(app, "127.0.0.1", first.port)
    stop.set()
    await running


def test_a_port_that_becomes_free_is_waited_for_and_one_that_does_not_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(errors.ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
            wait_for_port("127.0.0.1", port, timedelta(milliseconds=150))
        threading.Timer(0.2, taken.close).start()
        wait_for_port("127.0.0.1", port, timedelta(seconds=10))


async def test_waiting_for_a_first_answer_ends_when_the_time_is_over() -> None:
    assert not await first_answer("127.0.0.1", 1, "/", timedelta(milliseconds=200))
