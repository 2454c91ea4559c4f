"""One publish attempt: what the stream gets, how each refusal reads, and that a lost broker costs an attempt and no more."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
import trustme

from cronwell.config import PublishSettings
from cronwell.model.execution import Result
from cronwell.targets.port import Outcome, Signals
from cronwell.targets.publish import PublishRunner
from tests.support.redis import DURABLE, RedisServer, needs_redis, temporary_redis
from tests.targets.rig import Traces, eventually, make_call, within

pytestmark = needs_redis

PATIENT = PublishSettings()
HASTY = PublishSettings(timeout=timedelta(milliseconds=300))


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with temporary_redis(*DURABLE) as server:
        yield server


@pytest.fixture(scope="module")
def closed_redis() -> Iterator[RedisServer]:
    """One that asks for a password, and has a user who may write to another stream."""
    with temporary_redis("--requirepass", "secret") as server:
        server.ask("ACL", "SETUSER", "reader", "on", ">secret", "~other", "+xadd", password="secret")
        yield server


@pytest.fixture
def stream(redis: RedisServer) -> Iterator[str]:
    """A stream that nobody has used."""
    yield "orders"
    redis.ask("FLUSHALL")


@pytest.fixture
async def runner(redis: RedisServer, traces: Traces) -> AsyncIterator[PublishRunner]:
    """It leaves nothing behind; for tests that leave the broker as it is."""
    async with running(redis.address) as opened:
        yield opened


@pytest.fixture
async def lasting_runner(redis: RedisServer) -> AsyncIterator[PublishRunner]:
    """For tests after which the broker is another process."""
    async with running(redis.address) as opened:
        yield opened


@asynccontextmanager
async def running(address: str, settings: PublishSettings = PATIENT) -> AsyncIterator[PublishRunner]:
    opened = PublishRunner({"default": address}, settings)
    try:
        yield opened
    finally:
        await opened.close()


async def publish(
    runner: PublishRunner,
    stream: str,
    signals: Signals | None = None,
    *,
    maxlen: int | None = None,
    **more: Any,
) -> Outcome:
    where = {"stream": stream} if maxlen is None else {"stream": stream, "maxlen": maxlen}
    call = make_call({"publish": {"redis": where}}, **more)
    return await asyncio.wait_for(runner.run(call, signals or within()), 30)


def connections(redis: RedisServer) -> int:
    """How many there have been, without those of the tests."""
    return int(redis.ask("INFO", "stats")["total_connections_received"])


@contextmanager
def frozen(redis: RedisServer) -> Iterator[None]:
    redis.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        redis.signal(signal.SIGCONT)


# --- what is published


async def test_a_message_carries_the_facts_of_its_attempt(
    runner: PublishRunner, redis: RedisServer, stream: str
) -> None:
    payload = {"range": "yesterday", "ü": [1, None], "large": 2**70}
    outcome = await publish(runner, stream, payload=payload, attempt=2, fence=9, job_name="täglich")
    [entry] = redis.entries(stream)
    assert outcome == Outcome(Result.SUCCEEDED, output=entry.id)
    fields = dict(entry.fields)
    assert orjson.loads(fields["payload"].replace(str(2**70), "1")) == {**payload, "large": 1}
    assert str(2**70) in fields.pop("payload")
    trace = fields.pop("traceparent")
    assert trace.startswith("00-")
    assert len(trace) == 55
    assert fields == {
        "execution": make_call({"http": {"url": "https://x.example"}}).execution_id,
        "job": "täglich",
        "slot": "2027-03-01T09:30:00Z",
        "attempt": "2",
        "fence": "9",
    }


async def test_every_attempt_carries_the_same_execution_and_trace(
    runner: PublishRunner, redis: RedisServer, stream: str
) -> None:
    for attempt in (1, 2):
        await publish(runner, stream, attempt=attempt, fence=attempt + 3)
    first, second = (entry.fields for entry in redis.entries(stream))
    assert first["execution"] == second["execution"]
    assert first["traceparent"].split("-")[1] == second["traceparent"].split("-")[1]
    assert first["traceparent"] != second["traceparent"]
    assert (first["fence"], second["fence"]) == ("4", "5")


async def test_a_stream_keeps_about_as_many_as_it_was_told(
    runner: PublishRunner, redis: RedisServer, stream: str
) -> None:
    await asyncio.gather(*(publish(runner, stream, maxlen=100) for _ in range(450)))
    # Redis drops whole nodes, of a hundred entries each.
    assert 100 <= redis.ask("XLEN", stream) <= 200


async def test_many_at_once_go_by_one_connection_and_each_gets_its_own_answer(
    runner: PublishRunner, redis: RedisServer, stream: str
) -> None:
    before = connections(redis)
    outcomes = await asyncio.gather(*(publish(runner, stream, attempt=n) for n in range(1, 501)))
    assert connections(redis) == before + 2, "ours, and the one that asks"
    told = {entry.fields["attempt"]: entry.id for entry in redis.entries(stream)}
    assert [told[str(n)] for n in range(1, 501)] == [outcome.output for outcome in outcomes]


async def test_user_password_and_database_are_those_of_the_address(redis: RedisServer, stream: str) -> None:
    redis.ask("ACL", "SETUSER", "cron", "on", ">p@ss/word", f"~{stream}", "+xadd", "+select")
    async with running(f"redis://cron:p%40ss%2Fword@127.0.0.1:{redis.port}/3") as runner:
        assert (await publish(runner, stream)).result is Result.SUCCEEDED
    assert len(redis.entries(stream, database=3)) == 1
    assert redis.entries(stream) == []


# --- a broker that goes away


async def test_after_a_restart_of_the_broker_messages_go_on_and_none_is_lost(
    lasting_runner: PublishRunner, redis: RedisServer, stream: str
) -> None:
    first = await publish(lasting_runner, stream)
    redis.restart()

    async def second() -> Outcome:
        return await publish(lasting_runner, stream, attempt=2)

    # One attempt may meet the old connection before its end is heard of.
    outcome = await second()
    outcome = outcome if outcome.result is Result.SUCCEEDED else await second()
    assert [entry.id for entry in redis.entries(stream)] == [first.output, outcome.output]


async def test_a_broker_that_is_away_fails_the_attempt_and_serves_the_next(
    lasting_runner: PublishRunner, redis: RedisServer, stream: str
) -> None:
    redis.stop()
    outcomes = await asyncio.gather(*(publish(lasting_runner, stream) for _ in range(20)))
    assert {(each.error_kind, each.is_retryable) for each in outcomes} == {("connect", True)}
    assert f"cannot connect to the broker default (Redis at 127.0.0.1:{redis.port})" in str(outcomes[0].error)
    redis.start()
    assert (await publish(lasting_runner, stream)).result is Result.SUCCEEDED


async def test_a_broker_that_dies_with_a_message_leaves_it_unknown(
    lasting_runner: PublishRunner, redis: RedisServer, stream: str
) -> None:
    assert (await publish(lasting_runner, stream)).result is Result.SUCCEEDED
    redis.signal(signal.SIGSTOP)
    attempts = [asyncio.create_task(publish(lasting_runner, stream)) for _ in range(5)]
    done, _ = await asyncio.wait(attempts, timeout=0.05)
    assert not done
    redis.restart()
    for outcome in await asyncio.gather(*attempts):
        assert (outcome.result, outcome.error_kind, outcome.is_retryable) == (
            Result.FAILED,
            "broker_lost",
            True,
        )
        assert "sends again under the same execution id" in str(outcome.error)


async def test_a_broker_that_hangs_holds_an_attempt_until_its_deadline_and_no_longer(
    runner: PublishRunner, redis: RedisServer, stream: str
) -> None:
    with frozen(redis):
        outcome = await publish(runner, stream, within(0.2), timeout=timedelta(milliseconds=200))
        assert (outcome.result, outcome.error_kind) == (Result.TIMED_OUT, "timeout")
    assert (await publish(runner, stream, attempt=2)).result is Result.SUCCEEDED


async def test_a_broker_that_does_not_answer_in_time_fails_all_that_wait_for_it(
    redis: RedisServer, stream: str, traces: Traces
) -> None:
    async with running(redis.address, HASTY) as runner:
        assert (await publish(runner, stream)).result is Result.SUCCEEDED
        with frozen(redis):
            outcomes = await asyncio.gather(*(publish(runner, stream) for _ in range(10)))
        assert {each.error_kind for each in outcomes} == {"broker_lost"}
        assert any("did not answer within 300ms" in str(each.error) for each in outcomes)
        assert (await publish(runner, stream)).result is Result.SUCCEEDED


async def test_who_gives_up_leaves_the_others_their_own_answers(
    runner: PublishRunner, redis: RedisServer, stream: str
) -> None:
    await publish(runner, stream)
    with frozen(redis):
        attempts = [asyncio.create_task(publish(runner, stream, attempt=n)) for n in range(2, 12)]
        await asyncio.wait(attempts, timeout=0.02)
        for given_up in attempts[::2]:
            given_up.cancel()
        await asyncio.wait(attempts[::2], timeout=5)
    kept = await asyncio.gather(*attempts[1::2])
    told = {entry.fields["attempt"]: entry.id for entry in redis.entries(stream)}
    assert [each.output for each in kept] == [told[str(n)] for n in range(3, 13, 2)]


async def test_a_user_who_cancels_gets_the_place_back_although_the_broker_hangs(
    runner: PublishRunner, redis: RedisServer, stream: str
) -> None:
    with frozen(redis):
        signals = within()
        attempt = asyncio.create_task(publish(runner, stream, signals))
        await asyncio.wait([attempt], timeout=0.02)
        signals.cancelled.set()
        assert (await attempt).result is Result.CANCELLED


# --- refusals


async def test_a_broker_that_nobody_has_configured_is_named_with_its_setting(redis: RedisServer) -> None:
    async with running(redis.address) as runner:
        call = make_call({"publish": {"broker": "events", "redis": {"stream": "orders"}}})
        outcome = await runner.run(call, within())
    assert (outcome.result, outcome.error_kind, outcome.is_retryable) == (Result.FAILED, "no_broker", True)
    assert "CRONWELL_BROKERS_EVENTS" in str(outcome.error)


@contextmanager
def changed(redis: RedisServer, change: list[str], back: list[str]) -> Iterator[None]:
    redis.ask(*change)
    try:
        yield
    finally:
        redis.ask(*back)


@pytest.mark.parametrize(
    ("kind", "said", "change", "back"),
    [
        ("broker_full", "maxmemory", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("broker_readonly", "CRONWELL_BROKERS_DEFAULT", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
        (
            "broker_unready",
            "min-replicas",
            "CONFIG SET min-replicas-to-write 1",
            "CONFIG SET min-replicas-to-write 0",
        ),
        ("wrong_type", "the key orders is no stream", "SET orders 1", "DEL orders"),
    ],
)
async def test_a_refusal_says_what_to_do(
    runner: PublishRunner, redis: RedisServer, stream: str, kind: str, said: str, change: str, back: str
) -> None:  # fmt: skip
    with changed(redis, change.split(), back.split()):
        outcome = await publish(runner, stream)
        assert (outcome.result, outcome.error_kind) == (Result.FAILED, kind)
        assert said in str(outcome.error)
        assert outcome.is_retryable == (kind != "wrong_type")
    assert (await publish(runner, stream)).result is Result.SUCCEEDED


@pytest.mark.parametrize(
    ("login", "kind", "said"),
    [
        ("", "broker_auth", "USER:PASSWORD@"),
        (":wrong@", "broker_auth", "put the right ones into CRONWELL_BROKERS_DEFAULT"),
        ("reader:secret@", "broker_denied", "ACL SETUSER … ~orders +xadd"),
    ],
)
async def test_a_login_that_is_refused_says_which_setting_to_mend(
    closed_redis: RedisServer, login: str, kind: str, said: str
) -> None:
    async with running(f"redis://{login}127.0.0.1:{closed_redis.port}") as runner:
        outcome = await publish(runner, "orders")
    assert (outcome.error_kind, outcome.is_retryable) == (kind, True)
    assert said in str(outcome.error)
    assert "secret" not in str(outcome.error)


async def test_a_password_that_the_broker_does_not_want_is_told(redis: RedisServer) -> None:
    async with running(f"redis://:needless@127.0.0.1:{redis.port}") as runner:
        outcome = await publish(runner, "orders")
    assert outcome.error_kind == "broker_auth"
    assert "needless" not in str(outcome.error)


async def test_a_broker_that_repeats_a_login_it_does_not_know_does_not_tell_the_password() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(
            b"-ERR unknown command 'AUTH', with args beginning with: 'cronwell' 's3cr3t-of-ours' \r\n"
        )
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, running(f"redis://cronwell:s3cr3t-of-ours@127.0.0.1:{port}") as runner:
        outcome = await publish(runner, "orders")
    assert "unknown command" in str(outcome.error)
    assert "s3cr3t" not in str(outcome.error)


async def test_a_database_that_does_not_exist_is_told(redis: RedisServer) -> None:
    async with running(f"{redis.address}/99") as runner:
        outcome = await publish(runner, "orders")
    assert outcome.error_kind == "broker_refused"
    assert "DB index is out of range" in str(outcome.error)


async def test_after_a_failover_the_primary_is_looked_for_anew(
    runner: PublishRunner, redis: RedisServer, stream: str
) -> None:
    with changed(redis, ["REPLICAOF", "127.0.0.1", "1"], ["REPLICAOF", "NO", "ONE"]):
        assert (await publish(runner, stream)).error_kind == "broker_readonly"
        before = connections(redis)
    assert (await publish(runner, stream)).result is Result.SUCCEEDED
    assert connections(redis) == before + 3, "the one that ends the replication, ours, and the one that asks"


@asynccontextmanager
async def answering(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that answers whatever comes with the same bytes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Redis' protocol"),
        (b"+" + b"x" * 70_000, "a line of more than"),
        (b"$100000\r\n", "answered with 100000 bytes"),
        (b"$x\r\n", "invalid literal"),
        (b"+OK\r\n+OK\r\n", "what nobody had asked"),
    ],
)
async def test_a_server_that_is_no_redis_is_found_out(answer: bytes, said: str) -> None:
    async with answering(answer) as port, running(f"redis://127.0.0.1:{port}") as runner:
        outcome = await publish(runner, "orders")
        if outcome.result is Result.SUCCEEDED:  # the second answer is the one too many
            await eventually(lambda: not _is_open(runner), "the connection ended")
            return
        assert outcome.error_kind == "broker_lost"
        assert said in str(outcome.error)


def _is_open(runner: PublishRunner) -> bool:
    broker: Any = runner._brokers["default"]
    return bool(broker._connection.is_open)


# --- TLS


async def test_a_connection_with_tls_goes_by_the_certificates_that_are_named(tmp_path: Path) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(file)
    async with answering(b"$3\r\n1-1\r\n", tls) as port:
        address = f"rediss://127.0.0.1:{port}"
        async with running(address, PublishSettings(ca=str(file))) as runner:
            assert (await publish(runner, "orders")).output == "1-1"
        for settings in (PATIENT, PublishSettings(ca=str(tmp_path / "missing"))):
            async with running(address, settings) as runner:
                outcome = await publish(runner, "orders")
                assert outcome.error_kind == "tls"
                assert "CRONWELL_PUBLISH_CA" in str(outcome.error)
