"""APScheduler's part of the comparison."""

from __future__ import annotations

import math
import sys
import threading
import time
from datetime import UTC, datetime

import peer
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler


def noop(number: int) -> None:
    """Keep when it started."""
    peer.started(peer.due(number) if peer.WORK == "steady" else None, number)


def fire(number: int) -> None:
    """Keep when it started, against the last full second."""
    peer.started(float(math.floor(time.time())), number)


def scheduler() -> BackgroundScheduler:
    """A scheduler on the store in PostgreSQL."""
    return BackgroundScheduler(
        jobstores={
            "default": SQLAlchemyJobStore(url=peer.DATABASE_URL.replace("postgresql:", "postgresql+psycopg:"))
        },
        executors={"default": ThreadPoolExecutor(20)},
        job_defaults={"misfire_grace_time": None, "coalesce": False, "max_instances": 100},
        timezone=UTC,
    )


def prepare() -> None:
    """Make the schema and add the jobs."""
    paused = scheduler()
    paused.start(paused=True)
    start = datetime.fromtimestamp(peer.START, UTC)
    for number in range(peer.SCHEDULES):
        paused.add_job("work:fire", "interval", seconds=1, start_date=start, args=[number])
    now = datetime.now(UTC)
    for number in range(peer.JOBS):
        due = datetime.fromtimestamp(peer.due(number), UTC) if peer.WORK == "steady" else now
        paused.add_job("work:noop", "date", run_date=due, args=[number])
    paused.shutdown()


def work() -> None:
    """Run the scheduler."""
    running = scheduler()
    running.start()
    stopping = threading.Event()
    peer.watch(stopping.set)
    stopping.wait()
    running.shutdown(wait=True)
    peer.report()


if __name__ == "__main__":
    prepare() if sys.argv[1] == "prepare" else work()
