"""etcd's version 3 API as JSON over HTTP, the way that etcd itself serves it to whoever speaks no gRPC.

A request goes to the server that answered last and, where that one cannot be reached or has no leader, to the next, all
within one time limit. Whatever is sent twice in that way is written so that the second time changes nothing.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from cronwell import addresses, errors
from cronwell.addresses import Servers
from cronwell.config import ETCD_PORT, ETCD_SCHEMES, EtcdSettings

Json = Mapping[str, Any]

# Codes of gRPC, by which etcd says what went wrong.
_INVALID, _NOT_FOUND, _DENIED, _UNAVAILABLE, _UNAUTHENTICATED = 3, 5, 7, 14, 16
# What etcd says when a token (or its absence) no longer fits: after a restart, or a change of users.
_STALE_TOKEN = ("invalid auth token", "revision of auth store is old", "user name is empty")
_LONGEST_LINE = 2**22
# A password costs etcd a tenth of a second of a core: one that was refused is not tried at each beat.
_REFUSED_PAUSE = 5.0


class LeaseNotFound(errors.CoordinationUnavailable):
    """etcd does not know the lease (any more). Stays inside the adapter where it can be mended."""


class _LoginRefused(errors.CoordinationUnavailable):
    """Wrong user or password."""


class _Elsewhere(Exception):
    """This server cannot answer; another may."""


class Gateway:
    """Speaks to the servers of one etcd cluster. Every failure is errors.CoordinationUnavailable."""

    def __init__(self, address: str, settings: EtcdSettings) -> None:
        servers = addresses.parse(address, schemes=ETCD_SCHEMES, port=ETCD_PORT)
        self._tls = _tls(servers, settings)
        scheme = "http" if self._tls is None else "https"
        self._urls = [f"{scheme}://{host}:{port}" for host, port in servers.hosts]
        self._settings = settings
        self._user = settings.user or servers.user
        self._password = settings.password or servers.password
        self._token: str | None = None
        self._authenticating: asyncio.Task[str] | None = None
        self._refused: errors.CoordinationUnavailable | None = None
        self._refused_deadline = 0.0
        self._session: aiohttp.ClientSession | None = None

    async def call(self, path: str, body: Json) -> Json:
        """Send one request and return its answer."""
        async with self._deadline():
            try:
                return await self._anywhere(path, body, await self._authorization())
            except _StaleToken:
                self._token = None
            try:
                return await self._anywhere(path, body, await self._authorization())
            except _StaleToken as error:
                raise self._unavailable(str(error)) from None

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, body: Json, *, silence: timedelta
    ) -> AsyncIterator[AsyncIterator[Json]]:
        """Send one request and return its answers as they come; the block ends the stream.

        The answers end quietly where none came for as long as `silence`.
        """
        async with contextlib.AsyncExitStack() as stack:
            async with self._deadline():
                url, headers = self._urls[0], await self._authorization()
                try:
                    response = await stack.enter_async_context(
                        self._open().post(
                            url + path,
                            data=orjson.dumps(body),
                            # A server that is cut off from the others ends the stream instead of staying silent.
                            headers={**headers, "Grpc-Metadata-Hasleader": "true"},
                            timeout=aiohttp.ClientTimeout(sock_read=silence.total_seconds()),
                            server_hostname=self._settings.server_name or None,
                        )
                    )
                    stack.callback(_hang_up, response)
                    if response.status != 200:
                        self._judge(url, response.status, await response.read())
                except (aiohttp.ClientError, OSError, _Elsewhere) as error:
                    self._next(url)
                    raise self._unavailable(_words(url, error)) from error
                except _StaleToken as error:
                    self._token = None
                    raise self._unavailable(str(error)) from None
            yield self._lines(url, response)

    async def close(self) -> None:
        """Close every connection."""
        if self._authenticating is not None:
            self._authenticating.cancel()
            await asyncio.wait({self._authenticating})
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _lines(self, url: str, response: aiohttp.ClientResponse) -> AsyncIterator[Json]:
        try:
            while line := await response.content.readline():
                answer = orjson.loads(line)
                if "error" in answer:
                    told = answer["error"]
                    self._next(url)
                    raise self._unavailable(f"{url}: {told.get('message', told)}")
                yield answer["result"]
        except TimeoutError:
            return
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._next(url)
            raise self._unavailable(_words(url, error)) from error

    async def _anywhere(self, path: str, body: Json, headers: Mapping[str, str]) -> Json:
        failures = []
        # Each server gets its part of the time: one that is silent must not use up the others'.
        limit = aiohttp.ClientTimeout(self._settings.timeout.total_seconds() / len(self._urls))
        for url in list(self._urls):
            try:
                async with self._open().post(
                    url + path,
                    data=orjson.dumps(body),
                    headers=headers,
                    timeout=limit,
                    server_hostname=self._settings.server_name or None,
                ) as response:
                    return self._judge(url, response.status, await response.read())
            except (aiohttp.ClientError, OSError, _Elsewhere) as error:
                self._next(url)
                failures.append(_words(url, error))
        raise self._unavailable("; ".join(failures))

    def _judge(self, url: str, status: int, content: bytes) -> Json:
        """The answer, or what is wrong, in words that tell an operator what to do."""
        try:
            answer: Json = orjson.loads(content)
        except orjson.JSONDecodeError:
            if status == 404:
                raise _Elsewhere(
                    "it serves no JSON gateway: start etcd without --enable-grpc-gateway=false"
                ) from None
            raise _Elsewhere(f"it answered {status} {content[:200].decode(errors='replace')!r}") from None
        if status == 200:
            return answer
        code, told = answer.get("code"), str(answer.get("message") or answer.get("error"))
        if code == _UNAUTHENTICATED or (self._user and any(each in told for each in _STALE_TOKEN)):
            raise _StaleToken(f"{url}: {told}")
        if code == _NOT_FOUND and "lease" in told:
            raise LeaseNotFound(told)
        if code == _DENIED:
            raise self._unavailable(
                f"user {self._user!r} may not use the keys that start with {self._settings.prefix!r} ({told}): "
                f"grant its role `etcdctl role grant-permission ROLE --prefix=true readwrite {self._settings.prefix}`"
            )
        if code == _INVALID and "user name is empty" in told:
            raise self._unavailable(
                "it wants a user: set etcd.user and etcd.password (CRONWELL_ETCD_USER, CRONWELL_ETCD_PASSWORD)"
            )
        if code == _INVALID and "authentication failed" in told:
            raise _LoginRefused(
                f"etcd: it refuses user {self._user!r} or the password: check etcd.user and etcd.password "
                "(CRONWELL_ETCD_USER, CRONWELL_ETCD_PASSWORD)"
            )
        if code == _UNAVAILABLE or status >= 500:
            raise _Elsewhere(told)
        raise self._unavailable(f"{url}: {told}")

    async def _authorization(self) -> Mapping[str, str]:
        if not self._user:
            return {}
        if self._refused is not None and time.monotonic() < self._refused_deadline:
            raise errors.CoordinationUnavailable(str(self._refused))
        if self._token is None:
            if self._authenticating is None:
                # Of its own: etcd takes its time over a password, and who waits for it may give up sooner.
                self._authenticating = asyncio.create_task(self._authenticate(), name="etcd login")
                self._authenticating.add_done_callback(self._authenticated)
            self._token = await asyncio.shield(self._authenticating)
        return {"Authorization": self._token} if self._token else {}

    async def _authenticate(self) -> str:
        login = {"name": self._user, "password": self._password}
        try:
            async with self._deadline():
                return str((await self._anywhere("/v3/auth/authenticate", login, {}))["token"])
        except errors.CoordinationUnavailable as error:
            if "authentication is not enabled" in str(error):
                return ""
            raise

    def _authenticated(self, task: asyncio.Task[str]) -> None:
        self._authenticating = self._refused = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._token = task.result()
        elif isinstance(error, _LoginRefused):
            self._refused, self._refused_deadline = error, time.monotonic() + _REFUSED_PAUSE

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=True if self._tls is None else self._tls),
                headers={"Content-Type": "application/json"},
                read_bufsize=_LONGEST_LINE,
            )
        return self._session

    def _next(self, url: str) -> None:
        """Ask this server last from now on."""
        if self._urls[0] == url:
            self._urls = [*self._urls[1:], url]

    @contextlib.asynccontextmanager
    async def _deadline(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                yield
        except TimeoutError:
            raise self._unavailable(
                f"no answer within {self._settings.timeout.total_seconds():g} s"
            ) from None

    def _unavailable(self, why: str) -> errors.CoordinationUnavailable:
        return errors.CoordinationUnavailable(f"etcd: {why}")


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """End the connection at once, where TLS would first wait for the other side to take leave as well."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()


class _StaleToken(Exception):
    """The token that was sent is not valid (any more)."""


def encode(text: str) -> str:
    """A key or value as the gateway takes it."""
    return base64.b64encode(text.encode()).decode()


def decode(text: str) -> str:
    """A key or value as it was before the gateway."""
    return base64.b64decode(text).decode(errors="replace")


def starting_with(prefix: str) -> dict[str, str]:
    """The range of all keys that start with `prefix`."""
    raw = prefix.encode()
    return {
        "key": base64.b64encode(raw).decode(),
        "range_end": base64.b64encode(raw[:-1] + bytes([raw[-1] + 1])).decode(),
    }


def _tls(servers: Servers, settings: EtcdSettings) -> ssl.SSLContext | None:
    files = {"ca": settings.ca, "cert": settings.cert, "key": settings.key}
    if servers.scheme == "etcd":
        if given := [f"etcd.{name}" for name, file in files.items() if file]:
            raise errors.ConfigError(
                f"{', '.join(given)} is for TLS, but coordination (CRONWELL_COORDINATION) is etcd://…: make it etcds://…"
            )
        return None
    if bool(settings.cert) != bool(settings.key):
        raise errors.ConfigError("etcd.cert and etcd.key (CRONWELL_ETCD_CERT, CRONWELL_ETCD_KEY) go together")
    for name, file in files.items():
        _check_readable(name, file)
    try:
        context = ssl.create_default_context(cafile=settings.ca or None)
        if settings.cert:
            context.load_cert_chain(settings.cert, settings.key)
    except (OSError, ssl.SSLError) as error:
        raise errors.ConfigError(
            f"the files in etcd.ca, etcd.cert and etcd.key are no certificates and key in PEM form that fit: {error}"
        ) from None
    return context


def _check_readable(name: str, file: str) -> None:
    try:
        if file:
            Path(file).read_bytes()
    except OSError as error:
        raise errors.ConfigError(
            f"etcd.{name} (CRONWELL_ETCD_{name.upper()}): cannot read {file}: {error.strerror}"
        ) from None


_NO_TLS = "it may speak no TLS: then use etcd:// instead of etcds://"
# What to do about it, by words in the client's exception.
_ADVICE: Sequence[tuple[str, str]] = (
    (
        "Hostname mismatch",
        "set etcd.server_name (CRONWELL_ETCD_SERVER_NAME) to a name that its certificate has",
    ),
    (
        "IP address mismatch",
        "set etcd.server_name (CRONWELL_ETCD_SERVER_NAME) to a name that its certificate has",
    ),
    ("CERTIFICATE_VERIFY_FAILED", "set etcd.ca (CRONWELL_ETCD_CA) to the certificate of its authority"),
    ("WRONG_VERSION_NUMBER", _NO_TLS),
    ("record layer failure", _NO_TLS),
    (
        "alert",
        "it wants a certificate that it trusts: set etcd.cert and etcd.key (CRONWELL_ETCD_CERT, CRONWELL_ETCD_KEY)",
    ),
)


def _words(url: str, error: Exception) -> str:
    """What a client's exception tells, and what to do about it."""
    if isinstance(error, TimeoutError):
        return f"{url}: no answer in time"
    # aiohttp wraps what the socket or TLS said, and does not always repeat it.
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    told = str(cause) or type(cause).__name__
    advice = next((advice for word, advice in _ADVICE if word.lower() in told.lower()), None)
    # So etcd answers who speaks TLS with it where it does not, and who does not where it does.
    if isinstance(cause, ConnectionResetError) and url.startswith("https:"):
        advice = _NO_TLS
    elif isinstance(cause, aiohttp.ServerDisconnectedError) and url.startswith("http:"):
        advice = "if it speaks TLS, use etcds:// instead of etcd://"
    return f"{url}: {told}: {advice}" if advice else f"{url}: {told}"
