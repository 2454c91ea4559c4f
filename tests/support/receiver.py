"""A webhook receiver that checks every delivery with the official verifier and keeps what came."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson
from aiohttp import web
from standardwebhooks.webhooks import Webhook


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request as it came."""

    arrived: float
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def lateness(self) -> float:
        """Seconds from the slot to the arrival."""
        return self.arrived - datetime.fromisoformat(self.body["slot"]).timestamp()


@dataclass(slots=True)
class Receiver:
    """Where deliveries arrive."""

    url: str = ""
    secret: str = ""
    deliveries: list[Delivery] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        arrived = time.time()
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            Webhook(self.secret).verify(body.decode(), headers)
        except Exception as error:  # noqa: BLE001  # whatever the verifier raises is a refusal
            self.refused.append(repr(error))
            return web.Response(status=401)
        self.deliveries.append(Delivery(arrived, headers, orjson.loads(body)))
        return web.json_response({"received": True})


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver on a free port of this machine."""
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield receiver
    finally:
        await runner.cleanup()
