"""Hand mail to an SMTP server.

The id of a message is a function of its execution, so that whoever gets it twice (the server's answer was lost, or the worker
died before it was written down) can tell. The standard library's client blocks, so it works on a thread, whose socket is shut
when the attempt must stop.
"""

from __future__ import annotations

import asyncio
import smtplib
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from pathlib import Path

from cronwell.config import SmtpSettings
from cronwell.model.execution import Result
from cronwell.targets import stopping
from cronwell.targets.output import clip
from cronwell.targets.port import Call, Outcome, Signals
from cronwell.targets.threads import ThreadPool, Ticket

THREADS = 4
LONGEST_WAIT = 20.0
"""Seconds that one answer of the server may take."""
AFTERWARDS = 1.0
"""Seconds after which a thread that nobody could cut off, as it was still connecting, comes back by itself."""
_LONGEST_ERROR = 4000

Refused = dict[str, tuple[int, bytes]]
"""Recipients that the server refused, with what it said."""


@dataclass(slots=True)
class _Line:
    """A connection that another thread may cut."""

    client: smtplib.SMTP | None = None

    def cut(self) -> None:
        connected = getattr(self.client, "sock", None)
        if connected is not None:
            # Whoever reads from it or writes to it is woken by this, which closing alone does not do.
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)


class EmailRunner:
    """Carry out email attempts."""

    def __init__(self, settings: SmtpSettings, output_limit: int) -> None:
        self._settings = settings
        self._output_limit = output_limit
        self._threads = ThreadPool(THREADS, "mail")

    async def run(self, call: Call, signals: Signals) -> Outcome:
        """Hand over one message and say how that ended."""
        if (stopped := stopping.stopped_before_start(call, signals)) is not None:
            return stopped
        if not self._settings.host:
            return _failed("smtp", "this worker knows no mail server; set smtp.host (CRONWELL_SMTP_HOST)")
        try:
            message = compose(call, self._settings.sender or f"cronwell@{socket.gethostname()}")
        except (ValueError, TypeError, LookupError) as error:
            return _failed("message", f"this cannot be sent as mail: {error}", is_retryable=False)
        line = _Line()
        # Later than the deadline: at the same moment, now and then the server would be blamed for what was too short a time.
        timeout = min(stopping.remaining(signals) + AFTERWARDS, LONGEST_WAIT)
        ticket = self._threads.submit(lambda: self._send(message, line, timeout))
        try:
            reason = await stopping.ended_or_stopped(ticket.future, signals)
        except asyncio.CancelledError:
            self._stop(line, ticket)
            raise
        if reason is not None:
            self._stop(line, ticket)
            return stopping.stopped_outcome(reason, call)
        try:
            output, is_cut = clip(ticket.future.result(), self._output_limit)
            return Outcome(Result.SUCCEEDED, output=output or None, output_truncated=is_cut)
        except Exception as error:  # noqa: BLE001  the port promises an outcome for whatever a client raises
            return _describe(error)

    @property
    def abandoned(self) -> int:
        """Threads that were given up on and have not come back yet."""
        return self._threads.abandoned

    async def close(self) -> None:
        """End the threads."""
        await self._threads.close()

    def _stop(self, line: _Line, ticket: Ticket[str]) -> None:
        line.cut()
        self._threads.give_up(ticket)

    def _send(self, message: EmailMessage, line: _Line, timeout: float) -> str:
        """Hand a message over, on a thread; what the server said to it comes back."""
        settings = self._settings
        tls = None if settings.tls == "none" else ssl.create_default_context(cafile=settings.ca or None)
        where = (settings.host, settings.port)
        if settings.tls == "implicit":
            client: smtplib.SMTP = smtplib.SMTP_SSL(*where, timeout=timeout, context=tls)
        else:
            client = smtplib.SMTP(*where, timeout=timeout)
        line.client = client
        try:
            if settings.tls == "starttls":
                client.starttls(context=tls)
            if settings.username:
                client.login(settings.username, self._password())
            said = _hand_over(client, message)
            # Once it is taken, nothing that goes wrong with the farewell may have it sent again.
            with suppress(smtplib.SMTPException, OSError):
                client.quit()
            return said
        finally:
            client.close()

    def _password(self) -> str:
        if self._settings.password_file:
            return Path(self._settings.password_file).read_text(encoding="utf-8").strip()
        return self._settings.password


def compose(call: Call, sender: str) -> EmailMessage:
    """The message of an attempt; raises where its payload is not one, or a header would hold more than one line."""
    target = call.target.email
    assert target is not None
    subject, text = call.payload["subject"], call.payload["text"]
    if not isinstance(subject, str) or not isinstance(text, str):
        raise TypeError("subject and text are not both text")
    # Long enough for its id: a folded one is not known again by everybody.
    message = EmailMessage(policy=SMTP.clone(max_line_length=300))
    message["From"] = sender
    message["To"] = ", ".join(target.to)
    message["Subject"] = subject
    message["Date"] = format_datetime(call.slot)
    message["Message-ID"] = f"<{call.execution_id}@{parseaddr(sender)[1].rpartition('@')[2]}>"
    # Keeps those who are away from answering.
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text, cte="quoted-printable")
    return message


def _hand_over(client: smtplib.SMTP, message: EmailMessage) -> str:
    """Give a message to a server. What the server says then, which mostly names it, is not told by `send_message`."""
    client.ehlo_or_helo_if_needed()
    code, said = client.mail(message["From"])
    if code != 250:
        raise smtplib.SMTPSenderRefused(code, said, message["From"])
    refused: Refused = {}
    recipients = message["To"].split(", ")
    for address in recipients:
        code, said = client.rcpt(address)
        if code not in (250, 251):
            refused[address] = (code, said)
    if len(refused) == len(recipients):
        raise smtplib.SMTPRecipientsRefused(refused)
    code, said = client.data(bytes(message))
    if code != 250:
        raise smtplib.SMTPDataError(code, said)
    # The others have it: trying again would send it to them a second time.
    return f"the server refused some: {_told(refused)}" if refused else _text(said)


def _describe(error: Exception) -> Outcome:
    match error:
        case smtplib.SMTPRecipientsRefused():
            is_final = all(code >= 500 for code, _ in error.recipients.values())
            return _failed(
                "refused", f"the server refused all: {_told(error.recipients)}", is_retryable=not is_final
            )
        case smtplib.SMTPSenderRefused() | smtplib.SMTPDataError():
            said = _text(error.smtp_error)
            return _failed(
                "refused",
                f"the server refused it: {error.smtp_code} {said}",
                is_retryable=error.smtp_code < 500,
            )
        case smtplib.SMTPAuthenticationError():
            said = _text(error.smtp_error)
            return _failed("login", f"the server does not let smtp.username in: {error.smtp_code} {said}")
        case smtplib.SMTPResponseException():
            return _failed("smtp", f"the server answered {error.smtp_code} {_text(error.smtp_error)}")
        case smtplib.SMTPException():
            return _failed("smtp", f"the mail server: {error}")
        case ssl.SSLError():
            return _failed("tls", f"the mail server's TLS: {error}")
        case OSError():
            return _failed("connect", f"the mail server cannot be reached: {error.strerror or error}")
        case _:
            return _failed("internal", f"{type(error).__name__}: {error}")


def _told(refused: Refused) -> str:
    return "; ".join(f"{address}: {code} {_text(said)}" for address, (code, said) in refused.items())


def _text(said: bytes | str) -> str:
    return said if isinstance(said, str) else said.decode("utf-8", "replace")


def _failed(kind: str, error: str, *, is_retryable: bool = True) -> Outcome:
    return Outcome(
        Result.FAILED, error=clip(error, _LONGEST_ERROR)[0], error_kind=kind, is_retryable=is_retryable
    )
