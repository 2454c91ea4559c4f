"""The strictest transaction pooler: each transaction of a client runs on another server connection than the last.

It refuses start-up parameters that a pooler does not track, as PgBouncer does by default. Whatever a client leaves in
its session, it will not find again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

TRACKED = {"user", "database", "client_encoding", "application_name", "timezone", "datestyle"}
SERVERS = 3

_SSL_REQUEST = 80877103
_CANCEL_REQUEST = 80877102

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pooler:
    """Accepts clients on 127.0.0.1 and spreads their transactions over connections to the PostgreSQL at `url`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._user = parts.username
        self._database = parts.path
        self._server: asyncio.Server | None = None
        self.refused: list[str] = []
        """Start-up parameters that clients sent and should not have."""
        self.transactions = 0

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"postgresql://{self._user}@127.0.0.1:{port}{self._database}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        servers: list[_Streams] = []
        try:
            startup = await self._startup(reader, writer)
            if startup is None:
                return
            for number in range(SERVERS):
                server = await asyncio.open_unix_connection(self._socket)
                servers.append(server)
                server[1].write(startup)
                greeting = await _greeting(server[0])
                if number == 0:
                    writer.write(greeting)
            await self._relay(reader, writer, servers)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            for _, each in servers:
                each.transport.abort()
            writer.transport.abort()

    async def _startup(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
        while True:
            head = await reader.readexactly(8)
            length, code = struct.unpack("!ii", head)
            body = await reader.readexactly(length - 8)
            if code == _CANCEL_REQUEST:
                return None
            if code != _SSL_REQUEST:
                break
            writer.write(b"N")
        names = {name.decode().lower() for name in body.rstrip(b"\0").split(b"\0")[::2]}
        if unknown := sorted(names - TRACKED):
            self.refused += unknown
            text = f"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: {unknown[0]}\0\0".encode()
            writer.write(b"E" + struct.pack("!i", len(text) + 4) + text)
            await writer.drain()
            return None
        return head + body

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, servers: list[_Streams]
    ) -> None:
        """Pass messages both ways, and change servers whenever one says that no transaction is open."""
        turns = itertools.cycle(servers)
        current = next(turns)

        async def answer(server: asyncio.StreamReader) -> None:
            nonlocal current
            while True:
                kind, message = await _message(server)
                if kind == b"Z" and message[-1:] == b"I":
                    self.transactions += 1
                    current = next(turns)
                writer.write(message)

        answering = [asyncio.create_task(answer(server)) for server, _ in servers]
        try:
            while True:
                kind, message = await _message(reader)
                if kind == b"X":
                    return
                current[1].write(message)
        finally:
            for task in answering:
                task.cancel()
            await asyncio.gather(*answering, return_exceptions=True)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    body = await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
    return head[:1], head + body


async def _greeting(reader: asyncio.StreamReader) -> bytes:
    """All that a server says before it is ready for the first query."""
    parts = []
    while True:
        kind, message = await _message(reader)
        parts.append(message)
        if kind == b"Z":
            return b"".join(parts)


@contextlib.asynccontextmanager
async def pooler_to(url: str) -> AsyncIterator[Pooler]:
    """A pooler in front of the PostgreSQL at `url` (by its socket), for the length of the block."""
    pooler = Pooler(url)
    await pooler.open()
    try:
        yield pooler
    finally:
        await pooler.close()
