"""Post notices to a webhook, in order, each until it has arrived."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import urllib.request
from collections import deque
from datetime import UTC, datetime
from urllib.parse import urlsplit

from cronwell import __version__, errors, telemetry
from cronwell.runtime.service import Service
from cronwell.sentinel.incidents import Notice

TIMEOUT = 10.0
FIRST_RETRY = 0.5
LONGEST_RETRY = 30.0
MOST_WAITING = 1000


class Pager(Service):
    """Delivers what it is told. Without a webhook the log line is all there is."""

    def __init__(self, webhook: str | None) -> None:
        super().__init__("pager")
        if webhook is not None and (
            urlsplit(webhook).scheme not in ("http", "https") or not urlsplit(webhook).hostname
        ):
            raise errors.ConfigError(f"{webhook!r} is not an address to post to; write one such as https://…")
        self._webhook = webhook
        self._waiting: deque[bytes] = deque(maxlen=MOST_WAITING)
        self._news = asyncio.Event()
        self._stopping = asyncio.Event()

    def tell(self, notice: Notice) -> None:
        telemetry.paged(notice.event, kind=notice.kind, words=notice.words)
        if self._webhook is not None:
            self._waiting.append(body_of(notice, datetime.now(UTC)))
            self._news.set()

    async def run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            if not self._waiting:
                self._news.clear()
                await self._news.wait()
                continue
            try:
                await asyncio.to_thread(self._post, self._waiting[0])
            except (OSError, ValueError) as error:
                # HTTPError and URLError are OSErrors.
                longest = min(FIRST_RETRY * 2.0**failures, LONGEST_RETRY)
                failures = min(failures + 1, 20)
                delay = longest * (1 - random.random() / 2)
                telemetry.service_failed("pager", error, delay)
                await self._pause(delay)
            else:
                failures = 0
                self._waiting.popleft()

    def stop(self) -> None:
        self._stopping.set()
        self._news.set()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    def _post(self, body: bytes) -> None:
        assert self._webhook is not None
        request = urllib.request.Request(  # noqa: S310  # its scheme is checked, and it is the operator's own
            self._webhook,
            body,
            {"Content-Type": "application/json", "User-Agent": f"cronwell-sentinel/{__version__}"},
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310  # as above
            answer.read(1)


def body_of(notice: Notice, now: datetime) -> bytes:
    """What is posted of a notice."""
    return json.dumps(
        {
            "source": "cronwell sentinel",
            "host": socket.gethostname(),
            "event": notice.event,
            "incident": notice.incident,
            "kind": notice.kind,
            "severity": "critical",
            "summary": notice.words,
            "lasted_s": round(notice.lasted.total_seconds(), 1),
            "at": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
    ).encode()
