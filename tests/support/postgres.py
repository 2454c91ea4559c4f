"""A real PostgreSQL for tests: one server per run, one database per test.

`TEST_DATABASE_URL` (a superuser's, on any PostgreSQL 15-18) makes the tests use that server instead of an
embedded one; each test still gets a database of its own.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from cronwell.runtime.account import Account
from cronwell.runtime.embedded import EmbeddedPostgres

# Without the prefix of the settings: Cronwell refuses to start with one that it does not know.
SERVER_VARIABLE = "TEST_DATABASE_URL"
TEMPLATE_VARIABLE = "TEST_DATABASE_TEMPLATE"
# Nothing here outlives the run, so nothing is flushed to disk.
UNSAFE_BUT_FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
}

# What the server has written survives its death without a flush, as long as the machine lives.
SURVIVES_A_KILL = {"synchronous_commit": "on", "full_page_writes": "on"}

_MEMORY = Path("/dev/shm")
_ENOUGH_MEMORY = 4 * 1024**3


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """A short path that PostgreSQL's user can reach also where the tests run as root; in memory where that is roomy.

    In memory, a database is made in 20 ms; on a disk that is also busy with other things it took 300 ms.
    """
    is_roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ENOUGH_MEMORY
    path = Path(tempfile.mkdtemp(prefix="cronwell-test-", dir=_MEMORY if is_roomy else None))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def furnish(data_dir: Path) -> None:
    """Give a server its first data: a copy of those that were made for the first one of this run.

    Copying them takes a tenth of the time. All such servers have one identifier, as copies of a disk would.
    """
    template = Path(os.environ[TEMPLATE_VARIABLE])
    with (template / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (template / "postgres").exists():
            first = EmbeddedPostgres(template / "data", extra=UNSAFE_BUT_FAST)
            first.start()
            first.stop("fast")
            (template / "data" / "postgres").rename(template / "postgres")
    Account.of_server().make_private(data_dir)
    subprocess.run(["cp", "-a", str(template / "postgres"), str(data_dir)], check=True)


@contextmanager
def template() -> Iterator[None]:
    """A place for what `furnish` copies, for this process and those that it starts."""
    if TEMPLATE_VARIABLE in os.environ:
        yield
        return
    with temporary_directory() as folder:
        os.environ[TEMPLATE_VARIABLE] = str(folder)
        yield
        del os.environ[TEMPLATE_VARIABLE]


@contextmanager
def temporary_server(**extra: str) -> Iterator[EmbeddedPostgres]:
    """A server of one's own, to stop and restart; it ends, and its data with it, after the block.

    `extra` overrides its settings: with SURVIVES_A_KILL, what was committed is there after it was killed.
    """
    with temporary_directory() as directory:
        furnish(directory / "data")
        server = EmbeddedPostgres(directory / "data", extra={**UNSAFE_BUT_FAST, **extra})
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")


@contextmanager
def shared_server() -> Iterator[str]:
    """The URL of the server that all tests share."""
    given = os.environ.get(SERVER_VARIABLE)
    if given:
        yield given
        return
    with temporary_server() as server:
        yield server.url


async def create_database(url: str, *, template: str | None = None) -> str:
    """Make a new database on the server at `url` and return its URL.

    `template` is the URL of a database to copy, to which nobody may be connected: migrate once, copy for each test.
    """
    name = f"test_{uuid4().hex}"
    # By files it takes 46 ms, and its end 20; page by page through the log it was 107 and 43 (November 2026).
    like = f'template "{database_name(template)}" strategy file_copy' if template is not None else ""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f'create database "{name}" {like}')
    finally:
        await connection.close()
    return _with_database(url, name)


async def drop_database(url: str, database_url: str) -> None:
    """Remove a database from the server at `url`, together with the connections that it still has."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f'drop database if exists "{database_name(database_url)}" with (force)')
    finally:
        await connection.close()


def database_name(url: str) -> str:
    """The database that a URL names."""
    return urlsplit(url).path.removeprefix("/")


def _with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
