"""A mail server that keeps what it is given, and refuses, hangs or hangs up where it is told to."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage


@dataclass(frozen=True, slots=True)
class Mail:
    """A message, as it was handed over."""

    sender: str
    recipients: list[str]
    content: bytes
    is_encrypted: bool
    username: str | None

    @property
    def message(self) -> EmailMessage:
        parsed = message_from_bytes(self.content, policy=policy.default)
        assert isinstance(parsed, EmailMessage)
        return parsed


@dataclass(slots=True)
class MailServer:
    """Speaks SMTP on a port of the loopback. `answers` replaces what is answered to a verb; None hangs up, "" says nothing."""

    port: int = 0
    tls: ssl.SSLContext | None = None
    users: dict[str, str] = field(default_factory=dict)
    answers: dict[str, Callable[[str], str | None] | str | None] = field(default_factory=dict)
    mails: list[Mail] = field(default_factory=list)
    verbs: list[str] = field(default_factory=list)
    open_connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            await _Conversation(self, reader, writer).hold()
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()
        self.open_connections -= 1


class _Conversation:
    def __init__(
        self, server: MailServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._is_encrypted = writer.get_extra_info("ssl_object") is not None
        self._username: str | None = None
        self._sender = ""
        self._recipients: list[str] = []

    async def hold(self) -> None:
        await self._say("220 test")
        while line := (await self._reader.readline()).decode().rstrip("\r\n"):
            verb, _, rest = line.partition(" ")
            verb = verb.upper()
            self._server.verbs.append(verb)
            if verb in self._server.answers:
                answer = self._server.answers[verb]
                told = answer(rest) if callable(answer) else answer
                if told is None:
                    return
                if told:
                    await self._say(told)
                    if told.startswith(("4", "5")):
                        continue
                else:
                    await self._reader.read()
                    return
            elif not await self._obey(verb, rest):
                return

    async def _obey(self, verb: str, rest: str) -> bool:
        if verb == "EHLO":
            offers = ["test"]
            if self._server.tls is not None and not self._is_encrypted:
                offers.append("STARTTLS")
            if self._server.users:
                offers.append("AUTH PLAIN")
            for offer in offers[:-1]:
                await self._say(f"250-{offer}")
            await self._say(f"250 {offers[-1]}")
        elif verb == "STARTTLS":
            assert self._server.tls is not None
            await self._say("220 go ahead")
            await self._writer.start_tls(self._server.tls)
            self._is_encrypted = True
        elif verb == "AUTH":
            _, username, password = base64.b64decode(rest.partition(" ")[2]).decode().split("\0")
            is_known = self._server.users.get(username) == password
            self._username = username if is_known else None
            await self._say("235 welcome" if is_known else "535 who are you?")
        elif verb == "MAIL":
            self._sender, self._recipients = _address(rest), []
            await self._say("250 ok")
        elif verb == "RCPT":
            self._recipients.append(_address(rest))
            await self._say("250 ok")
        elif verb == "DATA":
            await self._say("354 go on")
            content = (await self._reader.readuntil(b"\r\n.\r\n")).removesuffix(b".\r\n")
            return await self._take(content.replace(b"\r\n..", b"\r\n."))
        elif verb == "QUIT":
            await self._say("221 bye")
            return False
        else:
            await self._say("250 ok")
        return True

    async def _take(self, content: bytes) -> bool:
        mail = Mail(self._sender, self._recipients, content, self._is_encrypted, self._username)
        self._server.mails.append(mail)
        answer = self._server.answers.get(".", "250 taken")
        told = answer("") if callable(answer) else answer
        if told is None:
            return False
        await self._say(told)
        return True

    async def _say(self, line: str) -> None:
        self._writer.write(f"{line}\r\n".encode())
        await self._writer.drain()


def _address(rest: str) -> str:
    return rest.partition("<")[2].partition(">")[0]


@asynccontextmanager
async def mail_server(
    *, tls: ssl.SSLContext | None = None, is_implicit: bool = False, **users: str
) -> AsyncIterator[MailServer]:
    """A server on a free port."""
    made = MailServer(tls=tls, users=users)
    serving = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls if is_implicit else None)
    made.port = serving.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        serving.close()
