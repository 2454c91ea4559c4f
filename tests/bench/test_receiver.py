"""The receiver of deliveries keeps its own clock, counts what came twice, and is faster than who sends to it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from urllib.request import Request, urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell.bench.receiver import Arrival, Receiver, bare_rate, figures_of, percentile, receiving

SLOT = b"2027-03-01T09:30:00Z"
SLOT_SECONDS = 1_803_893_400.0


def test_figures_count_executions_and_what_came_twice() -> None:
    arrivals = [
        Arrival(SLOT_SECONDS + after, execution, SLOT)
        for after, execution in ((0.5, b"a"), (0.25, b"b"), (1.75, b"a"), (3.0, b"c"))
    ]
    figures = figures_of(arrivals)
    assert (figures["deliveries"], figures["executions"], figures["duplicates"]) == (4, 3, 1)
    assert (figures["first_at"], figures["last_at"]) == (SLOT_SECONDS + 0.25, SLOT_SECONDS + 3.0)
    assert figures["lateness_ms"] == {"p50": 500.0, "p99": 3000.0, "p99.9": 3000.0, "max": 3000.0}
    assert figures["per_second"] == [(0, 2), (1, 1), (2, 1)]


def test_nothing_arrived_is_no_error() -> None:
    assert figures_of([]) == {"deliveries": 0, "executions": 0, "duplicates": 0}


@given(st.lists(st.floats(allow_nan=False), min_size=1), st.floats(0.0, 1.0))
def test_a_percentile_is_the_least_that_so_many_do_not_exceed(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert sum(value <= found for value in ordered) >= share * len(ordered) - 1e-9
    assert sum(value < found for value in ordered) < max(share * len(ordered), 1e-300) or found == ordered[0]


async def test_a_receiver_leaves_a_ctrl_c_to_who_started_it() -> None:
    heard = signal.getsignal(signal.SIGINT)
    async with receiving() as receiver:
        assert signal.getsignal(signal.SIGINT) is heard
        os.kill(receiver.pid, signal.SIGINT)
        # One that heard it may still answer what comes at once.
        for _ in range(5):
            assert (await receiver.figures())["deliveries"] == 0


async def test_a_receiver_answers_and_tells_what_arrived_and_when() -> None:
    async with receiving() as receiver:
        before = time.time()
        for execution in ("a", "b", "a"):
            assert await asyncio.to_thread(_post, receiver, execution) == 204
        figures = await receiver.figures()
    assert (figures["deliveries"], figures["executions"], figures["duplicates"]) == (3, 2, 1)
    assert before <= figures["first_at"] <= figures["last_at"] <= time.time()
    assert figures["latest"].endswith("\r\n\r\n" + '{"a":1}')
    assert figures["connections"] == 3


async def test_a_slow_receiver_answers_after_its_delay() -> None:
    async with receiving(0.2) as receiver:
        began = time.monotonic()
        assert await asyncio.to_thread(_post, receiver, "a") == 204
        assert time.monotonic() - began >= 0.2


async def test_who_went_away_before_the_answer_holds_up_nobody() -> None:
    raw = b"POST / HTTP/1.1\r\nWebhook-ID: gone\r\nCronwell-Slot: %s\r\nContent-Length: 0\r\n\r\n" % SLOT
    async with receiving(0.2) as receiver:
        _, writer = await asyncio.open_connection("127.0.0.1", receiver.port)
        writer.write(raw)
        await writer.drain()
        writer.transport.abort()
        assert await asyncio.gather(
            *(asyncio.to_thread(_post, receiver, execution) for execution in ("a", "b", "c"))
        ) == [204, 204, 204]


async def test_a_request_in_pieces_is_one_delivery() -> None:
    raw = b"POST / HTTP/1.1\r\nWebhook-ID: x\r\nCronwell-Slot: %s\r\nContent-Length: 3\r\n\r\nabc" % SLOT
    async with receiving() as receiver:
        reader, writer = await asyncio.open_connection("127.0.0.1", receiver.port)
        for place in range(len(raw)):
            writer.write(raw[place : place + 1])
            await writer.drain()
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
        writer.close()
        figures = await receiver.figures()
    assert (figures["deliveries"], figures["latest"]) == (1, raw.decode())


@pytest.mark.parametrize("connections", [8])
async def test_a_client_that_only_sends_is_answered_all_the_time(connections: int) -> None:
    assert await bare_rate(connections, 0.2) > 100


def _post(receiver: Receiver, execution: str) -> int:
    headers = {"Webhook-Id": execution, "Cronwell-Slot": SLOT.decode()}
    with urlopen(Request(receiver.url, b'{"a":1}', headers), timeout=10) as answer:
        status: int = answer.status
        return status
