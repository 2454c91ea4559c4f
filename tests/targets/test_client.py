"""The client of deliveries: whose connection a request goes out on, and when an answer is complete."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from cronwell.config import HttpSettings
from cronwell.errors import EgressRefused
from cronwell.targets import client as client_module
from cronwell.targets.client import Client, Origin
from cronwell.targets.egress import Egress
from cronwell.targets.exchange import Answer, Trouble
from tests.targets.rig import Receiver, Traces, answering, eventually, never_answer, sending

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


class Names(AbstractResolver):
    """Answers with the loopback once it is let."""

    def __init__(self) -> None:
        self.questions = 0
        self.may_answer = asyncio.Event()
        self.addresses = ["127.0.0.1"]

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.questions += 1
        await self.may_answer.wait()
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in self.addresses
        ]

    async def close(self) -> None:
        pass


Open = Callable[..., Client]


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
async def open_client(traces: Traces, names: Names) -> AsyncIterator[Open]:
    clients: list[Client] = []

    def opened(**settings: Any) -> Client:
        settings.setdefault("connect_timeout", timedelta(seconds=2))
        clients.append(Client(HttpSettings(**settings), Egress(["127.0.0.0/8"]), names))
        return clients[-1]

    yield opened
    for client in clients:
        await client.close()


def to(receiver: Receiver, host: str = "127.0.0.1") -> Origin:
    return Origin(False, host, receiver.port, f"{host}:{receiver.port}")


async def ask(client: Client, origin: Origin, limit: int = 1000) -> Answer:
    answer = Answer(limit, 10 * limit)
    await client.send(origin, REQUEST, answer)
    return answer


async def test_an_answer_without_a_length_ends_with_its_connection(
    open_client: Open, receiver: Receiver
) -> None:
    client = open_client()
    receiver.answer = sending(b"HTTP/1.1 200 OK\r\n\r\nall of it")
    answer = await ask(client, to(receiver))
    assert (answer.status, answer.reason, answer.kept.text()) == (200, b"OK", ("all of it", False))
    await ask(client, to(receiver))
    assert receiver.connections == 2


async def test_what_comes_before_the_final_answer_is_passed_over(
    open_client: Open, receiver: Receiver
) -> None:
    receiver.answer = sending(
        b"HTTP/1.1 103 Early Hints\r\nLocation: /early\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
        b"HTTP/1.1 201 Created\r\nDate: now\r\nContent-Length: 2\r\n\r\nok",
        then_close=False,
    )
    client = open_client()
    for _ in range(2):
        answer = await ask(client, to(receiver))
        assert (answer.status, answer.reason, answer.headers) == (201, b"Created", {"date": "now"})
        assert answer.kept.text() == ("ok", False)
    assert receiver.connections == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_a_connection_that_is_done_or_says_more_than_it_was_asked_is_not_used_again(
    open_client: Open, receiver: Receiver, raw: bytes
) -> None:
    receiver.answer = sending(raw, then_close=False)
    client = open_client()
    for _ in range(2):
        assert (await ask(client, to(receiver))).kept.text() == ("ok", False)
    assert receiver.connections == 2


async def test_an_upgrade_that_nobody_asked_for_is_refused(open_client: Open, receiver: Receiver) -> None:
    receiver.answer = sending(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc")
    with pytest.raises(Trouble) as raised:
        await ask(open_client(), to(receiver))
    assert raised.value.kind == "protocol"


async def test_a_head_without_an_end_is_not_gathered(open_client: Open, receiver: Receiver) -> None:
    async def endless(_: object, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while not writer.transport.is_closing():
            writer.write(b"X: " + b"y" * 1000 + b"\r\n")
            await writer.drain()

    receiver.answer = endless
    with pytest.raises(Trouble, match="headers are longer than"):
        await ask(open_client(), to(receiver))


async def test_a_connection_that_the_server_has_closed_meanwhile_is_replaced(
    open_client: Open, receiver: Receiver
) -> None:
    client = open_client()
    receiver.answer = sending(b"HTTP/1.1 204 No Content\r\n\r\n")
    for _ in range(3):
        assert (await ask(client, to(receiver))).status == 204
        await eventually(lambda: not any(each.is_open for each in client._idle), "the close was seen")
    assert receiver.connections == 3


async def test_idle_connections_are_closed_after_a_while(
    open_client: Open, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "KEEP_ALIVE_SECONDS", 0.05)
    client = open_client()
    await asyncio.gather(*(ask(client, to(receiver)) for _ in range(3)))
    await eventually(lambda: receiver.connections == 3 and not receiver.open_connections, "they were closed")
    assert not client._pools


async def test_there_are_no_more_connections_than_allowed_idle_ones_included(open_client: Open) -> None:
    client = open_client(connections=2)
    async with Receiver() as one, Receiver() as two, Receiver() as three:
        for receiver in (one, two, three):
            await ask(client, to(receiver))
        await eventually(lambda: one.open_connections == 0, "the oldest made room")
        assert (two.open_connections, three.open_connections) == (1, 1)


async def test_who_waits_for_a_host_that_hangs_holds_no_place_of_others(open_client: Open) -> None:
    client = open_client(connections=2, per_host=1)
    async with Receiver(answer=never_answer) as dead, Receiver(answer=answering("204 OK")) as alive:
        stuck = [asyncio.create_task(ask(client, to(dead))) for _ in range(5)]
        await dead.arrived.wait()
        async with asyncio.timeout(5):
            assert (await ask(client, to(alive))).status == 204
        for task in stuck:
            task.cancel()
        await asyncio.wait(stuck)
        assert len(dead.requests) == 1
    assert client._places.taken == 0
    assert not any(origin.port == dead.port for origin in client._pools)


async def test_who_gives_up_waiting_for_a_host_takes_no_place_from_who_came_after(open_client: Open) -> None:
    client = open_client(per_host=1)
    async with Receiver(answer=never_answer) as dead:
        first = asyncio.create_task(ask(client, to(dead)))
        await dead.arrived.wait()
        waiting = asyncio.create_task(ask(client, to(dead)))
        await eventually(lambda: len(client._pools[to(dead)].places._waiting) == 1, "one of them waits")
        # In one turn of the loop: one is over, another begins, and who waited gives up.
        first.cancel()
        second = asyncio.create_task(ask(client, to(dead)))
        waiting.cancel()
        await asyncio.wait({first, waiting})
        assert client._pools[to(dead)].places.taken == 1
        second.cancel()
        await asyncio.wait({second})
    assert not client._pools


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["127.0.0.1", "127.0.0.2"]])
async def test_an_address_is_judged_where_it_is_connected_to_whatever_the_resolver_let_through(
    receiver: Receiver, names: Names, addresses: list[str]
) -> None:
    names.addresses = addresses
    names.may_answer.set()
    client = Client(HttpSettings(), Egress(), names)
    with pytest.raises(EgressRefused):
        await ask(client, to(receiver, "somewhere.example"))
    await client.close()
    assert (names.questions, receiver.connections) == (1, 0)


async def test_a_name_is_looked_up_once_for_all_who_wait_although_the_first_gives_up(
    open_client: Open, receiver: Receiver, names: Names
) -> None:
    client = open_client()
    first, *others = [asyncio.create_task(ask(client, to(receiver, "many.example"))) for _ in range(4)]
    await eventually(lambda: names.questions == 1, "the name was asked for")
    first.cancel()
    await asyncio.wait({first})
    names.may_answer.set()
    assert {answer.status for answer in await asyncio.gather(*others)} == {200}
    assert names.questions == 1
