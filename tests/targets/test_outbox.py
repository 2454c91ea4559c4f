"""Requests go out a few at a time: none before its turn of the loop ends, none much later, and none on a dead connection."""

from __future__ import annotations

import asyncio

import pytest

from cronwell.targets.exchange import TOGETHER, Answer, Connection, Outbox, Trouble


class _Wire:
    """As much of a transport as a connection needs."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        assert not self.is_aborted, "a transport that was aborted raises"
        self.sent.append(data)

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted


def _connected() -> tuple[Connection, _Wire]:
    connection, wire = Connection("there"), _Wire()
    connection.connection_made(wire)  # type: ignore[arg-type]  # see above
    return connection, wire


async def test_a_lone_request_goes_out_with_the_end_of_the_turn() -> None:
    connection, wire = _connected()
    connection.ask(b"request", Answer(10, 1000), Outbox(asyncio.get_running_loop()))
    assert wire.sent == []
    await asyncio.sleep(0)
    assert wire.sent == [b"request"]


async def test_many_of_one_turn_do_not_wait_for_its_end() -> None:
    outbox = Outbox(asyncio.get_running_loop())
    wires = []
    for number in range(2 * TOGETHER + 1):
        connection, wire = _connected()
        wires.append(wire)
        connection.ask(b"%d" % number, Answer(10, 1000), outbox)
    assert [len(wire.sent) for wire in wires] == [1] * (2 * TOGETHER) + [0]
    await asyncio.sleep(0)
    assert [wire.sent for wire in wires] == [[b"%d" % number] for number in range(2 * TOGETHER + 1)]


async def test_a_request_whose_connection_has_ended_meanwhile_is_not_sent_and_the_others_are() -> None:
    outbox = Outbox(asyncio.get_running_loop())
    (ended, its_wire), (lost, lost_wire), (other, other_wire) = _connected(), _connected(), _connected()
    asked = [each.ask(b"request", Answer(10, 1000), outbox) for each in (ended, lost, other)]
    ended.close()
    lost.connection_lost(None)
    await asyncio.sleep(0)
    assert (its_wire.sent, lost_wire.sent, other_wire.sent) == ([], [], [b"request"])
    with pytest.raises(Trouble, match="closed the connection"):
        await asked[1]
