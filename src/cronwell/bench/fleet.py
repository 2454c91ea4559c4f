"""A scheduler and workers as real processes on a database of their own, for as long as a measurement lasts."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from cronwell import config, telemetry
from cronwell.config import Settings
from cronwell.runtime.embedded import EmbeddedPostgres
from cronwell.runtime.postgres import Database
from cronwell.runtime.supervisor import Child
from cronwell.store.postgres.migrate import migrate


@contextlib.contextmanager
def server(settings: Settings) -> Iterator[str]:
    """The address of a PostgreSQL: the configured one, or an embedded one that lasts as long as the benchmark."""
    if settings.database.url:
        yield settings.database.url
        return
    with tempfile.TemporaryDirectory(prefix="cronwell-bench-") as folder:
        embedded = EmbeddedPostgres(Path(folder))
        yield embedded.start()
        embedded.stop()


@contextlib.asynccontextmanager
async def scratch(server_url: str) -> AsyncIterator[tuple[Database, str]]:
    """A fresh database with the schema, dropped afterwards."""
    name = f"cronwell_bench_{uuid4().hex[:12]}"
    parts = urlsplit(server_url)
    url = urlunsplit(parts._replace(path=f"/{name}"))
    admin = await asyncpg.connect(server_url)
    try:
        await admin.execute(f"create database {name}")
        database = await Database.connect(config.DatabaseSettings(), url, application_name="cronwell bench")
        try:
            await migrate(database)
            yield database, url
        finally:
            await database.close()
    finally:
        await admin.execute(f"drop database if exists {name} with (force)")
        await admin.close()


@contextlib.asynccontextmanager
async def fleet(settings: Settings, url: str, *, schedulers: int, workers: int) -> AsyncIterator[None]:
    """Start processes of both roles and stop them at the end."""
    settings = dataclasses.replace(
        settings,
        database=dataclasses.replace(settings.database, url=url),
        log=dataclasses.replace(settings.log, level="warning"),
        worker=dataclasses.replace(settings.worker, imports=("cronwell.bench.noop",)),
    )
    environ = {**os.environ, **config.as_environ(settings)}
    roles = ["scheduler"] * schedulers + ["worker"] * workers
    children = [
        Child(
            role,
            [sys.executable, "-m", "cronwell", role],
            environ,
            on_death=telemetry.child_died,
            stop_deadline=timedelta(seconds=30),
        )
        for role in roles
    ]
    running = [asyncio.create_task(child.run(), name=child.name) for child in children]
    try:
        yield
    finally:
        for child in children:
            child.stop()
        await asyncio.wait(running, timeout=60)
