"""The PostgreSQL that everybody runs on, and the Redis of those who need one: durable, and on loopback alone."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from cronwell.bench.fleet import free_ports
from cronwell.runtime.embedded import EmbeddedPostgres


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A server that answers on TCP, which is what all peers can speak."""

    url: str
    pid: int

    @contextlib.asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """A fresh database, dropped afterwards; its address."""
        name = f"peer_{uuid4().hex[:12]}"
        admin = await asyncpg.connect(self.url)
        try:
            await admin.execute(f"create database {name}")
            # What the last one has left to be written is not charged to the next.
            await admin.execute("checkpoint")
            yield urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))
        finally:
            await admin.execute(f"drop database if exists {name} with (force)")
            await admin.close()


@contextlib.asynccontextmanager
async def postgres() -> AsyncIterator[PostgresServer]:
    """The embedded PostgreSQL with Cronwell's settings, and a port for those that cannot open a socket file."""
    port, password = free_ports("127.0.0.1"), secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="cronwell-peers-") as folder:
        data_dir = Path(folder) / "data"
        access = Path(folder) / "pg_hba.conf"
        access.write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        extra = {"listen_addresses": "127.0.0.1", "port": str(port), "hba_file": str(access)}
        embedded = EmbeddedPostgres(data_dir, extra=extra)
        url = await asyncio.to_thread(embedded.start)
        try:
            # The address that it knows of has the usual port in it; the socket is named after the real one.
            owner = await asyncpg.connect(url.replace("port=5432", f"port={port}"))
            await owner.execute(f"alter role postgres password '{password}'")
            await owner.close()
            parts = urlsplit(url)
            yield PostgresServer(
                f"postgresql://{quote(parts.username or '')}:{password}@127.0.0.1:{port}{parts.path}",
                embedded.pid,
            )
        finally:
            await asyncio.to_thread(embedded.stop)


@contextlib.asynccontextmanager
async def redis(server: Path) -> AsyncIterator[str]:
    """A Redis that keeps a log of its writes, flushed every second; its address."""
    port = free_ports("127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="cronwell-peers-") as folder:
        process = await asyncio.create_subprocess_exec(
            server, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder,
            "--save", "", "--appendonly", "yes", "--appendfsync", "everysec",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            await _until_listening(port)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
            await process.wait()


async def _until_listening(port: int) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)
    raise TimeoutError("Redis did not start")
