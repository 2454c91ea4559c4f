"""Call a URL with a signed delivery and judge the answer.

One attempt is one request: redirects are not followed, nothing is resent behind the caller's back, and the
one deadline covers all of it, from the wait for a connection to the last byte of the answer. Which addresses
may be called is judged by `client`, where connections are made.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from aiohttp.abc import AbstractResolver

from cronwell import config, errors
from cronwell.model.execution import Result
from cronwell.model.job import HttpTarget
from cronwell.runtime.clock import Clock
from cronwell.targets import delivery, stopping
from cronwell.targets.client import Client
from cronwell.targets.dns import CheckedResolver, SystemResolver
from cronwell.targets.egress import Egress
from cronwell.targets.exchange import Answer, Trouble
from cronwell.targets.output import clip
from cronwell.targets.port import Call, Outcome, Signals

_EXCERPT = 300
_ACCEPTED = 202
_NO_PUBLIC_URL = (
    "the job asks for a callback, and this worker does not know the address at which receivers reach the API; "
    "set CRONWELL_PUBLIC_URL where the worker starts and restart it"
)
_ILL = frozenset({"connect", "dns", "tls", "disconnected", "protocol"})
"""Kinds of trouble that any request to the host would have."""


class HttpRunner:
    """Carry out http attempts. `resolver` and `tls` are for tests and for private certificate authorities."""

    def __init__(
        self,
        settings: config.HttpSettings,
        egress: Egress,
        clock: Clock,
        output_limit: int,
        *,
        public_url: str = "",
        resolver: AbstractResolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = settings
        self._egress = egress
        self._clock = clock
        self._output_limit = output_limit
        self._public_url = public_url.rstrip("/")
        self._asks = resolver
        self._tls = tls
        self._client: Client | None = None

    async def run(self, call: Call, signals: Signals) -> Outcome:
        """Send one delivery and say how it ended."""
        target = call.target.http
        assert target is not None
        if (stopped := stopping.stopped_before_start(call, signals)) is not None:
            return stopped
        if target.callback is not None and not self._public_url:
            # Retryable: another worker of the pool, or this one once it is started anew, may know it.
            return _failed("no_public_url", _NO_PUBLIC_URL)
        interrupt = stopping.Interrupt(signals)
        outcome: Outcome | None = None
        with interrupt:
            try:
                client = self._client or self._open()
                # Not the machine's time: receivers refuse a delivery whose timestamp is minutes off.
                timestamp = int(self._clock.now().timestamp())
                origin, request = delivery.build(call, target, timestamp, self._public_url)
                answer = Answer(self._output_limit, self._settings.response_limit)
                sending = client.send(origin, request, answer)
                # Of thousands that wait for their answers none keeps what it has sent: the next one is built in its place.
                del request
                await sending
                outcome = self._judge(answer, target)
            except Exception as error:  # noqa: BLE001  the port promises an outcome for whatever a client raises
                outcome = _describe(error)
        return stopping.settled(interrupt, outcome, call)

    async def close(self) -> None:
        """Close every connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _judge(self, answer: Answer, target: HttpTarget) -> Outcome:
        status = answer.status
        if status == _ACCEPTED and target.callback is not None:
            return _AWAITED
        if 200 <= status < 300 and not answer.kept.size:
            return _NOTHING
        output, was_cut = answer.kept.text()
        was_cut = was_cut or not answer.is_whole
        if 200 <= status < 300:
            return Outcome(Result.SUCCEEDED, output=output or None, output_truncated=was_cut)
        said = f"answered {status}{_reason(answer)}"
        kind = "http_status"
        if 300 <= status < 400:
            kind = "redirect"
            where = clip(answer.headers.get("location", ""), 2048)[0]
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
            retry_after=self._read_retry_after(answer) if status in (429, 503) else None,
            is_host_ill=status >= 500,
        )

    def _read_retry_after(self, answer: Answer) -> timedelta | None:
        text = answer.headers.get("retry-after", "").strip()
        sent_at = _read_date(answer.headers.get("date", "")) or self._clock.now()
        wait = read_retry_after(text, sent_at=sent_at)
        return None if wait is None else min(wait, self._settings.retry_after_cap)

    def _open(self) -> Client:
        resolver = CheckedResolver(self._asks or SystemResolver(), self._egress)
        self._client = Client(self._settings, self._egress, resolver, self._tls)
        return self._client


_NOTHING = Outcome(Result.SUCCEEDED)
_AWAITED = Outcome(Result.SUCCEEDED, awaits_callback=True)


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
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _describe(error: Exception) -> Outcome:
    """Turn what kept an answer away into a failed attempt with a sentence that helps."""
    match error:
        case errors.EgressRefused():
            return _failed("egress", str(error), is_retryable=False)
        case Trouble():
            is_ill = error.kind in _ILL
            return _failed(error.kind, str(error), is_retryable=error.is_retryable, is_host_ill=is_ill)
        case _:
            return _failed("internal", f"{type(error).__name__}: {error}")


def _failed(kind: str, error: str, *, is_retryable: bool = True, is_host_ill: bool = False) -> Outcome:
    return Outcome(
        Result.FAILED,
        error=clip(error, 4000)[0],
        error_kind=kind,
        is_retryable=is_retryable,
        is_host_ill=is_host_ill,
    )


def _reason(answer: Answer) -> str:
    return f" {clip(answer.reason, 100)[0]}" if answer.reason else ""
