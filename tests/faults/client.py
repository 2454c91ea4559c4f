"""The API client: it tries until it knows, and writes down what it knew when."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import aiohttp
import orjson

from tests.faults.history import Outcome, Request, Try
from tests.faults.pace import lasting

TRY_SECONDS = 5.0
GIVE_UP_SECONDS = 45.0


class Api(Protocol):
    """Where an API may answer."""

    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str: ...


class Client:
    """One user. Each request goes to some API; one that is not answered is sent again, with the same key, to some API."""

    def __init__(self, apis: Sequence[Api], clock: Callable[[], float], log: Path, seed: str) -> None:
        self._apis = apis
        self._clock = clock
        self._random = random.Random(seed)
        self._log = log.open("ab", buffering=0)
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TRY_SECONDS))
        self.requests: list[Request] = []
        self.stop = asyncio.Event()

    async def ask(
        self, verb: str, job: str, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Request:
        """Send a request until it is known whether it holds, or for as long as the client has patience."""
        has_key = verb in ("create", "trigger")
        key = uuid4().hex if has_key else ""
        headers = {"Idempotency-Key": key} if has_key else {}
        tries: list[Try] = []
        patience = self._clock() + GIVE_UP_SECONDS
        while True:
            tries.append(await self._try(method, path, body, headers))
            if tries[-1].outcome != "unknown" or self._clock() > patience:
                break
            await lasting(0.3)
        if has_key and tries[-1].outcome == "ok" and self._random.random() < 0.1:
            # The same key again: the same answer, and nothing more happens.
            tries.append(await self._try(method, path, body, headers))
        request = Request(verb, job, tuple(tries), dict(body or {}), key)
        self.requests.append(request)
        self._log.write(orjson.dumps(request) + b"\n")
        return request

    async def _try(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> Try:
        api = self._random.choice(self._apis)
        invoked = self._clock()
        status, answer = 0, {}
        try:
            async with self._session.request(method, api.url + path, json=body, headers=headers) as response:
                status = response.status
                answer = orjson.loads(await response.read())
        except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError, OSError):
            pass
        outcome: Outcome = "unknown"
        if 200 <= status < 300 and answer:
            outcome = "ok"
        elif 400 <= status < 500:
            outcome = "failed"
        kept = {name: answer[name] for name in ("id", "state", "revision", "detail") if name in answer}
        return Try(invoked, self._clock(), outcome, status, kept, api.name)

    async def close(self) -> None:
        await self._session.close()
        self._log.close()
