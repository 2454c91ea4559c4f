"""A receiver of deliveries, in a process of its own: as cheap as can be, and with a clock of its own.

It answers 204 to every POST, at once or after a delay, and keeps in memory when each delivery arrived and for which
execution. `GET /figures` sums that up. `bare_rate` says how much of it there is: what a client that does nothing but
send the same bytes gets answered. A sender that comes near to that rate is measuring the receiver.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import multiprocessing
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, cast
from urllib.request import urlopen

import orjson

from cronwell.bench.spawning import deaf_to_ctrl_c

HOST = "127.0.0.1"
BACKLOG = 4096
START_SECONDS = 30.0
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
# As long as a delivery of ours with an empty payload.
REQUEST = (
    b"POST /bare HTTP/1.1\r\nHost: 127.0.0.1:00000\r\nwebhook-id: bare\r\nwebhook-timestamp: 1700000000\r\n"
    b"Cronwell-Slot: 2026-01-01T00:00:00Z\r\nAccept: */*\r\nX-Filler: " + b"x" * 420 + b"\r\nContent-Length: 150\r\n\r\n" + b" " * 150
)  # fmt: skip


class Arrival(NamedTuple):
    """One delivery as it came in. What it says is read when it is asked for."""

    at: float
    """Seconds since 1970, by the receiver's clock."""
    execution: bytes
    slot: bytes


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver that runs."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/deliveries"

    async def figures(self) -> dict[str, Any]:
        """What has arrived so far, as `figures_of` sums it up, on how many connections, and the last delivery as it came."""
        return await asyncio.to_thread(_read, f"http://{HOST}:{self.port}/figures")


@contextlib.asynccontextmanager
async def receiving(delay_seconds: float = 0.0) -> AsyncIterator[Receiver]:
    """Run a receiver that answers after so long."""
    async with _process(_serve_alone, delay_seconds) as (pid, told):
        yield Receiver(await asyncio.to_thread(_told, told), pid)


async def bare_rate(connections: int, seconds: float) -> float:
    """Requests a second that a receiver answers to a client, a process of its own, that does nothing else."""
    async with (
        receiving() as receiver,
        _process(_ask_alone, receiver.port, connections, seconds) as (_, told),
    ):
        answered: float = await asyncio.to_thread(_told, told)
    return answered


def figures_of(arrivals: Sequence[Arrival]) -> dict[str, Any]:
    """Sum up what arrived: how many, how often twice, how long after their slots, and how many in each second."""
    if not arrivals:
        return {"deliveries": 0, "executions": 0, "duplicates": 0}
    first, last = min(each.at for each in arrivals), max(each.at for each in arrivals)
    late = sorted(each.at - _seconds(each.slot) for each in arrivals)
    executions = len({each.execution for each in arrivals})
    per_second = Counter(int(each.at - first) for each in arrivals)
    return {
        "deliveries": len(arrivals),
        "executions": executions,
        "duplicates": len(arrivals) - executions,
        "first_at": first,
        "last_at": last,
        "lateness_ms": {name: round(1000 * percentile(late, share), 3) for name, share in SHARES.items()},
        "per_second": sorted(per_second.items()),
    }


def percentile(ordered: Sequence[float], share: float) -> float:
    """The least of these that at least so large a share of them does not exceed."""
    place = -(-len(ordered) * share // 1)
    return ordered[max(int(place), 1) - 1]


@dataclass(slots=True)
class Log:
    """What a receiver keeps, and how long it takes to answer."""

    delay_seconds: float = 0.0
    arrivals: list[Arrival] = field(default_factory=list)
    connections: int = 0
    latest: bytes = b""
    """The last delivery, as it came."""
    unanswered: deque[tuple[float, asyncio.Transport]] = field(default_factory=deque)
    """Who is answered when, on the loop's clock: all wait for as long, so who came first is first."""

    def answer_due(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer those whose time has come: one timer serves them all."""
        now = loop.time()
        while self.unanswered and self.unanswered[0][0] <= now:
            transport = self.unanswered.popleft()[1]
            if not transport.is_closing():
                transport.write(ANSWER)
        if self.unanswered:
            # Those of the same millisecond are answered together, at its end.
            loop.call_at(self.unanswered[0][0] + 0.001, self.answer_due, loop)


class Peer(asyncio.Protocol):
    """One connection: requests come one after the other, as clients without pipelining send them."""

    __slots__ = ("_log", "_loop", "_rest", "_transport")

    def __init__(self, log: Log, loop: asyncio.AbstractEventLoop) -> None:
        self._log = log
        self._loop = loop
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not by isinstance: uvloop's transports are none of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._log.connections += 1

    def data_received(self, data: bytes) -> None:
        at = time.time()
        if self._rest:
            data, self._rest = self._rest + data, b""
        end = data.find(b"\r\n\r\n")
        if end < 0 or len(data) < (whole := end + 4 + int(_value(data, end, _LENGTH) or 0)):
            self._rest = data
            return
        if len(data) > whole:
            data, self._rest = data[:whole], data[whole:]
        if data.startswith(b"GET "):
            self._tell()
            return
        log = self._log
        log.arrivals.append(Arrival(at, _value(data, end, _EXECUTION), _value(data, end, _SLOT)))
        log.latest = data
        if not log.delay_seconds:
            self._transport.write(ANSWER)
            return
        log.unanswered.append((self._loop.time() + log.delay_seconds, self._transport))
        if len(log.unanswered) == 1:
            self._loop.call_later(log.delay_seconds, log.answer_due, self._loop)

    def _tell(self) -> None:
        log = self._log
        told = {
            **figures_of(log.arrivals),
            "connections": log.connections - 1,  # but for the one that asks
            "latest": log.latest.decode("latin-1"),
        }
        body = orjson.dumps(told)
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        self._transport.close()


# As a worker spells them.
_LENGTH = b"\r\nContent-Length: "
_EXECUTION = b"\r\nwebhook-id: "
_SLOT = b"\r\nCronwell-Slot: "


def _value(data: bytes, end: int, name: bytes) -> bytes:
    """The value of a header in a head that ends at `end`; empty if it is not there."""
    found = data.find(name, 0, end)
    if found < 0:
        # Another client may spell it in another way.
        found = data[:end].lower().find(name.lower())
        if found < 0:
            return b""
    start = found + len(name)
    return data[start : data.find(b"\r\n", start)].strip()


def _seconds(slot: bytes) -> float:
    return datetime.fromisoformat(slot.decode()).timestamp()


def _read(url: str) -> dict[str, Any]:
    with urlopen(url, timeout=60) as answer:  # noqa: S310  # our own receiver
        told: dict[str, Any] = orjson.loads(answer.read())
    return told


@contextlib.asynccontextmanager
async def _process(work: Callable[..., None], *arguments: Any) -> AsyncIterator[tuple[int, Connection]]:
    """Run `work` in a process, with one end of a pipe as its first argument; end it at the end."""
    context = multiprocessing.get_context("spawn")
    told, telling = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(telling, *arguments), daemon=True)
    with deaf_to_ctrl_c():
        process.start()
    telling.close()
    assert process.pid is not None
    try:
        yield process.pid, told
    finally:
        process.terminate()
        await asyncio.to_thread(process.join)
        told.close()


def _told(told: Connection) -> Any:
    if not told.poll(START_SECONDS):
        raise TimeoutError("a process of the benchmark did not answer")
    return told.recv()


def _serve_alone(telling: Connection, delay_seconds: float) -> None:
    gc.disable()  # nothing here is cyclic, and everything is kept
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve(telling, delay_seconds))


async def _serve(telling: Connection, delay_seconds: float) -> None:
    log = Log(delay_seconds)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Peer(log, loop), HOST, 0, backlog=BACKLOG)
    telling.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _ask_alone(telling: Connection, port: int, connections: int, seconds: float) -> None:
    gc.disable()
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        telling.send(runner.run(_ask(port, connections, seconds)))


async def _ask(port: int, connections: int, seconds: float) -> float:
    answered = [0]
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: _Asker(answered), HOST, port)
    began, already = time.perf_counter(), answered[0]
    await asyncio.sleep(seconds)
    return (answered[0] - already) / (time.perf_counter() - began)


class _Asker(asyncio.Protocol):
    """Sends the next request when the last one is answered."""

    def __init__(self, answered: list[int]) -> None:
        self._answered = answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:  # noqa: ARG002  # the loop's signature
        # An answer is so short that it comes in one piece.
        self._answered[0] += 1
        self._transport.write(REQUEST)


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where there is one: it is not made for every platform."""
    try:
        made: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
    except ImportError:
        return asyncio.new_event_loop()
    return made
