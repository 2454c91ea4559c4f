"""Claims that could not be started in time are asked for anew before they start.

Whoever pauses or deletes a job waits, before answering, until what workers hold must have started: until `START_WITHIN`
after its instant or its claim. A worker that comes later than that, because its machine or its event loop was busy, may
not start from memory any more: the answer may have been given. It asks the store, which counts as a new claim.

One that is late again after that, on a machine that is busy beyond measure, is claimed for a time ahead, which gives it longer
each time: nothing may be asked for for ever and never started.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from cronwell import telemetry
from cronwell.control.scheduling import START_WITHIN
from cronwell.model.execution import State
from cronwell.runtime.clock import Clock
from cronwell.runtime.service import FIRST_BACKOFF
from cronwell.store.port import Confirmed, Store
from cronwell.worker.attempt import Attempt

# Many come late together; few are asked for at once, so that they are started before they are late again.
BATCH = 200

# Whoever waits for starts waits for no more than two seconds.
LONGEST_AHEAD = timedelta(seconds=1.5)


class Latecomers:
    """Gathers attempts that are late and tells for each what the store says: start, or why not."""

    def __init__(
        self, store: Store, clock: Clock, on_confirmed: Callable[[Attempt, Confirmed | None], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._on_confirmed = on_confirmed
        self._waiting: list[Attempt] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, attempt: Attempt) -> None:
        self._waiting.append(attempt)
        if self._task is None:
            self._task = asyncio.create_task(self._confirm(), name="late starts")

    async def _confirm(self) -> None:
        # Those that come late in the same moment are asked for together.
        await asyncio.sleep(0)
        while self._waiting:
            batch = [each for each in self._waiting[:BATCH] if not each.is_lost]
            del self._waiting[:BATCH]
            by_worker: defaultdict[UUID, list[Attempt]] = defaultdict(list)
            for attempt in batch:
                by_worker[attempt.claimed.worker].append(attempt)
            for worker, attempts in by_worker.items():
                await self._confirm_of(worker, attempts)
        self._task = None

    async def _confirm_of(self, worker: UUID, attempts: list[Attempt]) -> None:
        # In the order of the primary key, like results: no two writers wait for each other.
        attempts.sort(key=lambda attempt: (attempt.claimed.key.job_id, attempt.claimed.key.slot))
        asked = time.monotonic()
        ahead = _ahead(max(attempt.times_late for attempt in attempts))
        claims = [(a.claimed.tenant_id, a.claimed.key, a.claimed.fence) for a in attempts]
        try:
            found = await self._store.confirm(worker, claims, self._clock.now(), ahead=ahead)
        except Exception as error:  # noqa: BLE001  # whatever it is: nobody else asks for them
            # They stay ours and unstarted; when the lease ends they are dropped like everything else.
            telemetry.service_failed("late starts", error, FIRST_BACKOFF)
            await asyncio.sleep(FIRST_BACKOFF)
            self._waiting += attempts
            return
        telemetry.late_starts(sum(each is not None and each.state is State.RUNNING for each in found))
        for attempt, confirmed in zip(attempts, found, strict=True):
            attempt.start_by = asked + (ahead + START_WITHIN).total_seconds()
            attempt.times_late += 1
            if not attempt.is_lost:
                self._on_confirmed(attempt, confirmed)


def _ahead(times_late: int) -> timedelta:
    """How far ahead to claim what was late so many times before."""
    return min(START_WITHIN * ((1 << times_late) - 1), LONGEST_AHEAD)
