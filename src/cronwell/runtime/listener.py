"""Hears NOTIFY on a connection of its own, for as long as the process lives.

What is heard is a hint. While the connection is away notifications are lost, so `on_connect` is called each time that
the channels are (again) subscribed to: whoever relies on hints looks for itself then. LISTEN belongs to a session, so
none of this works behind a transaction pooler; there, poll.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta

import asyncpg

from cronwell import errors
from cronwell.runtime.postgres import CONNECT_TIMEOUT
from cronwell.runtime.servers import CLIENT_ERRORS, Servers, words_of
from cronwell.runtime.service import FIRST_BACKOFF, ErrorReport, Loop, Service

# A connection can die without a word (a cable, a firewall that forgets); asking now and then finds out.
CHECK_EVERY = timedelta(seconds=10)
CHECK_TIMEOUT = timedelta(seconds=5)


class Listener(Service):
    """Calls `on_message(channel, payload)` for each notification, and comes back after every loss."""

    def __init__(
        self,
        url: str,
        channels: Sequence[str],
        on_message: Callable[[str, str], None],
        *,
        on_error: ErrorReport,
        on_connect: Callable[[], None] = lambda: None,
        application_name: str = "cronwell listener",
    ) -> None:
        super().__init__("listener", stop_deadline=timedelta(seconds=5))
        self._servers = Servers(url)
        self._channels = tuple(channels)
        self._on_message = on_message
        self._on_connect = on_connect
        self._application_name = application_name
        self._on_error = on_error
        self._is_connected = False
        self._is_stopping = asyncio.Event()
        # The loop reconnects with its usual back-off: one round of it is the life of one connection.
        self._loop = Loop(self.name, self._listen, on_error=on_error)

    @property
    def is_connected(self) -> bool:
        """Whether notifications are being heard at this moment."""
        return self._is_connected

    async def run(self) -> None:
        """Listen until stopped."""
        await self._loop.run()

    def stop(self) -> None:
        """Hang up and end."""
        self._is_stopping.set()
        self._loop.stop()

    async def _listen(self) -> float:
        async with self._connection() as connection:
            lost = asyncio.Event()
            connection.add_termination_listener(lambda _: lost.set())
            for channel in self._channels:
                await connection.add_listener(channel, self._hear)
            self._is_connected = True
            try:
                self._on_connect()
                await self._stay(connection, lost)
            except CLIENT_ERRORS as error:
                # Not raised: it was connected, so the next back-off starts small again.
                self._on_error(self.name, errors.StoreUnavailable(words_of(error)), FIRST_BACKOFF)
            finally:
                self._is_connected = False
        return FIRST_BACKOFF

    async def _stay(self, connection: asyncpg.Connection[asyncpg.Record], lost: asyncio.Event) -> None:
        """Stay on the line until told to stop; raise once it is dead."""
        ended = [asyncio.ensure_future(event.wait()) for event in (self._is_stopping, lost)]
        try:
            while not self._is_stopping.is_set():
                await connection.execute("select 1")
                self._succeeded()
                await asyncio.wait(
                    ended, timeout=CHECK_EVERY.total_seconds(), return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            for future in ended:
                future.cancel()

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        try:
            connection: asyncpg.Connection[asyncpg.Record] = await self._servers.connect(
                timeout=CONNECT_TIMEOUT.total_seconds(),
                command_timeout=CHECK_TIMEOUT.total_seconds(),
                server_settings={"application_name": self._application_name},
            )
        except CLIENT_ERRORS as error:
            raise errors.StoreUnavailable(f"cannot listen: {words_of(error)}") from error
        try:
            yield connection
        finally:
            # Nothing is under way on it that a polite goodbye would save.
            connection.terminate()

    def _hear(self, _connection: object, _pid: int, channel: str, payload: object) -> None:
        self._on_message(channel, str(payload))
