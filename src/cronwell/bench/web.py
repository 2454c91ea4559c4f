"""Calling an API under measurement over HTTP: at a rate that does not wait for answers, or as fast as answers come."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

import aiohttp

from cronwell import errors
from cronwell.runtime.web import first_answer

READY_WITHIN = timedelta(seconds=60)
TIMEOUT = aiohttp.ClientTimeout(total=300)
NDJSON = {"Content-Type": "application/x-ndjson"}


class Api:
    """Calls to one or more API processes, in turn."""

    def __init__(self, session: aiohttp.ClientSession, addresses: Sequence[str]) -> None:
        self._session = session
        self._addresses = addresses
        self._calls = 0

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        status: int = 200,
    ) -> bytes:
        """The answer's body; raises where the status is another one: a figure of errors would say nothing."""
        async with self._session.request(method, self._next() + path, params=query, json=body) as answer:
            return await _read(answer, status)

    async def send_lines(self, path: str, lines: bytes) -> bytes:
        """Post NDJSON and return the NDJSON that is answered."""
        async with self._session.post(self._next() + path, data=lines, headers=NDJSON) as answer:
            return await _read(answer, 200)

    def _next(self) -> str:
        self._calls += 1
        return self._addresses[self._calls % len(self._addresses)]


@contextlib.asynccontextmanager
async def calling(host: str, port: int, *, apis: int = 1, connections: int) -> AsyncIterator[Api]:
    """Wait until the APIs on `port` and those after it are ready, and keep connections to them."""
    for place in range(apis):
        await until_ready(host, port + place)
    connector = aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session:
        shown = f"[{host}]" if ":" in host else host
        yield Api(session, [f"http://{shown}:{port + place}" for place in range(apis)])


async def until_ready(host: str, port: int) -> None:
    if not await first_answer(host, port, "/readyz", READY_WITHIN):
        raise TimeoutError(f"the process under measurement on port {port} did not get ready")


async def open_loop(act: Callable[[int], Awaitable[object]], *, rate: float, count: int) -> list[float]:
    """Begin `act(0)`, `act(1)`, ... at a rate, however long they take; seconds from when each was to begin to its end.

    Counted from the time that was planned, not from when it was sent: what waits behind something slow is slow as well.
    """
    took: list[float] = [0.0] * count
    began = time.perf_counter() + 0.01

    async def one(number: int) -> None:
        await act(number)
        took[number] = time.perf_counter() - (began + number / rate)

    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            wait = began + number / rate - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            tasks.create_task(one(number), name=f"call {number}")
    return took


def in_ms(seconds: Sequence[float]) -> dict[str, float]:
    """The median, the 99th percentile and the longest, in milliseconds."""
    ordered = sorted(seconds)
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {
        name: round(1000 * ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3)
        for name, share in shares.items()
    }


def growth(
    small: Mapping[str, float], large: Mapping[str, float], *, slack: float, names: Sequence[str]
) -> float:
    """By how much the worst of some figures has grown; a difference of less than `slack` counts as none."""
    return max(
        1.0 if large[name] - small[name] < slack else large[name] / max(small[name], 1e-9) for name in names
    )


async def _read(answer: aiohttp.ClientResponse, status: int) -> bytes:
    body = await answer.read()
    if answer.status != status:
        told = body[:500].decode(errors="replace")
        raise errors.CronwellError(
            f"{answer.method} {answer.url.path} was answered with {answer.status}, not {status}: {told}"
        )
    return body
