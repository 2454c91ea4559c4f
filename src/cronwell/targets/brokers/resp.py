"""Redis' protocol (RESP 2) on one connection: commands go out as they come, and are answered in that order.

Of the protocol there is what AUTH, SELECT and XADD need. Many commands are under way at once; those of one turn of the event
loop are sent together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

# A line that does not end, or an answer of such a size, is none that was asked for.
ANSWER_LIMIT = 65_536


class Refused(Exception):
    """The server answered with an error; `code` is its first word."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.code = said.partition(" ")[0]


class Lost(Exception):
    """The connection ended before the answer came: whether the command took effect is not known."""


class Connection(asyncio.Protocol):
    """A connection that is open, for as long as `is_open`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._outgoing: list[bytes] = []
        self._asked: deque[asyncio.Future[str]] = deque()
        self._listeners = 0
        self._is_retired = False

    @property
    def is_open(self) -> bool:
        """Whether a command can be sent."""
        return self._transport is not None and not self._is_retired and not self._transport.is_closing()

    async def ask(self, *words: bytes) -> str:
        """Send a command and wait for its answer. Raises Refused and Lost.

        Who is cancelled leaves the answer to nobody. When nobody is left who waits for an answer, the connection ends: a
        server that owes some is not asked for more.
        """
        if not self.is_open:
            raise Lost("the connection has ended")
        answer: asyncio.Future[str] = self._loop.create_future()
        self._asked.append(answer)
        self._listeners += 1
        if not self._outgoing:
            self._loop.call_soon(self._send)
        self._outgoing.append(encode(words))
        try:
            return await answer
        finally:
            self._listeners -= 1
            if not self._listeners and self._asked:
                self.abort()

    def abort(self) -> None:
        """End the connection now; nobody will learn what was answered."""
        if self._transport is not None:
            self._transport.abort()

    def retire(self) -> None:
        """Take no more commands, and end when those under way are answered."""
        self._is_retired = True
        if not self._asked and self._transport is not None:
            self._transport.close()

    # --- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its class

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        begin = 0
        try:
            while (read := decode(self._buffer, begin)) is not None:
                answer, begin = read
                self._settle(answer)
        except ValueError as error:
            self._fail(Lost(str(error)))
            self.abort()
            return
        del self._buffer[:begin]
        if self._is_retired:
            self.retire()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(Lost(str(error) if error else "the server ended the connection"))

    def _send(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(outgoing))

    def _settle(self, answer: str | Refused) -> None:
        if not self._asked:
            raise ValueError("it answered what nobody had asked")
        waiting = self._asked.popleft()
        if waiting.done():
            return
        if isinstance(answer, Refused):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    def _fail(self, error: Lost) -> None:
        asked, self._asked = self._asked, deque()
        for waiting in asked:
            if not waiting.done():
                waiting.set_exception(error)


def encode(words: tuple[bytes, ...]) -> bytes:
    """Write a command."""
    return b"*%d\r\n%s" % (len(words), b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))


def decode(buffer: bytearray, begin: int) -> tuple[str | Refused, int] | None:
    """Read the answer that begins at a place, and where it ends; None where it is not all there yet.

    Raises ValueError for what is no answer to any command that is sent here.
    """
    if begin == len(buffer):
        return None
    kind = bytes(buffer[begin : begin + 1])
    if kind not in (b"+", b"-", b":", b"$"):
        raise ValueError(
            f"it does not speak Redis' protocol: it answered {bytes(buffer[begin : begin + 40])!r}"
        )
    end = buffer.find(b"\r\n", begin, begin + ANSWER_LIMIT)
    if end < 0:
        if len(buffer) - begin >= ANSWER_LIMIT:
            raise ValueError(f"it answered with a line of more than {ANSWER_LIMIT} bytes")
        return None
    line = buffer[begin + 1 : end].decode("utf-8", "replace")
    if kind != b"$":
        return (Refused(line) if kind == b"-" else line), end + 2
    size = int(line)
    if size > ANSWER_LIMIT:
        raise ValueError(f"it answered with {size} bytes")
    if size < 0:
        return "", end + 2
    last = end + 2 + size
    if len(buffer) < last + 2:
        return None
    return buffer[end + 2 : last].decode("utf-8", "replace"), last + 2
