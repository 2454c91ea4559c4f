"""Procrastinate's part of the comparison."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime

import peer
import uvloop
from procrastinate import App, PsycopgConnector

CHUNK = 1000
CONCURRENCY = 20

app = App(
    connector=PsycopgConnector(conninfo=peer.DATABASE_URL, min_size=4, max_size=CONCURRENCY + 4),
)


@app.task(name="noop")
async def noop(number: int) -> None:
    """Keep when it started."""
    peer.started(peer.due(number) if peer.WORK == "steady" else None, number)


@app.task(name="fire")
async def fire(timestamp: int, number: int) -> None:
    """Keep when it started, against its slot."""
    peer.started(float(timestamp), number)


async def prepare() -> None:
    """Make the schema and defer the jobs."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for first in range(0, peer.JOBS, CHUNK):
            numbers = range(first, min(first + CHUNK, peer.JOBS))
            if peer.WORK == "drain":
                await noop.batch_defer_async(*({"number": number} for number in numbers))
            else:
                deferrals = [
                    noop.configure(schedule_at=datetime.fromtimestamp(peer.due(number), UTC)).make_new_job(
                        number=number
                    )
                    for number in numbers
                ]
                await app.job_manager.batch_defer_jobs_async(jobs=deferrals)
        await app.connector.execute_query_async("analyze")


async def work() -> None:
    """Run one worker."""
    for number in range(peer.SCHEDULES):
        app.periodic(cron="* * * * * *", periodic_id=str(number), task_kwargs={"number": number})(fire)
    async with app.open_async():
        worker = asyncio.create_task(
            app.run_worker_async(
                concurrency=CONCURRENCY,
                fetch_job_polling_interval=0.1 if peer.WORK == "steady" else 1.0,
                delete_jobs="always",
                install_signal_handlers=False,
            )
        )
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        peer.watch(lambda: loop.call_soon_threadsafe(stopping.set))
        await asyncio.wait(
            {worker, asyncio.create_task(stopping.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        worker.cancel()
        await asyncio.wait({worker}, timeout=10)
    peer.report()


if __name__ == "__main__":
    uvloop.run(prepare() if sys.argv[1] == "prepare" else work())
