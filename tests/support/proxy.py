"""A proxy between a client and a server that misbehaves when told to: cuts, swallows, goes silent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from urllib.parse import parse_qs, urlsplit

Filter = Callable[[bytes], bool]


class Proxy:
    """Forwards between 127.0.0.1 and the server at `target_url`: a PostgreSQL, or whatever listens at its host and port.

    `awaits_answer`: a client that sent `cut_after` is cut off when the server has answered, and not before, for servers that
    drop what nobody waits for any more; by then it has been carried out.
    """

    def __init__(self, target_url: str, *, awaits_answer: bool = False) -> None:
        self._awaits_answer = awaits_answer
        parts = urlsplit(target_url)
        query = parse_qs(parts.query)
        self._socket_dir = query["host"][0] if "host" in query else None
        self._address = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._user = parts.username
        self._database = parts.path
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._swallowing: set[asyncio.StreamWriter] = set()
        """Clients that get no answer but their end."""
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.cut_before: bytes | None = None
        """A client that sends this is cut off before the server hears of it."""
        self.cut_after: bytes | None = None
        """A client that sends this is cut off after the server got it, so the answer never comes."""
        self.connections = 0

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        return f"postgresql://{self._user}@127.0.0.1:{self.port}{self._database}"

    def cut(self) -> None:
        """Cut every connection that there is."""
        for writer in list(self._writers):
            writer.transport.abort()

    def go_silent(self) -> None:
        """Forward nothing from now on, and keep every connection open."""
        self._flowing.clear()

    def speak(self) -> None:
        """Forward again."""
        self._flowing.set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.speak()
        self.cut()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            if self._socket_dir is not None:
                server = await asyncio.open_unix_connection(f"{self._socket_dir}/.s.PGSQL.5432")
            else:
                server = await asyncio.open_connection(*self._address)
        except OSError:
            writer.transport.abort()
            return
        both = (writer, server[1])
        self._writers.update(both)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, server[1], both, is_client=True))
                group.create_task(self._forward(server[0], writer, both, is_client=False))
        finally:
            for each in both:
                each.transport.abort()
            self._writers.difference_update(both)

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        both: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
        *,
        is_client: bool,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                if writer in self._swallowing:
                    break
                if is_client and self.cut_before is not None and self.cut_before in data:
                    break
                writer.write(data)
                await writer.drain()
                if is_client and self.cut_after is not None and self.cut_after in data:
                    if self._awaits_answer:
                        self._swallowing.add(both[0])
                        continue
                    # The server must get what was written, so only the client's side is aborted.
                    both[0].transport.abort()
                    writer.write_eof()
                    return
        for each in both:
            each.transport.abort()


@contextlib.asynccontextmanager
async def proxy_to(url: str, *, awaits_answer: bool = False) -> AsyncIterator[Proxy]:
    """A proxy in front of the server at `url`, for the length of the block."""
    proxy = Proxy(url, awaits_answer=awaits_answer)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.close()
