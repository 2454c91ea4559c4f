"""An ASGI application as a service: uvicorn without its own ideas about signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import uvicorn

from cronwell import errors
from cronwell.runtime.service import Service

BACKLOG = 2048
PORT_SETTING = "CRONWELL_PORT or --port"


class WebServer(Service):
    """Serves an application on a host and port; stops by finishing the requests that are under way.

    It listens from the moment it is made; where it cannot, the error names `setting` as what to change.
    """

    def __init__(
        self,
        app: Any,
        host: str,
        port: int,
        *,
        setting: str = PORT_SETTING,
        drain: timedelta = timedelta(seconds=5),
    ) -> None:
        super().__init__("web server", stop_deadline=drain + timedelta(seconds=5))
        self._socket = _bind(host, port, setting)
        self._server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                # Who sends a request is who is connected, whatever the request says.
                proxy_headers=False,
                timeout_graceful_shutdown=round(drain.total_seconds()),
                backlog=BACKLOG,
            )
        )

    @property
    def port(self) -> int:
        """The port that is really listened on."""
        port: int = self._socket.getsockname()[1]
        return port

    async def run(self) -> None:
        self._succeeded()
        await self._server.serve(sockets=[self._socket])
        self._socket.close()

    def stop(self) -> None:
        self._server.should_exit = True


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The process has one place that listens for signals: runtime.service.
        yield


def _bind(host: str, port: int, setting: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        # From here on callers wait instead of being refused.
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise errors.ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another with {setting}"
        ) from None
    bound.setblocking(False)
    return bound


def wait_for_port(host: str, port: int, timeout: timedelta) -> None:
    """Return when the port can be listened on; raises ConfigError where that is not so in time."""
    port_deadline = time.monotonic() + timeout.total_seconds()
    while True:
        try:
            _bind(host, port, PORT_SETTING).close()
        except errors.ConfigError:
            if time.monotonic() > port_deadline:
                raise
            time.sleep(0.1)
        else:
            return


async def first_answer(host: str, port: int, path: str, timeout: timedelta) -> bool:
    """Wait until a GET of `path` is answered with 200; False when the time is over."""
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            while not await _is_answered(host, port, path):  # noqa: ASYNC110  # another process gets ready
                await asyncio.sleep(0.05)
    except TimeoutError:
        return False
    return True


async def _is_answered(host: str, port: int, path: str) -> bool:
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        status = await reader.readline()
        return status.split(b" ")[1:2] == [b"200"]
    except OSError:
        return False
    finally:
        writer.close()
