"""One http attempt: what is sent, how each answer is judged, and that nothing outlasts its time."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from cronwell import __version__
from cronwell.config import HttpSettings
from cronwell.model.execution import Result
from cronwell.runtime.clock import Clock, ManualClock, SystemClock
from cronwell.targets import signing
from cronwell.targets.dns import SystemResolver
from cronwell.targets.egress import Egress
from cronwell.targets.http import HttpRunner, read_retry_after
from cronwell.targets.port import Outcome
from tests.targets.rig import (
    LIMIT,
    SECRET,
    Receiver,
    answering,
    drip,
    eventually,
    make_call,
    never_answer,
    sending,
    within,
)

Open = Callable[..., HttpRunner]
# A certificate for 127.0.0.1 of an authority that nobody else trusts, and its key; both for tests only.
TLS = Path(__file__).parent / "tls"
SYSTEM = SystemClock()
SETTINGS = HttpSettings(connect_timeout=timedelta(seconds=2), response_limit=100_000)


@pytest.fixture
async def open_runner(traces: Any) -> AsyncIterator[Open]:
    runners: list[HttpRunner] = []

    def opened(settings: HttpSettings = SETTINGS, clock: Clock = SYSTEM, **more: Any) -> HttpRunner:
        runners.append(HttpRunner(settings, Egress(["127.0.0.0/8"]), clock, LIMIT, **more))
        return runners[-1]

    yield opened
    for runner in runners:
        await runner.close()


@pytest.fixture
def runner(open_runner: Open) -> HttpRunner:
    return open_runner()


@pytest.fixture
def deliver(runner: HttpRunner, receiver: Receiver) -> Callable[..., Awaitable[Outcome]]:
    async def run(**more: Any) -> Outcome:
        return await runner.run(make_call(receiver.target(), **more), within())

    return run


Deliver = Callable[..., Awaitable[Outcome]]


async def test_a_delivery_carries_what_the_design_says(receiver: Receiver, deliver: Deliver) -> None:
    outcome = await deliver(payload={"range": "yesterday"}, attempt=2, fence=41)
    assert outcome == Outcome(Result.SUCCEEDED, output="done")
    (request,) = receiver.requests
    execution = "0190b5c0000070008000000000000001-s-20270301T093000Z"
    assert (request.method, request.path) == ("POST", "/run")
    assert orjson.loads(request.body) == {
        "job": "daily/invoices",
        "execution": execution,
        "slot": "2027-03-01T09:30:00Z",
        "attempt": 2,
        "payload": {"range": "yesterday"},
    }
    headers = request.headers
    assert headers["webhook-id"] == headers["idempotency-key"] == execution
    assert headers["cronwell-job"] == "daily/invoices"
    assert headers["cronwell-slot"] == "2027-03-01T09:30:00Z"
    assert headers["cronwell-attempt"] == "2"
    assert headers["cronwell-fence"] == "41"
    assert headers["content-type"] == "application/json"
    assert headers["user-agent"] == f"cronwell/{__version__}"
    assert headers["accept-encoding"] == "identity"
    assert headers["host"] == f"127.0.0.1:{receiver.port}"
    assert abs(int(headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 5


async def test_a_delivery_is_dated_and_signed_by_the_given_clock_and_not_by_the_machines(
    receiver: Receiver, open_runner: Open
) -> None:
    runner = open_runner(clock=ManualClock(datetime(2031, 5, 6, 7, 8, 9, 999_999, tzinfo=UTC)))
    await runner.run(make_call(receiver.target()), within())
    (request,) = receiver.requests
    sent_at = int(datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC).timestamp())
    assert request.headers["webhook-timestamp"] == str(sent_at)
    execution = request.headers["webhook-id"]
    assert request.headers["webhook-signature"] == signing.sign(SECRET, execution, sent_at, request.body)


async def test_a_retry_after_date_in_an_undated_answer_counts_from_the_given_clock(
    receiver: Receiver, open_runner: Open
) -> None:
    receiver.answer = answering("503 Busy", Retry_After="Tue, 06 May 2031 07:08:49 GMT")
    runner = open_runner(clock=ManualClock(datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)))
    outcome = await runner.run(make_call(receiver.target()), within())
    assert outcome.retry_after == timedelta(seconds=40)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "GET", "DELETE"])
async def test_the_official_library_verifies_every_method(
    runner: HttpRunner, receiver: Receiver, method: str
) -> None:
    outcome = await runner.run(make_call(receiver.target(method=method), payload=[1, "é", None]), within())
    assert outcome.result is Result.SUCCEEDED
    (request,) = receiver.requests
    assert request.method == method
    webhook = Webhook(SECRET)
    if method in ("GET", "DELETE"):
        assert request.body == b""
        assert "content-type" not in request.headers
        at = datetime.fromtimestamp(int(request.headers["webhook-timestamp"]), UTC)
        signature = webhook.sign(request.headers["webhook-id"], at, "")
        assert request.headers["webhook-signature"] == signature
    else:
        assert webhook.verify(request.body, request.headers)["payload"] == [1, "é", None]


async def test_attempts_of_one_execution_share_id_and_trace_but_not_span(
    receiver: Receiver, deliver: Deliver
) -> None:
    await deliver(attempt=1)
    await deliver(attempt=2)
    await deliver(attempt=1, slot=datetime(2027, 3, 2, tzinfo=UTC))
    first, second, other = (request.headers for request in receiver.requests)
    assert first["webhook-id"] == second["webhook-id"] != other["webhook-id"]
    traces = [
        re.fullmatch(r"00-([0-9a-f]{32})-([0-9a-f]{16})-01", h["traceparent"]) for h in (first, second, other)
    ]
    (t1, s1), (t2, s2), (t3, s3) = (match.groups() for match in traces if match)
    assert t1 == t2 != t3
    assert len({s1, s2, s3}) == 3


async def test_the_users_headers_are_sent_and_win_over_our_defaults(
    runner: HttpRunner, receiver: Receiver
) -> None:
    mine = {"X-Team": "billing", "content-type": "application/vnd.x+json", "User-Agent": "mine"}
    await runner.run(make_call(receiver.target(headers=mine)), within())
    headers = receiver.requests[0].headers
    assert headers["x-team"] == "billing"
    assert headers["content-type"] == "application/vnd.x+json"
    assert headers["user-agent"] == "mine"


async def test_a_url_goes_out_as_it_was_written(runner: HttpRunner, receiver: Receiver) -> None:
    path = "/a%2Fb/%7Ec;d?sig=a%2Bb%3D%3A:%20+&x"
    await runner.run(make_call(receiver.target(path=path + "#part")), within())
    assert receiver.requests[0].path == path


async def test_a_payload_that_orjson_refuses_is_still_sent(receiver: Receiver, deliver: Deliver) -> None:
    assert (await deliver(payload={"big": 2**70})).result is Result.SUCCEEDED
    assert b'"big":1180591620717411303424' in receiver.requests[0].body


async def test_a_name_beyond_ascii_is_percent_encoded(receiver: Receiver, deliver: Deliver) -> None:
    await deliver(job_name="räume\r\nX: 1")
    assert receiver.requests[0].headers["cronwell-job"] == "r%C3%A4ume%0D%0AX%3A%201"


@pytest.mark.parametrize("status", ["200 OK", "201 Created", "202 Accepted", "204 No Content", "299 Odd"])
async def test_2xx_is_success(receiver: Receiver, deliver: Deliver, status: str) -> None:
    receiver.answer = answering(status)
    assert await deliver() == Outcome(Result.SUCCEEDED)


@pytest.mark.parametrize("status", ["400 Bad Request", "404 Not Found", "500 Oops", "503 Busy", "599 Odd"])
async def test_another_status_fails_and_may_be_retried(
    receiver: Receiver, deliver: Deliver, status: str
) -> None:
    receiver.answer = answering(status, b"the disk is full")
    outcome = await deliver()
    assert (outcome.result, outcome.error_kind, outcome.is_retryable) == (Result.FAILED, "http_status", True)
    assert outcome.error == f"answered {status}: the disk is full"
    assert outcome.output == "the disk is full"
    assert outcome.retry_after is None
    assert not outcome.pauses_job


async def test_gone_pauses_the_job_and_is_not_retried(receiver: Receiver, deliver: Deliver) -> None:
    receiver.answer = answering("410 Gone")
    outcome = await deliver()
    assert (outcome.result, outcome.error_kind) == (Result.FAILED, "gone")
    assert outcome.pauses_job
    assert not outcome.is_retryable


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See", "307 Temporary", "308 Permanent"])
async def test_a_redirect_fails_is_not_followed_and_says_where_it_pointed(
    receiver: Receiver, deliver: Deliver, status: str
) -> None:
    receiver.answer = answering(status, Location=receiver.url(path="/elsewhere"))
    outcome = await deliver()
    assert (outcome.result, outcome.error_kind) == (Result.FAILED, "redirect")
    assert receiver.url(path="/elsewhere") in str(outcome.error)
    assert len(receiver.requests) == 1


async def test_a_redirect_to_nowhere_fails_too(receiver: Receiver, deliver: Deliver) -> None:
    receiver.answer = answering("304 Not Modified")
    outcome = await deliver()
    assert outcome.error_kind == "redirect"
    assert "without saying where to" in str(outcome.error)


@pytest.mark.parametrize("status", ["429 Slow", "503 Busy"])
async def test_retry_after_in_seconds_is_honoured(receiver: Receiver, deliver: Deliver, status: str) -> None:
    receiver.answer = answering(status, Retry_After="120")
    assert (await deliver()).retry_after == timedelta(minutes=2)


async def test_retry_after_as_a_date_counts_from_the_receivers_own_clock(
    receiver: Receiver, deliver: Deliver
) -> None:
    theirs = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    receiver.answer = answering(
        "503 Busy",
        Date=format_datetime(theirs, usegmt=True),
        Retry_After=format_datetime(theirs + timedelta(seconds=90), usegmt=True),
    )
    assert (await deliver()).retry_after == timedelta(seconds=90)


@pytest.mark.parametrize("wish", ["999999", "9" * 5000, "Fri, 31 Dec 9999 23:59:59 GMT"])
async def test_retry_after_is_capped(receiver: Receiver, deliver: Deliver, wish: str) -> None:
    receiver.answer = answering("429 Slow", Retry_After=wish)
    assert (await deliver()).retry_after == SETTINGS.retry_after_cap


async def test_retry_after_of_other_statuses_is_not_ours_to_read(
    receiver: Receiver, deliver: Deliver
) -> None:
    receiver.answer = answering("500 Oops", Retry_After="5")
    assert (await deliver()).retry_after is None


@pytest.mark.parametrize(
    "text",
    [
        "Wed, 06 May 2026 07:00:30 GMT",
        "Wednesday, 06-May-26 07:00:30 GMT",
        "Wed May  6 07:00:30 2026",
        "30",
        " 30 ",
    ],
)
def test_every_form_of_retry_after_is_read(text: str) -> None:
    at = datetime(2026, 5, 6, 7, 0, tzinfo=UTC)
    assert read_retry_after(text.strip(), sent_at=at) == timedelta(seconds=30)


@given(st.text() | st.sampled_from(["0", "-1", "1.5", "", "soon", "Wed, 06 May 1026 07:00:30 GMT", "٣"]))
def test_whatever_retry_after_says_it_is_a_wait_or_nothing(text: str) -> None:
    wait = read_retry_after(text, sent_at=datetime.now(UTC))
    assert wait is None or wait > timedelta()


async def test_a_long_answer_is_kept_up_to_the_limit_and_marked(receiver: Receiver, deliver: Deliver) -> None:
    receiver.answer = answering("200 OK", b"x" * (LIMIT + 1))
    assert await deliver() == Outcome(Result.SUCCEEDED, output="x" * LIMIT, output_truncated=True)
    receiver.answer = answering("200 OK", b"x" * LIMIT)
    assert await deliver() == Outcome(Result.SUCCEEDED, output="x" * LIMIT)
    assert receiver.connections == 1


async def test_an_endless_answer_is_cut_off_at_the_response_limit_and_stays_a_success(
    receiver: Receiver, deliver: Deliver
) -> None:
    sent = 0

    async def endless(_: Any, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.transport.is_closing():
            writer.write(b"2710\r\n" + b"y" * 10_000 + b"\r\n")
            sent += 10_000
            await writer.drain()

    receiver.answer = endless
    assert await deliver() == Outcome(Result.SUCCEEDED, output="y" * LIMIT, output_truncated=True)
    await eventually(lambda: receiver.open_connections == 0, "the connection was dropped")


async def test_bytes_that_cannot_be_stored_are_replaced(receiver: Receiver, deliver: Deliver) -> None:
    receiver.answer = answering("200 OK", b"a\0b\xffc")
    assert (await deliver()).output == "ab�c"


async def test_a_packed_answer_is_not_unpacked(receiver: Receiver, deliver: Deliver) -> None:
    bomb = gzip.compress(b"0" * 10_000_000)
    receiver.answer = answering("200 OK", bomb, Content_Encoding="gzip")
    outcome = await deliver()
    assert outcome.result is Result.SUCCEEDED
    assert "0000" not in str(outcome.output)


async def test_connections_are_reused(receiver: Receiver, deliver: Deliver) -> None:
    for _ in range(5):
        await deliver()
    assert len(receiver.requests) == 5
    assert receiver.connections == 1


async def test_one_host_is_called_no_more_often_at_once_than_allowed(
    open_runner: Open, receiver: Receiver
) -> None:
    runner = open_runner(replace(SETTINGS, per_host=3))
    outcomes = await asyncio.gather(*(runner.run(make_call(receiver.target()), within()) for _ in range(20)))
    assert {outcome.result for outcome in outcomes} == {Result.SUCCEEDED}
    assert receiver.most_open <= 3


async def test_a_host_that_hangs_does_not_hold_up_another(open_runner: Open, receiver: Receiver) -> None:
    runner = open_runner(replace(SETTINGS, per_host=2))
    async with Receiver(answer=never_answer) as dead:
        stuck = [asyncio.create_task(runner.run(make_call(dead.target()), within())) for _ in range(10)]
        await eventually(lambda: len(dead.requests) == 2, "the dead host was called")
        outcome = await runner.run(make_call(receiver.target()), within(5))
        assert outcome.result is Result.SUCCEEDED
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)


async def test_cookies_of_one_job_do_not_reach_another(runner: HttpRunner, receiver: Receiver) -> None:
    receiver.answer = answering("200 OK", Set_Cookie="session=mine; Path=/")
    for _ in range(2):
        await runner.run(make_call(receiver.target("localhost")), within())
    assert len(receiver.requests) == 2
    assert "cookie" not in receiver.requests[1].headers


async def test_a_proxy_in_the_environment_is_not_used(
    receiver: Receiver, deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Receiver() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url(path=""))
        monkeypatch.setenv("HTTP_PROXY", proxy.url(path=""))
        assert (await deliver()).result is Result.SUCCEEDED
        assert proxy.connections == 0


@pytest.mark.parametrize("method", ["POST", "PUT", "GET", "DELETE"])
async def test_a_request_that_was_cut_off_is_not_sent_again_in_the_same_attempt(
    runner: HttpRunner, receiver: Receiver, method: str
) -> None:
    await runner.run(make_call(receiver.target(method=method)), within())
    receiver.answer = sending(b"")
    outcome = await runner.run(make_call(receiver.target(method=method)), within())
    assert (outcome.result, outcome.error_kind, outcome.is_retryable) == (Result.FAILED, "disconnected", True)
    assert len(receiver.requests) == 2


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "protocol"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "protocol"),
        (b"HTTP/1.1 2", "disconnected"),
    ],
)
async def test_an_answer_that_is_not_http_fails(
    receiver: Receiver, deliver: Deliver, raw: bytes, kind: str
) -> None:
    receiver.answer = sending(raw)
    outcome = await deliver()
    assert (outcome.result, outcome.error_kind) == (Result.FAILED, kind), outcome
    assert f"127.0.0.1:{receiver.port}" in str(outcome.error)


async def test_a_closed_port_is_a_connect_error(receiver: Receiver, runner: HttpRunner) -> None:
    async with Receiver() as gone:
        target = gone.target()
    outcome = await runner.run(make_call(target), within())
    assert (outcome.result, outcome.error_kind, outcome.is_retryable) == (Result.FAILED, "connect", True)
    assert "cannot connect to 127.0.0.1" in str(outcome.error)


async def test_a_name_that_cannot_be_resolved_is_a_dns_error(open_runner: Open) -> None:
    class Unreachable(SystemResolver):
        async def resolve(self, *_: Any, **__: Any) -> Any:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    runner = open_runner(resolver=Unreachable())
    outcome = await runner.run(make_call({"http": {"url": "http://nowhere.example/"}}), within())
    assert (outcome.result, outcome.error_kind, outcome.is_retryable) == (Result.FAILED, "dns", True)
    assert outcome.error == "nowhere.example:80 has no address: Temporary failure in name resolution"


async def test_a_name_that_cannot_be_one_is_a_dns_error(runner: HttpRunner) -> None:
    outcome = await runner.run(
        make_call({"http": {"url": f"http://{'.'.join(5 * ['a' * 60])}.example/"}}), within()
    )
    assert (outcome.result, outcome.error_kind) == (Result.FAILED, "dns")


async def test_a_server_that_speaks_no_tls_is_a_tls_error(runner: HttpRunner) -> None:
    async def answer_in_plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # All of the greeting: what is left unread makes a close a reset, which may overtake the answer.
        await reader.read(65_536)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer_in_plain, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        outcome = await runner.run(make_call({"http": {"url": url}}), within())
    assert (outcome.result, outcome.error_kind, outcome.is_retryable) == (Result.FAILED, "tls", True)


async def test_a_server_that_never_shakes_hands_is_a_connect_error(
    open_runner: Open, receiver: Receiver
) -> None:
    runner = open_runner(replace(SETTINGS, connect_timeout=timedelta(milliseconds=100)))
    url = receiver.url().replace("http://", "https://")
    outcome = await runner.run(make_call({"http": {"url": url}}), within())
    assert (outcome.result, outcome.error_kind, outcome.is_retryable) == (Result.FAILED, "connect", True)
    assert "did not accept a connection within 100ms" in str(outcome.error)


async def test_a_certificate_is_checked(open_runner: Open) -> None:
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(TLS / "server.pem")
    trusted = ssl.create_default_context(cafile=TLS / "authority.pem")
    async with Receiver(tls=served) as receiver:
        outcome = await open_runner(tls=trusted).run(make_call(receiver.target()), within())
        assert outcome.result is Result.SUCCEEDED
        outcome = await open_runner().run(make_call(receiver.target()), within())
        assert (outcome.result, outcome.error_kind) == (Result.FAILED, "tls")
        assert "not trusted" in str(outcome.error)
        assert len(receiver.requests) == 1


@pytest.mark.parametrize("answer", [never_answer, drip])
async def test_the_deadline_covers_the_whole_answer(
    runner: HttpRunner, receiver: Receiver, answer: Any
) -> None:
    receiver.answer = answer
    call = make_call(receiver.target(), timeout=timedelta(milliseconds=200))
    outcome = await asyncio.wait_for(runner.run(call, within(0.2)), 5)
    assert outcome.result is Result.TIMED_OUT
    assert outcome.error == "did not finish within its timeout of 200ms"
    await eventually(lambda: receiver.open_connections == 0, "the connection was dropped")


async def test_the_deadline_covers_the_wait_for_a_connection(open_runner: Open, receiver: Receiver) -> None:
    receiver.answer = never_answer
    runner = open_runner(replace(SETTINGS, per_host=1))
    first = asyncio.create_task(runner.run(make_call(receiver.target()), within()))
    await receiver.arrived.wait()
    outcome = await runner.run(make_call(receiver.target()), within(0.1))
    assert outcome.result is Result.TIMED_OUT
    assert len(receiver.requests) == 1
    first.cancel()
    await asyncio.wait({first})


async def test_an_attempt_without_time_left_sends_nothing(runner: HttpRunner, receiver: Receiver) -> None:
    outcome = await runner.run(make_call(receiver.target()), within(-1))
    assert outcome.result is Result.TIMED_OUT
    assert receiver.connections == 0


async def test_a_secret_that_is_not_one_fails_the_attempt_and_is_not_shown(
    runner: HttpRunner, receiver: Receiver
) -> None:
    outcome = await runner.run(make_call(receiver.target(), secret="whsec_ nearly"), within())
    assert (outcome.result, outcome.error_kind) == (Result.FAILED, "internal")
    assert "nearly" not in str(outcome.error)
    assert receiver.connections == 0
