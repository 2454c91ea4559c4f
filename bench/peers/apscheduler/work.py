"""APScheduler's part of the comparison."""

from __future__ import annotations

import math
import pickle
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any

import peer
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.job import Job
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.util import datetime_to_utc_timestamp

URL = peer.DATABASE_URL.replace("postgresql:", "postgresql+psycopg:")


def noop(number: int) -> None:
    """Keep when it started."""
    peer.started(peer.due(number) if peer.WORK == "steady" else None, number)


def fire(number: int) -> None:
    """Keep when it started, against the last full second."""
    peer.started(float(math.floor(time.time())), number)


class BulkStore(SQLAlchemyJobStore):
    """The store, but jobs are kept until they are written all at once: a transaction each would take minutes."""

    def __init__(self, url: str) -> None:
        super().__init__(url=url)
        self._rows: list[dict[str, Any]] = []

    def add_job(self, job: Job) -> None:
        """Keep the row that the store would write."""
        moment = datetime_to_utc_timestamp(job.next_run_time)
        state = pickle.dumps(job.__getstate__(), self.pickle_protocol)
        self._rows.append({"id": job.id, "next_run_time": moment, "job_state": state})

    def write(self) -> None:
        """Write every row."""
        if self._rows:
            with self.engine.begin() as connection:
                connection.execute(self.jobs_t.insert(), self._rows)


def scheduler(store: SQLAlchemyJobStore) -> BackgroundScheduler:
    """A scheduler on the store in PostgreSQL."""
    return BackgroundScheduler(
        jobstores={"default": store},
        executors={"default": ThreadPoolExecutor(20)},
        job_defaults={"misfire_grace_time": None, "coalesce": False, "max_instances": 100},
        timezone=UTC,
    )


def prepare() -> None:
    """Make the schema and add the jobs."""
    store = BulkStore(URL)
    paused = scheduler(store)
    paused.start(paused=True)
    start = datetime.fromtimestamp(peer.START, UTC)
    for number in range(peer.SCHEDULES):
        paused.add_job("work:fire", "interval", seconds=1, start_date=start, args=[number])
    now = datetime.now(UTC)
    for number in range(peer.JOBS):
        due = datetime.fromtimestamp(peer.due(number), UTC) if peer.WORK == "steady" else now
        paused.add_job("work:noop", "date", run_date=due, args=[number])
    store.write()
    paused.shutdown()


def work() -> None:
    """Run the scheduler."""
    running = scheduler(SQLAlchemyJobStore(url=URL))
    running.start()
    stopping = threading.Event()
    peer.watch(stopping.set)
    stopping.wait()
    running.shutdown(wait=True)
    peer.report()


if __name__ == "__main__":
    prepare() if sys.argv[1] == "prepare" else work()
