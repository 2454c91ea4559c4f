"""Call a URL with a signed delivery and judge the answer.

One attempt is one request: redirects are not followed, nothing is resent behind the caller's back, and the
one deadline covers all of it, from the wait for a connection to the last byte of the answer. The address is
judged twice: names when they are resolved, and again whatever the socket is about to connect to, so that no
spelling of an address and no second answer of a name server gets past the table. A kept-alive connection was
judged when it was made and cannot change its peer.
"""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from cronwell import config, durations, errors
from cronwell.model.execution import Result
from cronwell.model.job import HttpTarget
from cronwell.runtime.clock import Clock
from cronwell.targets import delivery, stopping
from cronwell.targets.dns import CheckedResolver, SystemResolver
from cronwell.targets.egress import Egress
from cronwell.targets.output import Kept, clip
from cronwell.targets.port import Call, Outcome, Signals

_DNS_CACHE_SECONDS = 10
# Below the five seconds after which common servers (Node, uvicorn) close an idle connection: a request that
# meets that close on its way fails, and not every receiver may be sent it twice.
_KEEP_ALIVE_SECONDS = 4.0
_EXCERPT = 300


class HttpRunner:
    """Carry out http attempts. `resolver` and `tls` are for tests and for private certificate authorities."""

    def __init__(
        self,
        settings: config.HttpSettings,
        egress: Egress,
        clock: Clock,
        output_limit: int,
        *,
        resolver: AbstractResolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = settings
        self._egress = egress
        self._clock = clock
        self._output_limit = output_limit
        self._asks = resolver
        self._tls = tls
        self._resolver: CheckedResolver | None = None
        self._session: aiohttp.ClientSession | None = None

    async def run(self, call: Call, signals: Signals) -> Outcome:
        """Send one delivery and say how it ended."""
        target = call.target.http
        assert target is not None
        if (stopped := stopping.stopped_before_start(call, signals)) is not None:
            return stopped
        interrupt = stopping.Interrupt(signals)
        outcome: Outcome | None = None
        with interrupt:
            try:
                outcome = await self._deliver(call, target)
            except Exception as error:  # noqa: BLE001  the port promises an outcome for whatever a client raises
                outcome = _describe(error, target, self._settings)
        # An answer that was complete when the deadline struck still counts; an error then is the stop's.
        if interrupt.reason is not None and (outcome is None or outcome.result is not Result.SUCCEEDED):
            return stopping.stopped_outcome(interrupt.reason, call)
        assert outcome is not None
        return outcome

    async def close(self) -> None:
        """Close every connection."""
        session, self._session = self._session, None
        resolver, self._resolver = self._resolver, None
        if session is not None:
            await session.close()
        if resolver is not None:
            await resolver.close()

    async def _deliver(self, call: Call, target: HttpTarget) -> Outcome:
        session = self._session or self._open()
        # Not the machine's time: receivers refuse a delivery whose timestamp is minutes off.
        request = delivery.build(call, target, int(self._clock.now().timestamp()))
        response = await session.request(
            target.method,
            _read_url(target.url),
            data=request.body,
            headers=request.headers,
            allow_redirects=False,
            middlewares=() if target.method == "POST" else (_send_once,),
        )
        try:
            kept = Kept(self._output_limit)
            is_whole = True
            while chunk := await response.content.readany():
                kept.add(chunk)
                if kept.size > self._settings.response_limit:
                    is_whole = False
                    break
        finally:
            # Gives a connection back if the answer was read to its end, drops it otherwise.
            response.close()
        return self._judge(response, kept, is_whole=is_whole)

    def _judge(self, response: aiohttp.ClientResponse, kept: Kept, *, is_whole: bool) -> Outcome:
        status = response.status
        output, was_cut = kept.text()
        was_cut = was_cut or not is_whole
        if 200 <= status < 300:
            return Outcome(Result.SUCCEEDED, output=output or None, output_truncated=was_cut)
        said = f"answered {status}{_reason(response)}"
        kind = "http_status"
        if 300 <= status < 400:
            kind = "redirect"
            where = clip(response.headers.get("Location", ""), 2048)[0]
            said += f" and pointed to {where}" if where else " without saying where to"
            said += "; redirects are not followed: put the final address in the job's url"
        elif output:
            said += f": {output[:_EXCERPT]}{'…' if len(output) > _EXCERPT else ''}"
        return Outcome(
            Result.FAILED,
            output=output or None,
            output_truncated=was_cut,
            error=said,
            error_kind="gone" if status == 410 else kind,
            is_retryable=status != 410,
            pauses_job=status == 410,
            retry_after=self._read_retry_after(response) if status in (429, 503) else None,
        )

    def _read_retry_after(self, response: aiohttp.ClientResponse) -> timedelta | None:
        text = response.headers.get("Retry-After", "").strip()
        sent_at = _read_date(response.headers.get("Date", "")) or self._clock.now()
        wait = read_retry_after(text, sent_at=sent_at)
        return None if wait is None else min(wait, self._settings.retry_after_cap)

    def _open(self) -> aiohttp.ClientSession:
        self._resolver = CheckedResolver(self._asks or SystemResolver(), self._egress)
        connector = aiohttp.TCPConnector(
            limit=self._settings.connections,
            limit_per_host=self._settings.per_host,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
            ttl_dns_cache=_DNS_CACHE_SECONDS,
            resolver=self._resolver,
            socket_factory=self._make_socket,
            ssl=self._tls or True,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            # One deadline covers an attempt, so only the making of a connection has a limit of its own.
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=self._settings.connect_timeout.total_seconds()
            ),
            cookie_jar=aiohttp.DummyCookieJar(),  # one job's cookies are no other job's business
            auto_decompress=False,  # a small answer may unpack to gigabytes
            trust_env=False,  # a proxy would connect to addresses that nobody has judged
        )
        return self._session

    def _make_socket(self, info: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, address = info
        self._egress.check(str(address[0]))
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made


def read_retry_after(text: str, *, sent_at: datetime) -> timedelta | None:
    """Read a Retry-After in seconds or as a date, which counts from `sent_at`; None if it asks for nothing."""
    if text.isascii() and text.isdigit():
        # Twelve digits of seconds are 31,000 years: enough to be capped, and within what timedelta holds.
        wait = timedelta(seconds=int(text[:12]))
    elif (moment := _read_date(text)) is not None:
        wait = moment - sent_at
    else:
        return None
    return wait if wait > timedelta() else None


def _read_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


# A URL goes out as it was written: quoting it anew would break addresses that carry a signature.
@lru_cache(maxsize=4096)
def _read_url(text: str) -> URL:
    try:
        return URL(text, encoded=text.isascii())
    except ValueError as error:
        raise aiohttp.InvalidURL(text, str(error)) from None


class _NotResent(Exception):
    """Carries, as its cause, an error after which aiohttp would send the request again."""


async def _send_once(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from resending idempotent methods: a second delivery is a second attempt, with its number."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _NotResent from error


def _describe(error: BaseException, target: HttpTarget, settings: config.HttpSettings) -> Outcome:
    """Turn what the client raised into a failed attempt with a sentence that helps."""
    if isinstance(error, _NotResent) and error.__cause__ is not None:
        error = error.__cause__
    peer = "" if isinstance(error, aiohttp.InvalidURL) else _read_url(target.url).authority
    said = str(error) or type(error).__name__
    match error:
        case errors.EgressRefused():
            return _failed("egress", said, is_retryable=False)
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return _failed("url", f"{target.url} cannot be called: {said}", is_retryable=False)
        case aiohttp.ClientConnectorCertificateError():
            return _failed("tls", f"{peer} has a certificate that is not trusted: {error.certificate_error}")
        case aiohttp.ClientSSLError() | ssl.SSLError() | aiohttp.ClientOSError(__cause__=ssl.SSLError()):
            return _failed("tls", f"no secure connection to {peer}: {error.__cause__ or said}")
        case aiohttp.ClientConnectorDNSError():
            return _failed("dns", f"{peer} has no address: {error.os_error.strerror or error.os_error}")
        case aiohttp.ServerTimeoutError():
            limit = durations.write(settings.connect_timeout)
            return _failed("connect", f"{peer} did not accept a connection within {limit}")
        case aiohttp.ClientConnectorError():
            return _failed(
                "connect", f"cannot connect to {peer}: {error.os_error.strerror or error.os_error}"
            )
        case aiohttp.ClientConnectionError():
            return _failed(
                "disconnected",
                f"{peer} closed the connection before it answered; whether it did the work is unknown",
            )
        case aiohttp.ClientPayloadError():
            return _failed("protocol", f"the answer of {peer} broke off: {said}")
        case aiohttp.ClientError():
            return _failed("protocol", f"the answer of {peer} is not HTTP: {said}")
        case _:
            return _failed("internal", f"{type(error).__name__}: {said}")


def _failed(kind: str, error: str, *, is_retryable: bool = True) -> Outcome:
    return Outcome(Result.FAILED, error=clip(error, 4000)[0], error_kind=kind, is_retryable=is_retryable)


def _reason(response: aiohttp.ClientResponse) -> str:
    return f" {clip(response.reason, 100)[0]}" if response.reason else ""
