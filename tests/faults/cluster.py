"""A real cluster: schedulers, workers and APIs as processes, each with a wire of its own to a PostgreSQL of their own.

What was killed is started again by the rig after a while, as any supervisor would do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

import asyncpg

from cronwell.config import DatabaseSettings
from cronwell.runtime.embedded import EmbeddedPostgres
from cronwell.runtime.postgres import Database
from cronwell.store.postgres.migrate import migrate
from tests.faults.disk import small_disk
from tests.faults.history import Request, Terms
from tests.faults.link import Link
from tests.faults.pace import aside, lasting
from tests.support.ports import free_port
from tests.support.postgres import SURVIVES_A_KILL, UNSAFE_BUT_FAST, furnish
from tests.support.processes import ROOT, Process
from tests.support.redis import RedisServer
from tests.support.waiting import until_async

WITNESS = Path(__file__).with_name("witness.sql")
# Commits have times, which tell in which order transactions became visible.
OWN_SERVER = {
    **SURVIVES_A_KILL,
    "track_commit_timestamp": "on",
    "max_wal_size": "256MB",
    "min_wal_size": "64MB",
}
RESTART_AFTER = 1.0


@dataclass(frozen=True, slots=True)
class Shape:
    """How large the cluster is, and its settings."""

    schedulers: int = 2
    workers: int = 2
    apis: int = 2
    look_ahead: float = 15.0
    scheduler_lease: float = 2.0
    worker_lease: float = 6.0
    heartbeat: float = 1.0
    coordination: str = "postgres"
    extra: Mapping[str, str] = field(default_factory=dict)
    """More of the children's environment."""
    server: Mapping[str, str] = field(default_factory=dict)
    """More settings of PostgreSQL."""

    def settings(self) -> dict[str, str]:
        return {
            "CRONWELL_SCHEDULER_LOOK_AHEAD": f"{self.look_ahead:g}s",
            "CRONWELL_SCHEDULER_LEASE": f"{self.scheduler_lease:g}s",
            "CRONWELL_WORKER_LEASE": f"{self.worker_lease:g}s",
            "CRONWELL_WORKER_HEARTBEAT": f"{self.heartbeat:g}s",
            "CRONWELL_WORKER_DRAIN": "5s",
            "CRONWELL_WORKER_CANCEL_GRACE": "1s",
            "CRONWELL_WORKER_IMPORTS": "tests.faults.handlers",
            "CRONWELL_EGRESS_ALLOW": "127.0.0.0/8",
            "CRONWELL_LOG_FORMAT": "json",
            "CRONWELL_COORDINATION": self.coordination,
            "PYTHONUNBUFFERED": "1",
            **self.extra,
        }

    def terms(self) -> Terms:
        return Terms(worker_lease=self.worker_lease, scheduler_lease=self.scheduler_lease)


class EtcdLike(Protocol):
    """What faults do to an etcd."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def signal(self, number: signal.Signals) -> None: ...


class Node:
    """One place of a role: it is filled by one process after the other."""

    def __init__(self, name: str, role: str, link: Link, environ: Mapping[str, str], port: int) -> None:
        self.name = name
        self.role = role
        self.link = link
        self.port = port
        self._environ = dict(environ)
        self.lives: list[Process] = []
        self.down_until = 0.0
        """Monotonic; before it nobody starts the node again."""
        self.next_environ: Mapping[str, str] = {}
        """What the next lives have in their environment besides."""
        self.next_prefix: Sequence[str] = ()
        """What runs the command of the next lives."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def process(self) -> Process:
        return self.lives[-1]

    @property
    def is_running(self) -> bool:
        return bool(self.lives) and self.process.is_running

    def start(self) -> None:
        self.link.process = f"{self.name}#{len(self.lives) + 1}"
        environ = {**self._environ, **self.next_environ}
        self.lives.append(Process([self.role], environ, prefix=self.next_prefix))

    def kill(self, down: float = RESTART_AFTER) -> None:
        self.down_until = time.monotonic() + down
        if self.is_running:
            self.process.kill()

    def terminate(self, down: float = 0.0) -> None:
        self.down_until = time.monotonic() + down
        if self.is_running:
            self.process.popen.send_signal(signal.SIGTERM)


class Cluster:
    """Every node, and the server."""

    def __init__(self, server: EmbeddedPostgres, shape: Shape) -> None:
        self.server = server
        self.shape = shape
        self.nodes: list[Node] = []
        self.is_kept = True
        self.etcd: EtcdLike | None = None
        """The etcd that coordinates the schedulers, where the rig has started one."""
        self.broker: RedisServer | None = None
        """The Redis that jobs publish to, where the rig has started one."""
        self.asked: list[Request] = []
        """What faults have asked of the API."""
        self.disk: Path | None = None
        """The small file system that the server is on, where there is one."""
        parts = urlsplit(server.url)
        self._socket = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._login = f"{parts.username}"
        self._database = parts.path

    def clock(self) -> float:
        """The database's clock: it runs on this machine."""
        return time.time()

    def of(self, *roles: str) -> list[Node]:
        return [node for node in self.nodes if node.role in roles]

    @property
    def links(self) -> list[Link]:
        return [node.link for node in self.nodes]

    def url_at(self, host: str, port: int) -> str:
        """The database, as a node has it that goes by a wire."""
        return f"postgresql://{self._login}@{host}:{port}{self._database}?sslmode=disable"

    async def connect(self) -> asyncpg.Connection[asyncpg.Record]:
        """The rig's own way to the server, past every wire."""
        return await asyncpg.connect(self.server.url, timeout=10, command_timeout=60)

    async def open(self) -> None:
        counts = {"scheduler": self.shape.schedulers, "worker": self.shape.workers, "api": self.shape.apis}
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CRONWELL_")}
        for role, count in counts.items():
            for number in range(1, count + 1):
                link = Link(self._socket, self.clock)
                await link.open()
                port = free_port()
                environ = {
                    **clean,
                    **self.shape.settings(),
                    "CRONWELL_DATABASE_URL": self.url_at("127.0.0.1", link.port),
                    "CRONWELL_PORT" if role == "api" else "CRONWELL_OPS_PORT": str(port),
                }
                self.nodes.append(Node(f"{role}-{number}", role, link, environ, port))
        for node in self.nodes:
            await asyncio.to_thread(node.start)

    async def keep(self) -> None:
        """Start again, after its time, whatever has ended."""
        while True:
            await lasting(0.1)
            for node in self.nodes:
                if self.is_kept and not node.is_running and time.monotonic() >= node.down_until:
                    await asyncio.to_thread(node.start)

    async def until_ready(self, within: float | None = None) -> None:
        """Wait until each shard has an owner that lives, each worker is in, and each API answers."""
        within = 60.0 + 4 * len(self.nodes) if within is None else within
        lacking: dict[str, object] = {}

        async def is_ready() -> bool:
            lacking.clear()
            lacking.update(await self._lacking())
            return not lacking

        try:
            await until_async(is_ready, within=within)
        except AssertionError:
            raise AssertionError(f"not ready after {within} s: {lacking}") from None

    async def _lacking(self) -> dict[str, object]:
        """What the cluster is not ready for."""
        try:
            connection = await self.connect()
        except (OSError, asyncpg.PostgresError, TimeoutError) as error:
            return {"PostgreSQL": repr(error)}
        try:
            unmarked = await connection.fetch(
                """select shard, epoch, owner, marked_at from shards
                where marked_at is null or marked_at < clock_timestamp() - interval '2500 ms'"""
            )
            workers = await connection.fetchval(
                "select count(*) from workers where state = 'active' and lease_until > now()"
            )
        finally:
            await connection.close()
        found: dict[str, object] = {}
        if unmarked:
            found["shards that nobody marks"] = [tuple(row) for row in unmarked[:3]], len(unmarked)
        if workers < self.shape.workers:
            found["workers"] = workers
        if silent := [node.name for node in self.of("api") if not answers(node)]:
            found["APIs that do not answer"] = silent
        return found

    async def until_spread(self, within: float = 60.0) -> None:
        """Wait until each scheduler has shards."""

        async def is_spread() -> bool:
            connection = await self.connect()
            try:
                owners = await connection.fetchval(
                    """select count(distinct owner) from shards
                    where marked_at > clock_timestamp() - interval '1500 ms'"""
                )
            finally:
                await connection.close()
            return bool(owners == self.shape.schedulers)

        await self.until_ready(within)
        await until_async(is_spread, within=within)

    async def close(self) -> None:
        self.is_kept = False
        for node in self.nodes:
            for life in node.lives:
                await asyncio.to_thread(life.close)
            await node.link.close()


@contextlib.contextmanager
def own_server(settings: Mapping[str, str]) -> Iterator[tuple[EmbeddedPostgres, Path | None]]:
    """A PostgreSQL to be ill-treated, and the small file system that it is on, where there is one."""
    with small_disk() as (folder, is_own):
        furnish(folder / "data")
        server = EmbeddedPostgres(folder / "data", extra={**UNSAFE_BUT_FAST, **settings})
        server.start()
        try:
            yield server, folder if is_own else None
        finally:
            server.stop("immediate")


@contextlib.asynccontextmanager
async def running(shape: Shape) -> AsyncIterator[Cluster]:
    """A migrated database that writes its log, and a cluster on it."""
    async with aside(own_server({**OWN_SERVER, **shape.server})) as (server, disk):
        database = await Database.connect(DatabaseSettings(), server.url, application_name="rig")
        await migrate(database)
        await database.execute(WITNESS.read_text())
        await database.close()
        cluster = Cluster(server, shape)
        cluster.disk = disk
        keeper: asyncio.Task[None] | None = None
        try:
            await cluster.open()
            keeper = asyncio.create_task(cluster.keep())
            yield cluster
        finally:
            if keeper is not None:
                keeper.cancel()
                await asyncio.gather(keeper, return_exceptions=True)
            await cluster.close()


def answers(node: Node) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", node.port), timeout=0.5):
        return True
    return False


__all__ = ["ROOT", "Cluster", "Node", "Shape", "running"]
