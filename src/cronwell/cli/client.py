"""The HTTP interface as the command line uses it: one connection, JSON in and out, problems as failures.

Imported when the first request is sent: http.client alone is a fifth of what `cronwell --help` may take.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

from cronwell import __version__
from cronwell.cli.failures import ExitCode, Failure, Refused, Unreachable

TIMEOUT_SECONDS = 60.0
PAGE = 500
NDJSON = "application/x-ndjson"
_LONGEST_EXCERPT = 500
_LOST = (ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected, http.client.IncompleteRead)

Query = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Found:
    """One part of a list, and the cursor to what follows."""

    items: list[dict[str, Any]]
    next_cursor: str | None


class Client:
    """Talk to one server. Raises Unreachable when it does not answer, Refused when it says no."""

    def __init__(self, url: str, *, key: str = "", timeout: float = TIMEOUT_SECONDS) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError as error:
            raise Failure(f"{url!r} is not an address: {error}", ExitCode.USAGE) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Failure(
                f'{url!r} is not an address; write one such as "http://127.0.0.1:8420"', ExitCode.USAGE
            )
        self.url = parts.geturl().rstrip("/")
        self._prefix = parts.path.rstrip("/")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, port, timeout=timeout)
        self._server_at: datetime | None = None
        self._sent_always = {"User-Agent": f"cronwell/{__version__}"}
        if key:
            if not key.isascii() or not key.isprintable() or " " in key:
                raise Failure(
                    "CRONWELL_API_KEY is no key: it has spaces, line breaks or other characters that none has; "
                    "it is one line, as `cronwell bootstrap` or `cronwell key create` printed it",
                    ExitCode.USAGE,
                )
            self._sent_always["Authorization"] = f"Bearer {key}"

    def close(self) -> None:
        self._connection.close()

    @property
    def has_answered(self) -> bool:
        """Whether the server's time is known."""
        return self._server_at is not None

    @property
    def server_at(self) -> datetime:
        """What time the server had at its latest answer, to the second; ours, where it does not say."""
        return self._server_at or datetime.now(UTC)

    def get(self, path: str, query: Query | None = None) -> Any:
        return self._exchange("GET", path, query=query)

    def post(self, path: str, body: object = None, *, key: str | None = None) -> Any:
        """Send a change. With an Idempotency-Key it is sent once more when the connection is lost."""
        return self._exchange("POST", path, body=body, headers={"Idempotency-Key": key} if key else {})

    def put(self, path: str, body: object, *, revision: int | None = None) -> Any:
        headers = {} if revision is None else {"If-Match": f'"{revision}"'}
        return self._exchange("PUT", path, body=body, headers=headers)

    def patch(self, path: str, body: object, *, revision: int | None = None) -> Any:
        headers = {} if revision is None else {"If-Match": f'"{revision}"'}
        return self._exchange("PATCH", path, body=body, headers=headers)

    def delete(self, path: str) -> Any:
        return self._exchange("DELETE", path)

    def find(
        self, path: str, query: Query, *, limit: int | None, cursor: str | None = None
    ) -> Iterator[Found]:
        """Read a list page by page, up to `limit` items, or all of them."""
        left = limit
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            page = self.get(path, {**query, "limit": size, "cursor": cursor})
            cursor = page.get("next_cursor")
            yield Found(page["items"], cursor)
            if left is not None:
                left -= len(page["items"])
            if cursor is None:
                return

    def stream(self, path: str, body: bytes) -> Iterator[dict[str, Any]]:
        """Send lines of JSON and yield the lines of the answer as they come."""
        answer = self._send("POST", path, body, {"Content-Type": NDJSON, "Accept": NDJSON})
        try:
            if answer.status >= 400:
                raise _refusal(answer, answer.read(), None)
            for line in answer:
                if line.strip():
                    yield _parse(line, self.url)
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(error, is_change=True) from None
        finally:
            # Whatever was left unread would be taken for the next answer.
            self._connection.close()

    def _exchange(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        sent = {"Accept": "application/json", **(headers or {})}
        content = None
        if body is not None:
            sent["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
            content = json.dumps(body).encode()
        answer = self._send(method, path + _encoded(query), content, sent)
        try:
            read = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(error, is_change=method != "GET") from None
        if answer.status >= 300:
            raise _refusal(answer, read, body)
        return _parse(read, self.url) if read.strip() else None

    def _send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        is_repeatable = method == "GET" or "Idempotency-Key" in headers
        if not is_repeatable:
            # A kept connection may have been closed by the other side: only what may be sent twice risks that.
            self._connection.close()
        for is_last in (not is_repeatable, True):
            self._connect()
            try:
                self._connection.request(
                    method,
                    self._prefix + path,
                    body,
                    {**self._sent_always, **headers},
                )
                answer = self._connection.getresponse()
            except _LOST as error:
                if is_last:
                    raise self._lost(error, is_change=method != "GET") from None
                self._connection.close()
            except (OSError, http.client.HTTPException) as error:
                raise self._lost(error, is_change=method != "GET") from None
            else:
                self._note_time(answer)
                return answer
        raise AssertionError("the last try either answers or raises")

    def _connect(self) -> None:
        if self._connection.sock is None:
            try:
                self._connection.connect()
            except OSError as error:
                raise self._lost(error, is_change=False) from None

    def _note_time(self, answer: http.client.HTTPResponse) -> None:
        with suppress(TypeError, ValueError):
            self._server_at = parsedate_to_datetime(answer.headers["Date"]).astimezone(UTC)

    def _lost(self, error: Exception, *, is_change: bool) -> Unreachable:
        self._connection.close()
        return Unreachable(self.url, _reason(error), is_sent=is_change)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:.0f} s"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "the name of the host is not known"
    if isinstance(error, _LOST):
        return "the connection was lost before the answer was complete"
    if isinstance(error, http.client.HTTPException):
        return f"it does not speak HTTP ({type(error).__name__})"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _refusal(answer: http.client.HTTPResponse, read: bytes, sent: object) -> Refused:
    problem: object = None
    with suppress(ValueError):
        problem = json.loads(read)
    if not isinstance(problem, dict) or not problem.get("title"):
        excerpt = read.decode(errors="replace")[:_LONGEST_EXCERPT].strip()
        title = f"The server answered {answer.status} {answer.reason}".rstrip()
        problem = {"title": title, "status": answer.status, "detail": excerpt}
    return Refused(answer.status, problem, sent)


def _parse(read: bytes, address: str) -> Any:
    try:
        return json.loads(read)
    except ValueError:
        raise Failure(f"what answers at {address} is not Cronwell's API: it sent no JSON") from None


def _encoded(query: Query | None) -> str:
    pairs: list[tuple[str, str]] = []
    for name, value in (query or {}).items():
        values: Iterable[object] = value if isinstance(value, list | tuple) else (value,)
        pairs += [(name, str(each)) for each in values if each is not None]
    return f"?{urlencode(pairs)}" if pairs else ""
