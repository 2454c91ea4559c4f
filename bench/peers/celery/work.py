"""Celery's part of the comparison."""

from __future__ import annotations

import sys
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path

import peer
from celery import Celery
from celery.beat import Service
from celery.signals import worker_ready
from celery.worker import state

app = Celery("work", broker=peer.REDIS_URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    worker_prefetch_multiplier=100,
    worker_redirect_stdouts=False,
    broker_connection_retry_on_startup=True,
    beat_max_loop_interval=1,
    beat_schedule={
        f"schedule_{number}": {"task": "fire", "schedule": 1.0, "args": (number,)}
        for number in range(peer.SCHEDULES)
    },
)


@app.task(name="noop")
def noop(number: int) -> None:
    """Keep when it started."""
    peer.started(peer.due(number) if peer.WORK == "steady" else None, number)


@app.task(name="fire")
def fire(number: int) -> None:
    """Keep when it started."""
    peer.started(None, number)


def prepare() -> None:
    """Send the tasks."""
    with app.producer_or_acquire() as producer:
        for number in range(peer.JOBS):
            eta = datetime.fromtimestamp(peer.due(number), UTC) if peer.WORK == "steady" else None
            noop.apply_async((number,), eta=eta, producer=producer)


def work() -> None:
    """Run one worker."""

    def stop() -> None:
        state.should_stop = 0

    worker_ready.connect(lambda **_: peer.watch(stop), weak=False)
    worker = app.Worker(
        pool="solo",
        concurrency=1,
        loglevel="WARNING",
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    peer.report()


def beat() -> None:
    """Run the one beat."""
    with tempfile.TemporaryDirectory() as folder:
        service = Service(app, schedule_filename=str(Path(folder) / "beat"))
        running = threading.Thread(target=service.start, daemon=True)
        running.start()
        stopping = threading.Event()
        peer.watch(stopping.set)
        stopping.wait()
        service.stop(wait=True)
    peer.report()


if __name__ == "__main__":
    {"prepare": prepare, "work": work, "beat": beat}[sys.argv[1]]()
