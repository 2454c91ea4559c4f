"""PgQueuer's part of the comparison."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from datetime import timedelta

import asyncpg
import peer
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job, Schedule
from pgqueuer.queries import Queries

CHUNK = 5000


async def prepare() -> None:
    """Make the schema and enqueue the jobs."""
    connection = await asyncpg.connect(peer.DATABASE_URL)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    for first in range(0, peer.JOBS, CHUNK):
        numbers = range(first, min(first + CHUNK, peer.JOBS))
        after: list[timedelta | None] = [None] * len(numbers)
        if peer.WORK == "steady":
            now = time.time()
            after = [timedelta(seconds=peer.due(number) - now) for number in numbers]
        payloads: list[bytes | None] = [str(number).encode() for number in numbers]
        await queries.enqueue(["noop"] * len(numbers), payloads, [0] * len(numbers), after)
    await connection.execute("vacuum analyze")
    await connection.close()


async def work() -> None:
    """Run one worker."""
    pool = await asyncpg.create_pool(peer.DATABASE_URL, min_size=2, max_size=8)
    pgq = PgQueuer.from_asyncpg_pool(pool)

    @pgq.entrypoint("noop")
    async def noop(job: Job) -> None:
        number = int(job.payload or b"0")
        peer.started(peer.due(number) if peer.WORK == "steady" else None, number)

    for number in range(peer.SCHEDULES):

        @pgq.schedule(f"schedule_{number}", "* * * * * *")
        async def fire(_schedule: Schedule, number: int = number) -> None:
            peer.started(float(math.floor(time.time())), number)

    loop = asyncio.get_running_loop()
    peer.watch(lambda: loop.call_soon_threadsafe(pgq.shutdown.set))
    await pgq.run(batch_size=500 if peer.WORK == "drain" else 100)
    peer.report()


if __name__ == "__main__":
    uvloop.run(prepare() if sys.argv[1] == "prepare" else work())
