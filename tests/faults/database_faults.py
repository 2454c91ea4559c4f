"""Faults of PostgreSQL: restarted, killed, robbed of its backends, held back, out of disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from typing import Literal

import asyncpg

from tests.faults.cluster import Cluster
from tests.faults.fault import Fault
from tests.faults.pace import lasting
from tests.support.waiting import until_blocking

_GONE = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError)


class DatabaseRestarted(Fault):
    """`fast` ends every session; `immediate` is a crash with a recovery."""

    def __init__(self, mode: Literal["fast", "immediate"]) -> None:
        super().__init__(f"PostgreSQL restart, {mode}", 0.5)
        self._mode = mode

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        del rng
        await asyncio.to_thread(cluster.server.restart, self._mode)
        return "PostgreSQL"


class DatabaseKilled(Fault):
    """kill -9 of the server; it stays away for a while."""

    def __init__(self, away: float = 3.0) -> None:
        super().__init__("PostgreSQL kill -9", away)

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        del rng
        os.kill(cluster.server.pid, signal.SIGKILL)
        await asyncio.to_thread(until_blocking, lambda: not cluster.server.is_running)
        return "PostgreSQL"

    async def heal(self, cluster: Cluster) -> None:
        await asyncio.to_thread(cluster.server.ensure_running)


class BackendsTerminated(Fault):
    """A stream of pg_terminate_backend."""

    def __init__(self) -> None:
        super().__init__("pg_terminate_backend", 4.0)
        self._stream: asyncio.Task[None] | None = None

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        async def terminate() -> None:
            with contextlib.suppress(*_GONE):
                connection = await cluster.connect()
                try:
                    while True:
                        await connection.execute(
                            """select pg_terminate_backend(pid) from pg_stat_activity
                            where application_name like 'cronwell%' order by random() limit 2"""
                        )
                        await lasting(rng.uniform(0.05, 0.3))
                finally:
                    await connection.close()

        self._stream = asyncio.create_task(terminate())
        return "PostgreSQL"

    async def heal(self, cluster: Cluster) -> None:
        if self._stream is not None:
            self._stream.cancel()
            await asyncio.gather(self._stream, return_exceptions=True)
            self._stream = None


class LongTransaction(Fault):
    """A transaction that stays open holds back vacuum: every dead row stays where it is."""

    def __init__(self) -> None:
        super().__init__("long transaction", 8.0)
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        del rng
        self._connection = await cluster.connect()
        await self._connection.execute("begin isolation level repeatable read")
        await self._connection.execute("select count(*) from executions")
        return "PostgreSQL"

    async def heal(self, cluster: Cluster) -> None:
        if self._connection is not None:
            with contextlib.suppress(*_GONE):
                await self._connection.close()
            self._connection = None


class DiskFull(Fault):
    """No room for the database: a file takes what is left of the small file system that the server is on."""

    def __init__(self) -> None:
        super().__init__("disk full", 4.0)

    def impossible(self, cluster: Cluster) -> str | None:
        return (
            None
            if cluster.disk is not None
            else "the server is not on a small file system of its own (needs root)"
        )

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        del rng
        assert cluster.disk is not None
        await asyncio.to_thread(_fill, str(cluster.disk / "ballast"))
        return "PostgreSQL"

    async def heal(self, cluster: Cluster) -> None:
        assert cluster.disk is not None
        (cluster.disk / "ballast").unlink(missing_ok=True)
        # Without room for its log PostgreSQL stops.
        await asyncio.to_thread(cluster.server.ensure_running)


def _fill(path: str) -> None:
    with contextlib.suppress(OSError), open(path, "ab", buffering=0) as ballast:  # noqa: PTH123  # in a thread
        while True:
            ballast.write(bytes(1 << 20))
