"""Take executions back from workers that have fallen silent.

An execution's lease is its worker's heartbeat. When that ends the worker is marked lost, which is final: it cannot
lengthen its lease, claim, or complete under that name any more. Then what it held is recorded as a lost attempt and
tried again, or given up, by the job's own policy. A result that the worker still sends comes too late: the execution is
no longer running under its fence.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from cronwell import telemetry
from cronwell.model.execution import Result
from cronwell.model.retry import policy_of, what_follows
from cronwell.runtime.clock import Clock
from cronwell.store.port import Ended, Orphan, Store

BATCH = 1000


class Rescue:
    """Implements `Chore`."""

    name = "rescue"
    every = timedelta(seconds=1)

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run_once(self) -> int:
        for worker in await self._store.lose_workers(self._clock.now()):
            telemetry.worker_lost(str(worker))
        rescued = 0
        while True:
            orphans = await self._store.orphans(BATCH)
            if not orphans:
                return rescued
            now = self._clock.now()
            states = await self._store.complete([_ended(orphan, now) for orphan in orphans])
            count = sum(state is not None for state in states)
            rescued += count
            if count:
                telemetry.rescued(count)
            else:
                return rescued


def _ended(orphan: Orphan, now: datetime) -> Ended:
    state, delay = what_follows(
        policy_of(orphan.spec),
        Result.WORKER_LOST,
        orphan.attempt,
        is_cancelled=orphan.is_cancelled,
        random=random.random(),
    )
    return Ended(
        tenant_id=orphan.tenant_id,
        key=orphan.key,
        fence=orphan.fence,
        worker=orphan.worker,
        state=state,
        result=Result.WORKER_LOST,
        started_at=orphan.started_at,
        finished_at=now,
        ready_at=None if delay is None else now + delay,
        error_kind="worker_lost",
        error=f"worker {orphan.worker} fell silent before it said how the attempt ended",
    )
