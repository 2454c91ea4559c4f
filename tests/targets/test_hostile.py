"""What a hostile server, a held-up loop and a hostile url may not do."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from cronwell import errors
from cronwell.model.execution import Result
from cronwell.targets import stopping
from cronwell.targets.client import _is_address
from cronwell.targets.driving import drive
from cronwell.targets.egress import Egress
from cronwell.targets.exchange import Answer, Connection, Outbox, Trouble
from cronwell.targets.http import _read_date
from cronwell.targets.port import END, Outcome
from cronwell.targets.registry import Context
from tests.targets.rig import make_call, within


@pytest.mark.parametrize("host", ["8.8.8.8%.example.com", "8.8.8.8%lo", "8.8.8.8%"])
def test_an_ipv4_address_with_a_scope_is_a_name_and_no_address(host: str) -> None:
    """The operating system would look it up, after the address before the sign was judged."""
    assert not _is_address(host)
    with pytest.raises(errors.EgressRefused):
        Egress().check(host)


class _Sink:
    def write(self, _: bytes) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


@pytest.mark.parametrize("endless", [b"0\r\nX: ", b"5;x="])
async def test_trailers_and_extensions_without_an_end_are_not_gathered(endless: bytes) -> None:
    connection = Connection("there")
    connection.connection_made(_Sink())  # type: ignore[arg-type]  # as much of a transport as it needs
    done = connection.ask(b"", Answer(10, 1000), Outbox(asyncio.get_running_loop()))
    connection.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + endless)
    for _ in range(20):
        connection.data_received(b"x" * 10_000)
    assert done.done()
    with pytest.raises(Trouble):
        await done


async def test_what_was_there_before_the_deadline_counts_although_the_loop_was_held_up() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    interrupt = stopping.Interrupt(within(0.1))
    got = b""
    with interrupt, ours, theirs:

        def send_and_hold_up() -> None:
            theirs.send(b"ok")
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                pass

        asyncio.get_running_loop().call_soon(send_and_hold_up)
        got = await asyncio.get_running_loop().sock_recv(ours, 10)
    assert (got, interrupt.reason) == (b"ok", None)


def test_a_date_with_a_zone_beyond_measure_is_none() -> None:
    assert _read_date("1 Jan 2020 00:00:00 +99999999999999") is None


async def test_a_function_that_takes_back_the_end_is_ended_from_outside_all_the_same() -> None:
    free = asyncio.Event()

    async def takes_back() -> Outcome:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                assert task is not None
                task.uncancel()
        return Outcome(Result.SUCCEEDED)

    signals = within()
    context = Context(make_call({"handler": {"name": "any"}}), signals)
    lost: set[asyncio.Task[Outcome]] = set()
    task = asyncio.create_task(drive(takes_back(), context, signals, lost))
    await asyncio.sleep(0)
    task.cancel(END)
    try:
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        free.set()
    await asyncio.wait(lost)
