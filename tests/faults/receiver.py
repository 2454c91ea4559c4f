"""The receiver: a process of its own that nothing injected ever touches, with a log that is flushed to disk.

A delivery is logged, with a flush, before any of its work is done, and again when the work has ended or the caller has
gone. Endpoints behave as their path says; the hostile ones as badly as a webhook can.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web
from standardwebhooks.webhooks import Webhook

from tests.faults.history import Body
from tests.faults.pace import lasting
from tests.support import stalls
from tests.support.processes import ROOT

HUGE = 100 * 1024 * 1024
HOSTILE = ("hang", "drip", "huge", "busy", "gone", "moved", "reset")


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where deliveries go, and where the log is."""

    url: str
    folder: Path
    besides: list[Receiver] = field(default_factory=list)
    """Others that deliveries go to as well."""

    def set_secret(self, secret: str) -> None:
        (self.folder / "secret").write_text(secret)

    def stand_beside(self, main: Receiver) -> None:
        """Take deliveries for the same cluster, of which the main one tells."""
        self.set_secret((main.folder / "secret").read_text())
        main.besides.append(self)

    def bodies(self) -> tuple[Body, ...]:
        return tuple(body for each in (self, *self.besides) for body in read_bodies(each.folder / "log"))

    def stalls(self) -> tuple[tuple[float, float], ...]:
        return tuple((each.began, each.ended) for each in stalls.read(self.folder / "stalls"))


@contextmanager
def receiving(folder: Path, environ: Mapping[str, str] | None = None) -> Iterator[Receiver]:
    """A receiver on a free port, until the block ends."""
    folder.mkdir(parents=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.receiver", str(folder)],
        cwd=ROOT,
        env={**os.environ, **(environ or {})},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield Receiver(f"http://127.0.0.1:{int(process.stdout.readline())}", folder)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def read_bodies(log: Path) -> tuple[Body, ...]:
    """Join arrivals and ends."""
    came: dict[int, dict[str, Any]] = {}
    for line in log.read_bytes().splitlines():
        entry = orjson.loads(line)
        came.setdefault(entry["number"], {}).update(entry)
    return tuple(
        Body(
            execution=each["execution"],
            job=each["job"],
            slot=datetime.fromisoformat(each["slot"]),
            attempt=each["attempt"],
            fence=each["fence"],
            arrived=each["arrived"],
            ended=each.get("ended"),
            status=each.get("status"),
            is_verified=each["verified"],
            path=each["path"],
        )
        for each in came.values()
    )


class _Log:
    """Lines on disk. A batch of lines shares a flush, and none is answered for before its own."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None

    async def write(self, entry: Mapping[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._waiting.append((orjson.dumps(entry) + b"\n", done))
        if self._flushing is None:
            self._flushing = loop.create_task(self._flush())
        # Shielded: a caller that goes away does not take the line with it.
        await asyncio.shield(done)

    async def _flush(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            os.write(self._file, b"".join(line for line, _ in batch))
            await asyncio.to_thread(os.fdatasync, self._file)
            for _, done in batch:
                done.set_result(None)
        self._flushing = None


class _Endpoints:
    def __init__(self, folder: Path) -> None:
        self._log = _Log(folder / "log")
        self._secret = folder / "secret"
        self._verifier: Webhook | None = None
        self._count = 0

    async def take(self, request: web.Request) -> web.StreamResponse:
        arrived, monotonic = time.time(), time.monotonic()
        raw = await request.read()
        headers = request.headers
        self._count += 1
        number = self._count
        await self._log.write(
            {
                "number": number,
                "execution": headers.get("webhook-id", ""),
                "job": headers.get("Cronwell-Job", ""),
                "slot": headers.get("Cronwell-Slot", "1970-01-01T00:00:00+00:00"),
                "attempt": int(headers.get("Cronwell-Attempt", 0)),
                "fence": int(headers.get("Cronwell-Fence", 0)),
                "arrived": arrived,
                "monotonic": monotonic,
                "verified": self._is_verified(raw, headers),
                "path": request.path,
            }
        )
        try:
            response = await self._act(request)
            request["status"] = response.status
        finally:
            # Also when the caller has gone, which cancels this: its body of work ends here.
            ended = {
                "number": number,
                "ended": time.time(),
                "ended_monotonic": time.monotonic(),
                "status": request.get("status"),
            }
            await self._log.write(ended)
        return response

    async def _act(self, request: web.Request) -> web.StreamResponse:
        attempt = int(request.headers.get("Cronwell-Attempt", 0))
        match request.path.strip("/").split("/"):
            case ["fail", times]:
                return web.Response(status=500 if attempt <= int(times) else 200)
            case ["slow", seconds]:
                await lasting(float(seconds))
            case ["curt"]:
                response = web.json_response({"done": True})
                response.force_close()
                return response
            case ["hang"]:
                await lasting(3600)
            case ["drip"]:
                await self._drip(request)
            case ["huge"]:
                return await self._huge(request)
            case ["busy"]:
                return web.Response(status=429, headers={"Retry-After": "1"})
            case ["gone"]:
                return web.Response(status=410)
            case ["moved"]:
                return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})
            case ["reset"]:
                assert request.transport is not None
                request.transport.abort()
        return web.json_response({"done": True})

    async def _begin(self, request: web.Request) -> web.StreamResponse:
        """Answer 200, and leave the rest of the answer for later: who has seen that may call it a success."""
        response = web.StreamResponse()
        await response.prepare(request)
        request["status"] = response.status
        return response

    async def _drip(self, request: web.Request) -> None:
        response = await self._begin(request)
        # Between two seconds: a hundred that drip as others start would show this process's time, not the worker's.
        await lasting(0.5)
        while True:
            await response.write(b".")
            await lasting(1)

    async def _huge(self, request: web.Request) -> web.StreamResponse:
        response = await self._begin(request)
        chunk = b"x" * 65536
        with contextlib.suppress(OSError):
            for _ in range(HUGE // len(chunk)):
                await response.write(chunk)
        return response

    def _is_verified(self, raw: bytes, headers: Mapping[str, str]) -> bool:
        if self._verifier is None:
            if not self._secret.exists():
                return False
            self._verifier = Webhook(self._secret.read_text())
        try:
            self._verifier.verify(raw.decode(), {name.lower(): value for name, value in headers.items()})
        except Exception:  # noqa: BLE001  # whatever the verifier raises is a refusal
            return False
        return True


def serve(folder: Path) -> None:
    """Take deliveries until killed."""
    threading.Thread(target=stalls.watch, args=(folder / "stalls",), daemon=True).start()
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{path:.*}", _Endpoints(folder).take)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    web.run_app(app, sock=listener, access_log=None, print=None, handler_cancellation=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
