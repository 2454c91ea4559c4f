"""A server that plays the API: it answers what a test tells it to, and keeps what it was sent.

For what the real API does only by accident: losing a connection, answering nonsense, changing between two requests.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    """As it was sent, without the query."""
    query: dict[str, list[str]]
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int = 200
    body: object = None
    content_type: str = "application/json"
    is_lost: bool = False
    """Whether the connection breaks instead of an answer."""
    is_cut: bool = False
    """Whether the connection breaks before the end of the answer."""
    headers: tuple[tuple[str, str], ...] = ()

    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass(slots=True)
class ScriptedApi:
    """Answers by method and path. Several answers to the same come one after the other; the last one stays."""

    url: str
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    _answers: dict[tuple[str, str], list[Answer]] = field(default_factory=dict)

    def on(self, method: str, path: str, body: object = None, **how: Any) -> None:
        self._answers.setdefault((method, path), []).append(Answer(body=body, **how))

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        answers = self._answers.get((request.method, request.path), [])
        if not answers:
            return Answer(404, {"title": "Not found", "status": 404, "detail": f"nothing at {request.path}"})
        return answers.pop(0) if len(answers) > 1 else answers[0]

    @property
    def last(self) -> Request:
        return self.requests[-1]


@contextmanager
def scripted_api() -> Iterator[ScriptedApi]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    api = ScriptedApi(f"http://127.0.0.1:{server.server_address[1]}")
    server.api = api  # type: ignore[attr-defined]  # the handler finds the script there
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self._api.connections += 1

    @property
    def _api(self) -> ScriptedApi:
        api: ScriptedApi = self.server.api  # type: ignore[attr-defined]  # put there by scripted_api
        return api

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        request = Request(self.command, parts.path, parse_qs(parts.query), dict(self.headers.items()), body)
        answer = self._api.answer(request)
        if answer.is_lost:
            self.close_connection = True
            return
        content = answer.content()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(content) + answer.is_cut))
        for name, value in answer.headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = answer.is_cut

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - names that http.server looks for

    def log_message(self, *_: Any) -> None:
        pass
