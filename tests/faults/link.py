"""The wire between one node and PostgreSQL: a proxy of its own, which cuts, delays, holds back, and keeps silent.

It reads PostgreSQL's protocol just far enough to know a COMMIT, a notification, and which server process serves which
node: the log of the database names processes of the server, and the rig has to know whose they were.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.faults.pace import lasting

Notices = Literal["pass", "drop", "double", "replay"]
COMMIT = b"COMMIT"

_NOTIFICATION, _KEY_DATA = b"A", b"K"
_PARSE, _BIND, _QUERY = b"P", b"B", b"Q"


@dataclass(frozen=True, slots=True)
class Served:
    """From `since` on, the server process `pid` served this life of a node."""

    pid: int
    since: float
    process: str


class Talk:
    """What a client says on one connection, message by message, and what its transaction has done so far."""

    def __init__(self) -> None:
        self._has_begun = False
        self._statements: dict[bytes, bytes] = {}
        self.done = b""
        """The names of the statements of this transaction."""
        self.commits = False
        """Whether the last message was a COMMIT."""

    async def next(self, reader: asyncio.StreamReader) -> bytes:
        """The next message; nothing when the client has gone."""
        try:
            if not self._has_begun:
                self._has_begun = True
                size = await reader.readexactly(4)
                return size + await reader.readexactly(struct.unpack("!i", size)[0] - 4)
            head = await reader.readexactly(5)
            body = await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
        except (asyncio.IncompleteReadError, OSError):
            return b""
        kind, parts = head[:1], body.split(b"\0", 2)
        if kind == _PARSE:
            self._statements[parts[0]] = parts[1][:60]
            self.done += parts[1][:60]
        elif kind == _BIND:
            self.done += self._statements.get(parts[1], b"")
        self.commits = kind == _QUERY and body[: len(COMMIT)].upper() == COMMIT
        return head + body


class Pair:
    """One connection: the client's side, the server's, and the tasks between them."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server

    def abort(self) -> None:
        self.client.transport.abort()
        self.server.transport.abort()


class Link:
    """Forwards between 127.0.0.1 and PostgreSQL's socket."""

    def __init__(self, socket: str, clock: Callable[[], float]) -> None:
        self._socket = socket
        self._clock = clock
        self._server: asyncio.Server | None = None
        self._others: list[asyncio.Server] = []
        self._pairs: set[Pair] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._heard: list[bytes] = []
        self.process = ""
        """The life of the node that connects now."""
        self.served: list[Served] = []
        self.is_refusing = False
        self.notices: Notices = "pass"
        self.commits_to_cut = 0
        self.commit_hold = 0.0
        self.commit_of = b""
        """Only transactions that have done a statement of this name are cut or held; empty: any."""
        self.commits_caught = 0
        self.up = asyncio.Event()
        self.down = asyncio.Event()
        self.delay = 0.0
        self.heal()

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def heal(self) -> None:
        """Forward everything at once again."""
        self.is_refusing = False
        self.commits_to_cut = 0
        self.commit_hold = 0.0
        self.commit_of = b""
        self.delay = 0.0
        self.up.set()
        self.down.set()

    def cut(self) -> None:
        """Reset every connection."""
        for pair in list(self._pairs):
            pair.abort()

    def half_close(self) -> None:
        """Tell every client that the server will say no more, and go on taking what they say."""
        for pair in list(self._pairs):
            with contextlib.suppress(OSError, RuntimeError):
                pair.client.write_eof()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def open_at(self, host: str) -> int:
        """Be reached at another address as well; the port there."""
        other = await asyncio.start_server(self._accept, host, 0)
        self._others.append(other)
        port: int = other.sockets[0].getsockname()[1]
        return port

    def is_used_by(self, process: str) -> bool:
        """Whether this life of the node has come through here."""
        return any(each.process == process for each in self.served)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for other in self._others:
            other.close()
        self.heal()
        self.cut()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._serving.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_refusing:
            return
        from_server, to_server = await asyncio.open_unix_connection(self._socket, limit=1 << 24)
        pair = Pair(writer, to_server)
        self._pairs.add(pair)
        process = self.process
        try:
            up = asyncio.create_task(self._forward_up(reader, pair))
            down = asyncio.create_task(self._forward_down(from_server, pair, process))
            # What a client has sent is delivered although it has gone, as on a network: so `up` is waited for.
            await asyncio.gather(up, down, return_exceptions=True)
        finally:
            self._pairs.discard(pair)
            pair.abort()

    async def _forward_up(self, reader: asyncio.StreamReader, pair: Pair) -> None:
        talk = Talk()
        try:
            while message := await talk.next(reader):
                await self.up.wait()
                if self.delay:
                    await lasting(self.delay)
                is_caught = talk.commits and self.commit_of in talk.done
                if is_caught and self.commit_hold:
                    await self._hold_back()
                pair.server.write(message)
                await pair.server.drain()
                if is_caught and self.commits_to_cut:
                    self.commits_to_cut -= 1
                    self.commits_caught += 1
                    pair.client.transport.abort()
                    break
                if talk.commits:
                    talk.done = b""
        finally:
            with contextlib.suppress(OSError, RuntimeError):
                pair.server.write_eof()

    async def _hold_back(self) -> None:
        """Hold up a COMMIT, and with it all else that the node says: its leases run out meanwhile."""
        hold, self.commit_hold = self.commit_hold, 0.0
        self.commits_caught += 1
        self.up.clear()
        await lasting(hold)
        self.up.set()

    async def _forward_down(self, reader: asyncio.StreamReader, pair: Pair, process: str) -> None:
        try:
            while True:
                head = await reader.readexactly(5)
                message = head + await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
                if head[:1] == _KEY_DATA:
                    self.served.append(Served(struct.unpack("!i", message[5:9])[0], self._clock(), process))
                await self.down.wait()
                if self.delay:
                    await lasting(self.delay)
                for each in self._noticed(message) if head[:1] == _NOTIFICATION else (message,):
                    pair.client.write(each)
                await pair.client.drain()
        except asyncio.IncompleteReadError:
            pass
        finally:
            pair.client.transport.abort()

    def _noticed(self, message: bytes) -> tuple[bytes, ...]:
        """What is made of a notification: with `replay`, one that was heard before comes after each."""
        self._heard = [*self._heard[-99:], message]
        match self.notices:
            case "pass":
                return (message,)
            case "drop":
                return ()
            case "double":
                return (message, message)
            case "replay":
                return (message, self._heard[0])
