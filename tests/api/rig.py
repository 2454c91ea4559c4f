"""The HTTP interface as it is run: on real PostgreSQL, served by uvicorn on a port of its own, called over TCP."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import orjson
from multidict import CIMultiDictProxy
from yarl import URL

from cronwell.api.role import api
from cronwell.api.tokens import Load
from cronwell.bus.postgres import PostgresBus
from cronwell.config import Settings
from cronwell.control.jobs import Jobs
from cronwell.model.execution import ExecutionKey, Result, State
from cronwell.runtime.clock import Clock
from cronwell.runtime.fetching import fetch
from cronwell.runtime.postgres import Database
from cronwell.runtime.web import WebServer, first_answer
from cronwell.store.port import Claimed, Ended, Worker
from cronwell.store.postgres.store import PostgresStore

# On the other side of the hour: a slot of the next minute would be staged as soon as its job is made, and be claimed by tests.
HALF_AN_HOUR_AWAY = (datetime.now(UTC) + timedelta(minutes=30)).minute
HOURLY = {
    "name": "hourly",
    "schedule": f"{HALF_AN_HOUR_AWAY} * * * *",
    "target": "https://example.com/run",
}


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, read whole."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def fields(self) -> list[str]:
        """The fields that a problem document names."""
        return [each["field"] for each in self.json["errors"]]


class Caller:
    """Calls one server."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.url = url
        self.session = session

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request; `body` is sent as JSON, `data` as it is. The path is sent to the letter."""
        sent = dict(headers or {})
        if body is not None:
            data = orjson.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        address = URL(self.url + path, encoded=True)
        async with self.session.request(
            method, address, data=data, headers=sent, allow_redirects=False
        ) as answer:
            return Reply(answer.status, answer.headers, await answer.read())

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.call("GET", path, headers=headers)

    async def post(self, path: str, body: object = None, **headers: str) -> Reply:
        return await self.call(
            "POST", path, body, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    async def create(self, **fields: object) -> dict[str, Any]:
        """Create a job that differs from HOURLY in these fields."""
        reply = await self.post("/v1/jobs", {**HOURLY, **fields})
        assert reply.status == 201, reply.body
        made: dict[str, Any] = reply.json
        return made


@dataclass(frozen=True, slots=True)
class Rig:
    """A server, and the parts that it was made of."""

    caller: Caller
    store: PostgresStore
    clock: Clock
    settings: Settings
    reasons: list[str]
    """Why the server is not ready; a test may change it."""

    async def register(self, *, pools: Sequence[str] = ("default",), handlers: Sequence[str] = ()) -> UUID:
        """Enter a living worker."""
        now = self.clock.now()
        worker = Worker(
            id=uuid4(),
            name="test",
            state="active",
            version="1",
            pools=tuple(pools),
            handlers=tuple(handlers),
            concurrency=10,
            running=0,
            started_at=now,
            heartbeat_at=now,
            lease_until=now + timedelta(hours=1),
        )
        await self.store.register(worker)
        return worker.id

    async def claim(self, worker: UUID, *, at: datetime | None = None, limit: int = 100) -> list[Claimed]:
        """Take what is due, as a worker does."""
        now = at or self.clock.now()
        return await self.store.claim(worker, "default", 1, ready_by=now, limit=limit, now=self.clock.now())

    async def end(self, claims: Sequence[Claimed], state: State, *, error: str | None = None) -> None:
        """Report how executions ended, as a worker does."""
        now = self.clock.now()
        result = Result.SUCCEEDED if state is State.SUCCEEDED else Result.FAILED
        ended = [
            Ended(
                tenant_id=1,
                key=each.key,
                fence=each.fence,
                worker=each.worker,
                state=state,
                result=result,
                started_at=now,
                finished_at=now,
                error=error,
                error_kind=None if error is None else "http",
                output="some output" if error is None else "what it said before it died",
            )
            for each in claims
        ]
        assert await self.store.complete(ended) == [state] * len(ended)

    async def bury(
        self, count: int, *, error: str = "it answered 500", **fields: object
    ) -> list[ExecutionKey]:
        """Make dead letters of a job that is triggered `count` times."""
        made = await self.caller.create(overlap="allow", **fields)
        for _ in range(count):
            await self.caller.post(f"/v1/jobs/{made['id']}/trigger")
        worker = await self.register()
        claims = await self.claim(worker, at=self.clock.now() + timedelta(seconds=1))
        await self.end(claims, State.FAILED, error=error)
        assert len(claims) == count
        return [each.key for each in claims]


@asynccontextmanager
async def serving(
    database: Database,
    url: str,
    clock: Clock,
    settings: Settings,
    *,
    load_token_keys: Load | None = None,
    kind: type[PostgresStore] = PostgresStore,
) -> AsyncIterator[Rig]:
    """Serve the interface on a free port of the loopback."""
    store = kind(database)
    bus = PostgresBus(database, url, can_listen=True, on_error=_fail)
    jobs = Jobs(store, bus, clock, settings)
    reasons: list[str] = []

    async def is_ready() -> list[str]:
        return reasons

    app = await api(
        store,
        bus,
        clock,
        settings,
        jobs,
        is_ready=is_ready,
        load_token_keys=load_token_keys or functools.partial(fetch, settings.auth.jwks),
    )
    try:
        async with listening(app) as caller:
            yield Rig(caller, store, clock, settings, reasons)
    finally:
        await jobs.close()


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[Caller]:
    """Serve any application on a free port of the loopback."""
    server = WebServer(app, "127.0.0.1", 0)
    running = asyncio.create_task(server.run(), name="server")
    try:
        assert await first_answer("127.0.0.1", server.port, "/healthz", timedelta(seconds=10))
        async with calling(f"http://127.0.0.1:{server.port}") as caller:
            yield caller
    finally:
        server.stop()
        await running


@asynccontextmanager
async def calling(url: str) -> AsyncIterator[Caller]:
    """Connections to the server at `url`, as many as are called for at once."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=100)) as session:
        yield Caller(session, url)


def limited(**limits: int) -> Settings:
    """The default settings with other limits."""
    settings = Settings()
    return dataclasses.replace(settings, limits=dataclasses.replace(settings.limits, **limits))


def _fail(name: str, error: Exception, _: float) -> None:
    raise AssertionError(f"{name} failed") from error
