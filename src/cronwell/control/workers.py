"""What users are shown of workers."""

from __future__ import annotations

from uuid import UUID

from cronwell.control.views import Moment, View
from cronwell.store.port import Worker


class WorkerView(View):
    id: UUID
    name: str
    state: str
    version: str
    pools: list[str]
    handlers: list[str]
    concurrency: int
    running: int
    started_at: Moment
    heartbeat_at: Moment


def worker_view(worker: Worker) -> WorkerView:
    return WorkerView(
        id=worker.id,
        name=worker.name,
        state=worker.state,
        version=worker.version,
        pools=list(worker.pools),
        handlers=list(worker.handlers),
        concurrency=worker.concurrency,
        running=worker.running,
        started_at=worker.started_at,
        heartbeat_at=worker.heartbeat_at,
    )
