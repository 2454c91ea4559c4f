"""The roles as real processes on a database of their own, for as long as a measurement lasts."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from cronwell import config, errors, telemetry
from cronwell.config import Settings
from cronwell.runtime.embedded import EmbeddedPostgres
from cronwell.runtime.postgres import Database
from cronwell.runtime.supervisor import Child
from cronwell.store.postgres.migrate import migrate

DAYS = config.RetentionSettings().executions.days
"""Days of history that there are, as after so long with the defaults: each is a partition, which makes plans longer."""
_MAKE_DAYS = "select ensure_day(current_date - days) from generate_series(1, $1::integer) as days"


@dataclass(frozen=True, slots=True)
class Server:
    """A PostgreSQL to measure on; the process id is known of an embedded one."""

    url: str
    pid: int | None = None


@contextlib.contextmanager
def server(settings: Settings) -> Iterator[Server]:
    """The configured PostgreSQL, or an embedded one that lasts as long as the benchmark."""
    if settings.database.url:
        yield Server(settings.database.url)
        return
    with tempfile.TemporaryDirectory(prefix="cronwell-bench-") as folder:
        embedded = EmbeddedPostgres(Path(folder))
        url = embedded.start()
        try:
            yield Server(url, embedded.pid)
        finally:
            embedded.stop()


async def require_rights(url: str) -> None:
    """A benchmark makes and drops databases, and writes the jobs of many tenants at once."""
    try:
        connection = await asyncpg.connect(url, timeout=10)
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise errors.StoreUnavailable(
            f"PostgreSQL does not answer: {str(error) or type(error).__name__}; unset CRONWELL_DATABASE_URL to measure on an"
            " embedded one"
        ) from None
    try:
        is_superuser = await connection.fetchval("select rolsuper from pg_roles where rolname = current_user")
    finally:
        await connection.close()
    if not is_superuser:
        raise errors.ConfigError(
            "the role in CRONWELL_DATABASE_URL is no superuser: a benchmark makes databases of its own and fills them"
            " past row-level security; name a superuser, or unset it for an embedded PostgreSQL"
        )


@contextlib.asynccontextmanager
async def scratch(server_url: str) -> AsyncIterator[tuple[Database, str]]:
    """A fresh database with the schema and the days of a month, dropped afterwards."""
    name = f"cronwell_bench_{uuid4().hex[:12]}"
    parts = urlsplit(server_url)
    url = urlunsplit(parts._replace(path=f"/{name}"))
    admin = await asyncpg.connect(server_url)
    try:
        await admin.execute(f"create database {name}")
        database = await Database.connect(config.DatabaseSettings(), url, application_name="cronwell bench")
        try:
            await migrate(database)
            await database.execute(_MAKE_DAYS, DAYS)
            yield database, url
        finally:
            await database.close()
    finally:
        await admin.execute(f"drop database if exists {name} with (force)")
        await admin.close()


def free_ports(host: str, count: int = 1) -> int:
    """The first of so many ports in a row that nobody listens on."""
    while True:
        first = _free(host, 0)
        with contextlib.suppress(OSError, OverflowError):
            for place in range(1, count):
                _free(host, first + place)
            return first


def _free(host: str, port: int) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, port))
        found: int = probe.getsockname()[1]
        return found


class Fleet:
    """Processes of the roles, kept running."""

    def __init__(self, children: list[Child]) -> None:
        self._children = children

    @property
    def processes(self) -> list[tuple[str, int]]:
        """Each process with its role."""
        return [(child.name, child.pid) for child in self._children if child.pid is not None]

    def pids(self, role: str) -> list[int]:
        return [pid for name, pid in self.processes if name == role]


@contextlib.asynccontextmanager
async def fleet(
    settings: Settings, url: str, *, schedulers: int = 1, workers: int, apis: int = 0
) -> AsyncIterator[Fleet]:
    """Start processes of the roles and stop them at the end.

    An API listens on the port of the settings, and each further one on the port after that: see `free_ports`.
    """
    settings = dataclasses.replace(
        settings,
        database=dataclasses.replace(settings.database, url=url),
        log=dataclasses.replace(settings.log, level="error" if settings.log.level == "error" else "warning"),
        worker=dataclasses.replace(settings.worker, imports=("cronwell.bench.noop",)),
    )
    environ = {**os.environ, **config.as_environ(settings)}
    ports = [{config.env_name("port"): str(settings.port + place)} for place in range(apis)]
    roles = [("api", {**environ, **port}) for port in ports]
    roles += [("scheduler", environ)] * schedulers + [("worker", environ)] * workers
    children = [
        Child(
            role,
            [sys.executable, "-m", "cronwell", role],
            given,
            on_death=telemetry.child_died,
            stop_deadline=timedelta(seconds=30),
        )
        for role, given in roles
    ]
    running = [asyncio.create_task(child.run(), name=child.name) for child in children]
    try:
        yield Fleet(children)
    finally:
        for child in children:
            child.stop()
        await asyncio.wait(running, timeout=60)
