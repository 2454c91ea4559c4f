"""What users are shown of workers."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from cronwell.control.views import Moment, View
from cronwell.store.port import Worker


class WorkerView(View):
    id: UUID
    """A new one after each lease that was lost."""
    node: UUID | None
    """The process that it belongs to."""
    name: str
    state: str
    version: str
    pools: list[str]
    handlers: list[str]
    concurrency: int
    running: int
    started_at: Moment
    heartbeat_at: Moment
    lease_left_s: float
    """Seconds until it is taken for lost, unless it is heard of before."""


def worker_view(worker: Worker, now: datetime) -> WorkerView:
    return WorkerView(
        id=worker.id,
        node=worker.node,
        name=worker.name,
        state=worker.state,
        version=worker.version,
        pools=list(worker.pools),
        handlers=list(worker.handlers),
        concurrency=worker.concurrency,
        running=worker.running,
        started_at=worker.started_at,
        heartbeat_at=worker.heartbeat_at,
        lease_left_s=max(0.0, round((worker.lease_until - now).total_seconds(), 3)),
    )
