"""What the tests of targets share: calls to make, a receiver to call, and a look at what was left behind."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from cronwell.model.execution import ExecutionKey, Kind
from cronwell.model.job import Target
from cronwell.targets import signing
from cronwell.targets.port import Call, Signals

SECRET = signing.new_secret()
JOB = UUID("0190b5c0-0000-7000-8000-000000000001")
SLOT = datetime(2027, 3, 1, 9, 30, tzinfo=UTC)
LIMIT = 1000

Answer = Callable[["Request", asyncio.StreamWriter], Awaitable[None]]


def make_call(
    target: dict[str, Any],
    *,
    payload: Any = None,
    attempt: int = 1,
    fence: int = 7,
    slot: datetime = SLOT,
    timeout: timedelta = timedelta(minutes=1),
    secret: str = SECRET,
    job_name: str = "daily/invoices",
) -> Call:
    """One attempt of an execution of the job `daily/invoices`."""
    return Call(
        tenant_id=1,
        key=ExecutionKey(JOB, Kind.SCHEDULED, slot),
        job_name=job_name,
        attempt=attempt,
        fence=fence,
        target=Target.model_validate(target),
        payload=payload,
        timeout=timeout,
        secret=secret,
    )


def within(seconds: float = 20.0, *, cancel_grace: float = 10.0) -> Signals:
    """The signals of an attempt that has this long."""
    return Signals(deadline=time.monotonic() + seconds, cancel_grace=timedelta(seconds=cancel_grace))


async def eventually(is_so: Callable[[], bool], what: str, *, seconds: float = 10.0) -> None:
    """Look again and again until it is so; fail with `what` if it never is."""
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    look_deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < look_deadline, f"never happened: {what}"
        await asyncio.wait({never}, timeout=0.005)


@dataclass(frozen=True, slots=True)
class Request:
    """What the receiver was sent."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    """Which connection it came on, counted from 1."""
    reader: asyncio.StreamReader = field(repr=False, compare=False)
    """What else comes on that connection."""


async def answer_ok(_: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")


def answering(status: str, body: bytes = b"", **headers: str) -> Answer:
    """Answer with a status, a body and headers (`Retry_After="3"`)."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    raw = "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)

    return answer


def sending(raw: bytes, *, then_close: bool = True) -> Answer:
    """Answer with these bytes, whatever they are."""

    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        if then_close:
            writer.close()

    return answer


async def never_answer(request: Request, writer: asyncio.StreamWriter) -> None:
    """Take the request and stay silent until the caller goes away."""
    await request.reader.read()
    writer.close()


async def drip(_: Request, writer: asyncio.StreamWriter) -> None:
    """Answer 200 and then send a byte now and then, for ever."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not writer.transport.is_closing():
        writer.write(b".")
        await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=0.02)


@dataclass
class Receiver:
    """An HTTP/1.1 server that keeps what it was sent and answers as the test says."""

    answer: Answer = answer_ok
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    open_connections: int = 0
    most_open: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def url(self, host: str = "127.0.0.1", path: str = "/run") -> str:
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{host}:{self.port}{path}"

    def target(self, host: str = "127.0.0.1", path: str = "/run", **more: Any) -> dict[str, Any]:
        return {"http": {"url": self.url(host, path), **more}}

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        self.open_connections += 1
        self.most_open = max(self.most_open, self.open_connections)
        number = self.connections
        try:
            while not writer.transport.is_closing():
                request = await _read_request(reader, number)
                if request is None:
                    break
                self.requests.append(request)
                self.arrived.set()
                await self.answer(request, writer)
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass  # the caller went away, or the test is over
        finally:
            self.open_connections -= 1
            writer.transport.abort()


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body, connection, reader)


class Traces:
    """Processes, threads and open files that were not there when this was made."""

    def __init__(self) -> None:
        self._before = _look_around()

    async def left(self, seconds: float = 5.0) -> list[str]:
        """What is still there, after giving it a moment to go."""
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        look_deadline = time.monotonic() + seconds
        while (more := _look_around() - self._before) and time.monotonic() < look_deadline:
            await asyncio.wait({never}, timeout=0.005)
        return sorted(more.elements())


def _look_around() -> Counter[str]:
    me = os.getpid()
    found = Counter(f"process {each.name}" for each in Path("/proc").glob("[0-9]*") if _parent(each) == me)
    found.update(f"thread {thread.name}" for thread in threading.enumerate())
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor that lists this folder
            # By kind and not by number: uvloop changes its own sockets whenever it starts to run.
            found[re.sub(r"\d+", "", os.readlink(entry))] += 1  # noqa: PTH115  a pipe is no path
    del found["/dev/null"]  # which libuv keeps in reserve, for when there are no descriptors left
    return found


def _parent(process: Path) -> int | None:
    status = _status(process)
    return int(status[1]) if status else None


def _status(process: Path) -> list[str]:
    """The state and the numbers that follow it; nothing if the process is gone."""
    try:
        # The name, in parentheses, may hold anything.
        return (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    status = _status(Path(f"/proc/{pid}"))
    return bool(status) and status[0] != "Z"
