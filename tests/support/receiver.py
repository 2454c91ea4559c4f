"""A webhook receiver in a process of its own, so that nothing the test does delays an arrival.

It writes down what came, and when, and answers. Signatures are checked with the official verifier by whoever reads. A
thread beside it notes when the machine stood still (`tests.support.stalls`).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web
from standardwebhooks.webhooks import Webhook

from tests.support import stalls
from tests.support.processes import ROOT


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request as it came."""

    arrived: float
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def slot(self) -> float:
        """The moment that it was due, in seconds of the machine's clock."""
        return datetime.fromisoformat(self.body["slot"]).timestamp()

    @property
    def lateness(self) -> float:
        """Seconds from the slot to the arrival."""
        return self.arrived - self.slot


@dataclass(slots=True)
class Receiver:
    """Where deliveries arrive: what the other process has written down, read and verified."""

    url: str
    folder: Path
    process: subprocess.Popen[str]
    secret: str = ""
    refused: list[str] = field(default_factory=list)
    _deliveries: list[Delivery] = field(default_factory=list)
    _read: int = 0

    @property
    def deliveries(self) -> list[Delivery]:
        """Every delivery so far whose signature is right, in the order of arrival; others are in `refused`."""
        with (self.folder / "deliveries").open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                self._take(orjson.loads(line))
        return self._deliveries

    @property
    def stalls(self) -> list[stalls.Stall]:
        """When the machine stood still."""
        return stalls.read(self.folder / "stalls")

    def _take(self, came: dict[str, Any]) -> None:
        try:
            Webhook(self.secret).verify(came["body"], came["headers"])
        except Exception as error:  # noqa: BLE001  # whatever the verifier raises is a refusal
            self.refused.append(repr(error))
        else:
            self._deliveries.append(Delivery(came["arrived"], came["headers"], orjson.loads(came["body"])))


@contextmanager
def receiving(folder: Path) -> Iterator[Receiver]:
    """A receiver on a free port of this machine that keeps its notes in `folder`."""
    folder.mkdir()
    (folder / "deliveries").touch()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.receiver", str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield Receiver(f"http://127.0.0.1:{port}", folder, process)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def serve(folder: Path) -> None:
    """Take deliveries until killed."""
    notes = os.open(folder / "deliveries", os.O_WRONLY | os.O_APPEND)

    async def take(request: web.Request) -> web.Response:
        arrived = time.time()
        body = (await request.read()).decode()
        headers = {name.lower(): value for name, value in request.headers.items()}
        os.write(notes, orjson.dumps({"arrived": arrived, "headers": headers, "body": body}) + b"\n")
        return web.json_response({"received": True})

    threading.Thread(target=stalls.watch, args=(folder / "stalls",), daemon=True).start()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", take)
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    web.run_app(app, sock=listener, access_log=None, print=None)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
