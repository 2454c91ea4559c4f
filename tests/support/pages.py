"""A place where the sentinel's notices arrive, and may be refused for a while."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(slots=True)
class PagingDesk:
    url: str
    notices: list[dict[str, Any]] = field(default_factory=list)
    refusals: int = 0
    """How many of the next ones are refused."""

    def of(self, kind: str) -> list[str]:
        """What was told of one kind of incident, in order."""
        return [each["event"] for each in self.notices if each["kind"] == kind]


@contextmanager
def paging_desk() -> Iterator[PagingDesk]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if desk.refusals:
                desk.refusals -= 1
                self.send_response(503)
            else:
                desk.notices.append(json.loads(body))
                self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    desk = PagingDesk(f"http://127.0.0.1:{server.server_address[1]}/page")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield desk
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
