"""One connection of HTTP/1.1: requests go out one after the other, and each is answered before the next.

The parser is the one in C that our own API is served with. What it says of an answer is kept only as far as an attempt needs
it: the status, three headers, the beginning of the body.
"""

from __future__ import annotations

import asyncio
from typing import cast

import httptools

from cronwell.targets.output import Kept

# Ten times what common servers send; a head without an end would be gathered in memory.
HEAD_LIMIT = 65_536
# Requests that go out one right after the other. Of 60,000 deliveries the worker took 126 µs for each in place of 140 where the
# receiver took 200 ms to answer, and the receiver 25 in place of 34 (November 2026).
TOGETHER = 32
_KEPT_HEADERS = frozenset({b"location", b"retry-after", b"date"})
_LENGTHS = frozenset({b"content-length", b"transfer-encoding"})


class Trouble(Exception):
    """Why there is no answer, in words for whoever reads the attempt; `kind` is its short word."""

    def __init__(self, kind: str, said: str, *, is_retryable: bool = True) -> None:
        super().__init__(said)
        self.kind = kind
        self.is_retryable = is_retryable


class Answer:
    """What came back."""

    __slots__ = ("headers", "is_whole", "kept", "reason", "response_limit", "status")

    def __init__(self, output_limit: int, response_limit: int) -> None:
        self.status = 0
        self.reason = b""
        self.headers: dict[str, str] = {}
        self.kept = Kept(output_limit)
        self.is_whole = True
        """False where the answer was longer than the response limit, and dropped."""
        self.response_limit = response_limit


class Outbox:
    """Requests of one turn of the loop, let out a few at a time.

    Each one that goes out by itself wakes whoever is to take it, who has fallen asleep again when the next one comes.
    """

    __slots__ = ("_waiting", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: list[tuple[Connection, bytes]] = []

    def add(self, connection: Connection, request: bytes) -> None:
        """Let a request out with those that come after it in this turn, at its end at the latest."""
        if not self._waiting:
            self.loop.call_soon(self._let_out)
        self._waiting.append((connection, request))
        if len(self._waiting) == TOGETHER:
            self._let_out()

    def _let_out(self) -> None:
        waiting, self._waiting = self._waiting, []
        for connection, request in waiting:
            connection.write(request)


class Connection(asyncio.Protocol):
    """A connection that is open, for as long as `is_open`."""

    __slots__ = (
        "_answer", "_done", "_has_head", "_has_length", "_head_size", "_is_spent", "_parser", "_peer", "_transport",
        "idle_since",
    )  # fmt: skip

    def __init__(self, peer: str) -> None:
        """`peer` is what the other side is called in messages."""
        self._peer = peer
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: Answer | None = None
        self._done: asyncio.Future[None] | None = None
        self._has_head = False
        self._has_length = False
        self._head_size = 0
        self._is_spent = False
        self.idle_since = 0.0

    @property
    def is_open(self) -> bool:
        """Whether another request may go out on it."""
        return not self._is_spent and self._transport is not None and not self._transport.is_closing()

    def ask(self, request: bytes, answer: Answer, outbox: Outbox) -> asyncio.Future[None]:
        """Send a request by an outbox; done when `answer` is complete, failed with `Trouble` where there is none."""
        self._done = outbox.loop.create_future()
        if self._transport is None:
            self._fail("disconnected", _NO_ANSWER)
            return self._done
        self._answer = answer
        self._has_head = self._has_length = False
        self._head_size = 0
        outbox.add(self, request)
        return self._done

    def write(self, request: bytes) -> None:
        """Let a request out, unless the connection has ended meanwhile: then whoever asked has been told."""
        if self.is_open:
            assert self._transport is not None
            self._transport.write(request)

    def close(self) -> None:
        """End the connection, also in the middle of an answer."""
        self._is_spent = True
        self._answer = None
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not by isinstance: uvloop's transports are none of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._is_spent = True
        if self._answer is None:
            return
        if not self._has_head:
            self._fail("disconnected", _NO_ANSWER)
        elif self._has_length or exc is not None:
            self._fail("protocol", "the answer of {peer} broke off")
        else:
            self._end()  # the end of the connection is the end of such an answer

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.close()  # nobody asked
            return
        if self._head_size > HEAD_LIMIT:
            self._fail("protocol", _LONG_HEAD)
            return
        self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail("protocol", f"the answer of {{peer}} is not HTTP: {error}")

    # What the parser calls.

    def on_message_begin(self) -> None:
        self._is_spent = self._is_spent or self._answer is None

    def on_status(self, status: bytes) -> None:
        if self._answer is not None:
            self._answer.reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        answer = self._answer
        if answer is None:
            return
        lowered = name.lower()
        if lowered in _KEPT_HEADERS:
            answer.headers[lowered.decode()] = value.decode("utf-8", "replace")
        elif lowered in _LENGTHS:
            self._has_length = True
        if len(value) > HEAD_LIMIT:
            self._fail("protocol", _LONG_HEAD)

    def on_headers_complete(self) -> None:
        if self._answer is not None:
            self._has_head = True
            self._answer.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        answer = self._answer
        self._head_size = (
            0  # what comes between parts of a body, and after it (trailers), counts as a head does
        )
        if answer is not None:
            answer.kept.add(body)
            if answer.kept.size > answer.response_limit:
                answer.is_whole = False
                self._is_spent = True
                self._end()

    def on_message_complete(self) -> None:
        answer = self._answer
        if answer is None:
            return
        if 100 <= answer.status < 200:
            # More is to come (100 Continue, 103 Early Hints).
            answer.status, answer.reason = 0, b""
            answer.headers.clear()
            self._has_head = self._has_length = False
            return
        assert self._transport is not None
        # A request that was answered before all of it had gone out leaves its rest behind.
        if not self._parser.should_keep_alive() or self._transport.get_write_buffer_size():
            self._is_spent = True
        self._end()

    def _end(self) -> None:
        self._answer = None
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _fail(self, kind: str, said: str) -> None:
        self.close()
        if self._done is not None and not self._done.done():
            self._done.set_exception(Trouble(kind, said.replace("{peer}", self._peer)))


_NO_ANSWER = "{peer} closed the connection before it answered; whether it did the work is unknown"
_LONG_HEAD = f"the answer of {{peer}} is not HTTP: its headers are longer than {HEAD_LIMIT} bytes"
