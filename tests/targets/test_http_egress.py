"""No http attempt connects to a private address, whatever the URL or the name server says."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from cronwell import errors
from cronwell.config import HttpSettings
from cronwell.model.execution import Result
from cronwell.runtime.clock import SystemClock
from cronwell.targets.dns import CheckedResolver, SystemResolver
from cronwell.targets.egress import Egress
from cronwell.targets.http import HttpRunner
from cronwell.targets.port import Outcome
from tests.targets.rig import LIMIT, Receiver, Traces, make_call, within


class NameServer(AbstractResolver):
    """Answers each question with the next of its lists, and repeats the last one."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.questions: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.questions.append(host)
        addresses = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in addresses
        ]

    async def close(self) -> None:
        pass


class Opened:
    """Runners that are closed at the end of the test."""

    def __init__(self) -> None:
        self.runners: list[HttpRunner] = []

    def __call__(self, *allow: str, names: NameServer | None = None) -> HttpRunner:
        self.runners.append(HttpRunner(HttpSettings(), Egress(allow), SystemClock(), LIMIT, resolver=names))
        return self.runners[-1]


@pytest.fixture
async def runner(traces: Traces) -> AsyncIterator[Opened]:
    opened = Opened()
    yield opened
    for each in opened.runners:
        await each.close()


async def attempt(runner: HttpRunner, target: dict[str, Any]) -> Outcome:
    return await runner.run(make_call(target), within())


def assert_refused(outcome: Outcome, receiver: Receiver) -> None:
    assert (outcome.result, outcome.error_kind) == (Result.FAILED, "egress"), outcome
    assert not outcome.is_retryable
    assert "CRONWELL_EGRESS_ALLOW" in str(outcome.error)
    assert receiver.connections == 0


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "localhost",
        "LOCALHOST",
        "0x7f.0.0.1",
        "0x7f000001",
        "0X7F.1",
    ],
)
async def test_the_loopback_is_refused_in_every_spelling(
    runner: Opened, receiver: Receiver, host: str
) -> None:
    assert_refused(await attempt(runner(), receiver.target(host)), receiver)


@pytest.mark.parametrize(
    "host", ["2130706433", "017700000001", "0177.0.0.1", "127.1", "127.0.1", "127.0.0.01"]
)
async def test_an_old_numeric_spelling_is_not_called_even_where_the_loopback_is_allowed(
    runner: Opened, receiver: Receiver, host: str
) -> None:
    outcome = await attempt(runner("127.0.0.0/8"), receiver.target(host))
    assert (outcome.result, outcome.is_retryable) == (Result.FAILED, False), outcome
    assert outcome.error_kind in ("url", "egress")
    assert receiver.connections == 0


async def test_a_name_that_resolves_to_the_loopback_is_refused(runner: Opened, receiver: Receiver) -> None:
    names = NameServer(["127.0.0.1"])
    outcome = await attempt(runner(names=names), receiver.target("intranet.example"))
    assert_refused(outcome, receiver)
    assert "intranet.example resolves to" in str(outcome.error)


@pytest.mark.parametrize("answer", ["::ffff:127.0.0.1", "0.0.0.0", "::1", "fe80::1%1", "64:ff9b::7f00:1"])
async def test_a_name_that_resolves_to_a_disguised_address_is_refused(
    runner: Opened, receiver: Receiver, answer: str
) -> None:
    names = NameServer([answer])
    assert_refused(await attempt(runner(names=names), receiver.target("intranet.example")), receiver)


async def test_a_name_is_judged_at_every_answer_of_its_server(runner: Opened, receiver: Receiver) -> None:
    names = NameServer(["127.0.0.1"], ["127.0.0.2"])
    opened = runner("127.0.0.1/32", names=names)
    receiver.answer = _ok_and_close
    assert (await attempt(opened, receiver.target("turncoat.example"))).result is Result.SUCCEEDED
    _forget_names(opened)
    outcome = await attempt(opened, receiver.target("turncoat.example"))
    assert (outcome.error_kind, outcome.is_retryable) == ("egress", False)
    assert len(receiver.requests) == 1
    assert names.questions == ["turncoat.example"] * 2


async def test_a_kept_alive_connection_stays_with_the_address_that_was_judged(
    runner: Opened, receiver: Receiver
) -> None:
    names = NameServer(["127.0.0.1"], ["127.0.0.2"])
    opened = runner("127.0.0.1/32", names=names)
    for _ in range(3):
        assert (await attempt(opened, receiver.target("turncoat.example"))).result is Result.SUCCEEDED
        _forget_names(opened)
    assert receiver.connections == 1
    assert names.questions == ["turncoat.example"]


async def test_the_refused_addresses_of_a_name_are_left_out(runner: Opened, receiver: Receiver) -> None:
    names = NameServer(["127.0.0.2", "::1", "127.0.0.1"])
    outcome = await attempt(runner("127.0.0.1/32", names=names), receiver.target("mixed.example"))
    assert outcome.result is Result.SUCCEEDED


async def test_the_socket_refuses_what_the_resolver_let_through(runner: Opened, receiver: Receiver) -> None:
    opened = runner(names=NameServer(["127.0.0.1"]))
    opened._open()
    assert opened._client is not None
    opened._client._resolver = NameServer(["127.0.0.1"])
    assert_refused(await attempt(opened, receiver.target("intranet.example")), receiver)


async def test_a_name_is_asked_for_once_in_a_while(runner: Opened, receiver: Receiver) -> None:
    names = NameServer(["127.0.0.1"])
    opened = runner("127.0.0.0/8", names=names)
    receiver.answer = _ok_and_close
    for _ in range(3):
        assert (await attempt(opened, receiver.target("often.example"))).result is Result.SUCCEEDED
    assert receiver.connections == 3
    assert len(names.questions) == 1


async def test_an_allowed_loopback_is_called(runner: Opened, receiver: Receiver) -> None:
    for host in ("127.0.0.1", "localhost"):
        assert (await attempt(runner("127.0.0.0/8"), receiver.target(host))).result is Result.SUCCEEDED


async def test_a_name_without_addresses_is_an_error_of_the_name(runner: Opened, receiver: Receiver) -> None:
    outcome = await attempt(runner(names=NameServer([])), receiver.target("empty.example"))
    assert (outcome.result, outcome.error_kind, outcome.is_retryable) == (Result.FAILED, "dns", True)


async def test_the_systems_resolver_finds_the_loopback_and_ends_its_threads(traces: Traces) -> None:
    resolver = CheckedResolver(SystemResolver(), Egress(["127.0.0.0/8", "::1"]))
    found = await resolver.resolve("localhost", 80)
    assert {answer["host"] for answer in found} <= {"127.0.0.1", "::1"}
    assert {answer["port"] for answer in found} == {80}
    await resolver.close()


async def test_the_systems_resolver_is_refused_the_loopback(traces: Traces) -> None:
    resolver = CheckedResolver(SystemResolver(), Egress())
    with pytest.raises(errors.EgressRefused, match="localhost resolves to"):
        await resolver.resolve("localhost", 80)
    await resolver.close()


async def _ok_and_close(_: object, writer: Any) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def _forget_names(runner: HttpRunner) -> None:
    """What time does: let the cached answers of the name server grow old."""
    assert runner._client is not None
    runner._client.forget_names()
