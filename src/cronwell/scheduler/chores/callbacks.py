"""End the executions whose callback has not come in time, or that were cancelled while they waited for it.

They are locked before they are judged: a callback that comes at this moment either is seen, and has lengthened the time, or
finds the attempt over.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from cronwell import durations
from cronwell.control.callbacks import announce, conclude
from cronwell.model.execution import Result
from cronwell.runtime.clock import Clock
from cronwell.store.port import Called, Store
from cronwell.targets.port import Outcome

BATCH = 500
CALLED_OFF = Outcome(
    Result.CANCELLED, error="cancelled while it waited for its callback", error_kind="cancelled"
)


class CalledBack:
    """Implements `Chore`."""

    name = "callbacks"
    every = timedelta(seconds=1)

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run_once(self) -> int:
        total = 0
        while True:
            now = self._clock.now()
            began = time.perf_counter()
            async with self._store.transaction() as transaction:
                overdue = await transaction.lock_overdue(now, BATCH)
                # In the order of the primary key, like results: no two writers wait for each other.
                overdue.sort(key=lambda each: (each.key.job_id, each.key.slot))
                ends = [(each, conclude(each, _outcome(each, now), now)) for each in overdue]
                states = await transaction.complete([ended for _, ended in ends]) if ends else []
            if ends:
                announce(ends, states, timedelta(seconds=time.perf_counter() - began))
            total += len(ends)
            if len(ends) < BATCH or not any(states):
                return total


def _outcome(called: Called, now: datetime) -> Outcome:
    if called.is_cancelled:
        return CALLED_OFF
    if called.deadline is not None and called.deadline <= now:
        waited = called.deadline - (called.started_at or called.deadline)
        return Outcome(
            Result.TIMED_OUT,
            error=f"no callback came within {durations.write(waited)} of its start",
            error_kind="callback_deadline",
        )
    return Outcome(
        Result.TIMED_OUT,
        error="no heartbeat came in time: whoever was called has fallen silent",
        error_kind="callback_heartbeat",
    )
