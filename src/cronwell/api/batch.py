"""Many jobs in one request: NDJSON in, NDJSON out, whatever its length in a bounded memory.

Jobs are read, judged and inserted by the chunk, one chunk while the next is judged, and the results are sent meanwhile. Many clients send all of a body
before they read any of the answer. If results waited for such a client, it and we would wait for each other for ever.
So reading never waits for sending: results that the client does not take yet go to a temporary file.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Self

import orjson
from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cronwell import errors
from cronwell.api import problems
from cronwell.api.bodies import declared_length, parse_object
from cronwell.api.services import Services
from cronwell.control.adding import MOST_BYTES, Created, Judged
from cronwell.model.access import Caller

MEDIA_TYPE = "application/x-ndjson"
CHUNK_LINES = 1000
KEPT_IN_MEMORY = 1024 * 1024
SENT_AT_ONCE = 64 * 1024
MOST_WRONG = 100_000
"""What is said of a wrong line is many times longer than the line."""

_TYPES = re.compile(r"application/(?:x-)?(?:ndjson|jsonl|json-?lines)", re.IGNORECASE | re.ASCII)


class Batch(Response):
    """Reads the request's lines and answers each."""

    media_type = MEDIA_TYPE

    def __init__(self, services: Services, caller: Caller) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        # The length is not known when the answer begins.
        del self.headers["content-length"]
        self._services = services
        self._caller = caller
        self._wrong = 0

    @classmethod
    def of(cls, services: Services, caller: Caller, request: Request) -> Self:
        """Refuse what can be refused before anything is read."""
        given = request.headers.get("content-type", "")
        if not _TYPES.fullmatch(given.partition(";")[0].strip()):
            raise HTTPException(
                415,
                f"the body is said to be {given or 'nothing in particular'}; send one job a line as {MEDIA_TYPE}",
            )
        limit = services.settings.limits.batch_body
        if (declared_length(request.headers) or 0) > limit:
            raise errors.TooLarge(f"a batch has at most {limit} bytes; send several")
        return cls(services, caller)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI calls it
        with Spill() as spill:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._fill(spill, receive), name="batch: read and insert")
                tasks.create_task(self._send(spill, send), name="batch: send results")

    async def _fill(self, spill: Spill, receive: Receive) -> None:
        limits = self._services.settings.limits
        lines = Lines(longest=limits.body, most=limits.batch_body)
        adding: asyncio.Task[None] | None = None
        end = b""
        async with asyncio.TaskGroup() as tasks:
            try:
                async for chunk in lines.chunks(receive):
                    judged = await self._judge(chunk)
                    # One chunk is judged while the one before is inserted. Inserted they are in turn: a job may follow
                    # one above it, and of two with the same name the upper one is made.
                    if adding is not None:
                        await adding
                    if self._wrong > MOST_WRONG:
                        end = _line(chunk[0].index, problem=_given_up())
                        break
                    adding = tasks.create_task(self._add(judged, spill), name="batch: insert")
                else:
                    if adding is not None:
                        await adding
                    if self._wrong > MOST_WRONG:
                        end = _line(lines.count, problem=_given_up())
            except errors.TooLarge as error:
                end = _line(lines.count, problem=problems.told(error))
            except ClientDisconnect:
                pass
        spill.write(end)
        # Not after an unforeseen error: an answer that ends in order would say that all lines were seen to.
        spill.close()

    async def _send(self, spill: Spill, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for part in spill:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _judge(self, chunk: list[Line]) -> _Chunk:
        parsed: list[tuple[int, dict[str, Any]]] = []
        results: dict[int, bytes] = {}
        for line in chunk:
            try:
                parsed.append((line.index, line.parse()))
            except errors.UserError as error:
                results[line.index] = _line(line.index, problem=problems.told(error))
        indexes = [index for index, _ in parsed]
        try:
            judged = await self._services.jobs.judge_many(self._caller, [raw for _, raw in parsed])
        except errors.StoreUnavailable as error:
            return _Chunk(indexes, results, error)
        return _Chunk(indexes, results, judged)

    async def _add(self, chunk: _Chunk, spill: Spill) -> None:
        """Insert what is good of a chunk, and write what became of each of its lines."""
        results = chunk.results
        try:
            if isinstance(chunk.judged, errors.StoreUnavailable):
                raise chunk.judged
            created = await self._services.jobs.add_many(self._caller, chunk.judged)
        except (errors.StoreUnavailable, errors.UserError) as error:
            # Of all that is good in the chunk: something that it goes by went away since it was judged, or the store.
            created = []
            failed = problems.told(error)
            results |= {index: _line(index, problem=failed) for index in chunk.indexes}
        for index, result in zip(chunk.indexes, created, strict=False):
            results[index] = _told(index, result)
        self._wrong += len(results) - sum(result.error is None for result in created)
        spill.write(b"".join(results[index] for index in sorted(results)))


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Lines that are judged and not inserted yet."""

    indexes: list[int]
    """Of those that could be read."""
    results: dict[int, bytes]
    """Of the others, by their indexes."""
    judged: Judged | errors.StoreUnavailable


@dataclass(slots=True)  # not frozen: there are millions, and making one would take three times as long
class Line:
    """One job as it was sent; without data where it was too long to keep."""

    index: int
    data: bytes | None
    longest: int

    def parse(self) -> dict[str, Any]:
        if self.data is None:
            raise errors.TooLarge(f"a job has at most {self.longest} bytes")
        return parse_object(self.data)


class Lines:
    """Cuts a request's body into lines, and those into chunks, holding no more than one chunk."""

    def __init__(self, *, longest: int, most: int) -> None:
        self.count = 0
        """How many lines were found so far."""
        self._longest = longest
        self._most = most
        self._rest = bytearray()
        self._is_overlong = False
        self._chunk: list[Line] = []
        self._size = 0

    async def chunks(self, receive: Receive) -> AsyncIterator[list[Line]]:
        """The lines that are not blank; raises TooLarge behind the last one that the whole limit allows."""
        read = 0
        is_last = False
        while not is_last:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            is_last = not message.get("more_body", False)
            body = message.get("body", b"")
            read += len(body)
            for part in self._cut(body[: len(body) - max(0, read - self._most)]):
                yield part
            if read > self._most:
                break
        if read <= self._most:
            self._end_line()
        if self._chunk:
            yield self._taken()
        if read > self._most:
            raise errors.TooLarge(
                f"a batch has at most {self._most} bytes; send the rest from here as another"
            )

    def _cut(self, body: bytes) -> list[list[Line]]:
        full: list[list[Line]] = []
        *ended, rest = body.split(b"\n")
        for piece in ended:
            if self._rest or self._is_overlong or len(piece) > self._longest:
                self._add(piece)
                self._end_line()
            else:
                self._keep(piece)
            if len(self._chunk) >= CHUNK_LINES or self._size >= MOST_BYTES:
                full.append(self._taken())
        self._add(rest)
        return full

    def _add(self, piece: bytes) -> None:
        if self._is_overlong or len(self._rest) + len(piece) > self._longest:
            self._is_overlong = True
            self._rest.clear()
        else:
            self._rest += piece

    def _end_line(self) -> None:
        data = None if self._is_overlong else bytes(self._rest)
        self._is_overlong = False
        self._rest.clear()
        self._keep(data)

    def _keep(self, data: bytes | None) -> None:
        if data is not None and (not data or data.isspace()):
            return
        self._chunk.append(Line(self.count, data, self._longest))
        self._size += len(data or b"")
        self.count += 1

    def _taken(self) -> list[Line]:
        chunk, self._chunk, self._size = self._chunk, [], 0
        return chunk


class Spill:
    """Bytes on their way from one task to another: written without waiting, read in order, kept in a file if many."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(KEPT_IN_MEMORY)  # noqa: SIM115 - closed by __exit__
        self._written = 0
        self._read = 0
        self._is_closed = False
        self._changed = asyncio.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        self._file.seek(self._written)
        self._written += self._file.write(data)
        self._changed.set()

    def close(self) -> None:
        """Say that nothing more will be written."""
        self._is_closed = True
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            if self._read < self._written:
                self._file.seek(self._read)
                part = self._file.read(SENT_AT_ONCE)
                self._read += len(part)
                if self._read == self._written:
                    # All is taken: begin anew rather than grow for as long as the batch lasts.
                    self._file.truncate(0)
                    self._read = self._written = 0
                yield part
            elif self._is_closed:
                return
            else:
                self._changed.clear()
                await self._changed.wait()


def _told(index: int, result: Created) -> bytes:
    if result.error is not None:
        return _line(index, problem=problems.told(result.error))
    at = result.next_fire_at
    return orjson.dumps(
        {
            "index": index,
            "status": "created",
            "id": result.job_id,
            "name": result.name,
            # As `views.write_time` has it.
            "next_fire_at": at if at is None or at.tzinfo is UTC else at.astimezone(UTC),
        },
        option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z,
    )


def _line(index: int, *, problem: dict[str, Any]) -> bytes:
    made = {"index": index, "status": "error", "problem": problem}
    return orjson.dumps(made, option=orjson.OPT_APPEND_NEWLINE)


def _given_up() -> dict[str, Any]:
    return problems.told(
        errors.TooLarge(
            f"more than {MOST_WRONG} lines are wrong, and what is behind them was not read; "
            "mend them and send the rest from here"
        )
    )
