"""One email attempt: what is handed over, how each answer of the server is judged, and that nothing outlasts its time."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell.config import SmtpSettings
from cronwell.model.alert_messages import Alert, as_mail
from cronwell.model.execution import Result
from cronwell.targets.email import EmailRunner, compose
from cronwell.targets.port import Outcome
from tests.support.smtp import MailServer, mail_server
from tests.targets.rig import LIMIT, SLOT, eventually, make_call, within

TLS = Path(__file__).parent / "tls"
TO = {"email": {"to": ["ops@example.com", "boss@example.com"]}}
PAYLOAD = {"subject": "[critical] näher: failed", "text": "It failed.\n.\n..dots\nÜber\n"}

Send = Callable[..., Any]


@pytest.fixture
async def server() -> AsyncIterator[MailServer]:
    async with mail_server() as made:
        yield made


@pytest.fixture
async def send(traces: Any) -> AsyncIterator[Send]:
    runners: list[EmailRunner] = []

    async def sent(port: int, *, seconds: float = 20.0, payload: Any = PAYLOAD, **settings: Any) -> Outcome:
        given = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "cron@example.com", **settings}
        runners.append(EmailRunner(SmtpSettings(**given), LIMIT))
        return await runners[-1].run(make_call(TO, payload=payload), within(seconds))

    yield sent
    for runner in runners:
        await runner.close()


async def test_a_message_is_handed_over_whole_and_known_by_its_execution(
    server: MailServer, send: Send
) -> None:
    assert await send(server.port) == Outcome(Result.SUCCEEDED, output="taken")
    [mail] = server.mails
    assert (mail.sender, mail.recipients) == ("cron@example.com", ["ops@example.com", "boss@example.com"])
    message = mail.message
    assert message["Subject"] == PAYLOAD["subject"]
    assert message.get_content().replace("\r\n", "\n") == PAYLOAD["text"]
    call = make_call(TO)
    assert message["Message-ID"] == f"<{call.execution_id}@example.com>"
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Date"].datetime == SLOT


async def test_a_sender_may_have_a_name(server: MailServer, send: Send) -> None:
    assert (await send(server.port, sender="Cronwell <cron@example.com>")).result is Result.SUCCEEDED
    [mail] = server.mails
    assert (mail.sender, mail.message["From"]) == ("cron@example.com", "Cronwell <cron@example.com>")
    assert mail.message["Message-ID"].endswith("@example.com>")


@pytest.mark.parametrize("kind", ["starttls", "implicit"])
async def test_it_speaks_tls_and_logs_in_with_a_password_from_a_file(
    kind: str, send: Send, tmp_path: Path
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "server.pem")
    (tmp_path / "password").write_text("p w\n")
    login = {"username": "cron", "password_file": str(tmp_path / "password"), "tls": kind}
    async with mail_server(tls=context, is_implicit=kind == "implicit", cron="p w") as server:
        outcome = await send(server.port, ca=str(TLS / "authority.pem"), **login)
        assert outcome == Outcome(Result.SUCCEEDED, output="taken")
        assert [(each.is_encrypted, each.username) for each in server.mails] == [(True, "cron")]
        stranger = await send(server.port, **login)
        assert (stranger.error_kind, stranger.is_retryable) == ("tls", True)
        unknown = await send(server.port, ca=str(TLS / "authority.pem"), **login | {"username": "cran"})
        assert (unknown.error_kind, "535" in (unknown.error or "")) == ("login", True)
        assert len(server.mails) == 1


async def test_a_server_that_offers_no_tls_gets_nothing_where_tls_is_wanted(
    server: MailServer, send: Send
) -> None:
    outcome = await send(server.port, tls="starttls", username="cron", password="secret")
    assert (outcome.error_kind, outcome.is_retryable) == ("smtp", True)
    assert "AUTH" not in server.verbs
    assert server.mails == []


@pytest.mark.parametrize(
    ("answers", "kind", "is_retryable"),
    [
        ({"RCPT": "550 no such user"}, "refused", False),
        ({"RCPT": "450 try later"}, "refused", True),
        ({"MAIL": "553 not you"}, "refused", False),
        ({".": "554 looks like spam"}, "refused", False),
        ({".": "451 busy"}, "refused", True),
        ({"DATA": None}, "smtp", True),
        ({".": None}, "smtp", True),
        ({"EHLO": None}, "smtp", True),
    ],
    ids=str,
)
async def test_what_the_server_refuses_for_good_is_not_tried_again(
    answers: dict[str, Any], kind: str, is_retryable: bool, server: MailServer, send: Send
) -> None:
    server.answers = answers
    outcome = await send(server.port)
    assert (outcome.result, outcome.error_kind, outcome.is_retryable) == (Result.FAILED, kind, is_retryable)


async def test_a_message_that_some_get_is_not_sent_to_them_again(server: MailServer, send: Send) -> None:
    server.answers["RCPT"] = lambda rest: "550 gone" if "boss" in rest else "250 ok"
    outcome = await send(server.port)
    assert outcome.result is Result.SUCCEEDED
    assert outcome.output == "the server refused some: boss@example.com: 550 gone"


async def test_a_farewell_that_goes_wrong_changes_nothing(server: MailServer, send: Send) -> None:
    server.answers["QUIT"] = None
    assert (await send(server.port)).result is Result.SUCCEEDED
    server.answers["QUIT"] = "500 stay"
    assert (await send(server.port)).result is Result.SUCCEEDED


async def test_a_server_that_says_nothing_is_left_at_the_deadline(server: MailServer, send: Send) -> None:
    server.answers["DATA"] = ""
    outcome = await send(server.port, seconds=0.3)
    assert (outcome.result, outcome.error_kind) == (Result.TIMED_OUT, "timeout")


async def test_a_cancelled_attempt_lets_go_of_the_server(server: MailServer, traces: Any) -> None:
    server.answers["MAIL"] = ""
    runner = EmailRunner(SmtpSettings(host="127.0.0.1", port=server.port, tls="none"), LIMIT)
    signals = within()
    running = asyncio.create_task(runner.run(make_call(TO, payload=PAYLOAD), signals))
    await eventually(lambda: "MAIL" in server.verbs, "the server was spoken to")
    signals.cancelled.set()
    assert (await running).result is Result.CANCELLED
    assert (await runner.run(make_call(TO, payload=PAYLOAD), signals)).result is Result.CANCELLED
    # Its thread comes back by itself, as its socket is shut.
    await eventually(lambda: runner.abandoned == 0, "the thread came back")
    await runner.close()


async def test_who_is_not_there_is_said_to_be(server: MailServer, send: Send) -> None:
    assert (await send(1)).error_kind == "connect"
    nobody = await send(server.port, host="")
    assert (nobody.is_retryable, "CRONWELL_SMTP_HOST" in (nobody.error or "")) == (True, True)


@pytest.mark.parametrize("payload", [None, {}, {"subject": "x"}, {"subject": 1, "text": "x"}, "text"])
async def test_a_payload_that_is_no_mail_is_refused(payload: Any, server: MailServer, send: Send) -> None:
    outcome = await send(server.port, payload=payload)
    assert (outcome.error_kind, outcome.is_retryable) == ("message", False)
    assert server.verbs == []


async def test_a_line_that_ends_in_a_subject_adds_no_header(server: MailServer, send: Send) -> None:
    outcome = await send(server.port, payload={"subject": "x\r\nBcc: all@example.com", "text": "x"})
    assert (outcome.error_kind, server.mails) == ("message", [])


@given(st.text(min_size=1))
def test_whatever_an_alert_says_is_one_subject(summary: str) -> None:
    alert = Alert("opened", None, "rule", "critical", summary, SLOT)
    call = dataclasses.replace(make_call(TO), payload=as_mail(alert))
    try:
        message = compose(call, "cron@example.com")
    except UnicodeEncodeError:
        # Half of a surrogate pair: the store keeps none.
        return
    head = bytes(message).partition(b"\r\n\r\n")[0]
    names = [line.partition(b":")[0] for line in head.split(b"\r\n") if not line.startswith((b" ", b"\t"))]
    assert sorted(names)[:3] == [b"Auto-Submitted", b"Content-Transfer-Encoding", b"Content-Type"]
    assert len(names) == 9
