"""The scheduler: stages coming slots of its shards, and does its share of the chores of the house.

Its services, in the order of starting; they stop in reverse:

    watch        tells when duties are free
    duties       last to give anything back: nobody else should begin while we still write
    watermark    says up to where the slots of our shards are accounted for
    chores
    staging      first to stop: nothing new
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from cronwell import telemetry
from cronwell.coordination.port import Coordination
from cronwell.runtime.service import Loop, Service
from cronwell.scheduler.chores.port import Chore
from cronwell.scheduler.duties import Duties, DutyLoop
from cronwell.scheduler.staging import Staging
from cronwell.scheduler.watermark import Watermark

# How soon a chore is taken up once it is ours.
LOOK = timedelta(seconds=1)


def scheduler_services(
    duties: Duties,
    coordination: Coordination,
    staging: Staging,
    watermark: Watermark,
    chores: Sequence[Chore],
) -> list[Service]:
    """The services of a scheduler process."""
    failed = telemetry.service_failed
    return [
        coordination.watch(duties.waker.wake),
        DutyLoop(duties),
        Loop("watermark", watermark.mark, on_error=failed),
        *(ChoreLoop(chore, duties) for chore in chores),
        Loop("staging", staging.poll, on_error=failed, waker=duties.on_gain),
    ]


class ChoreLoop(Loop):
    """Does one chore while it is ours."""

    def __init__(self, chore: Chore, duties: Duties) -> None:
        super().__init__(f"chore {chore.name}", self._round, on_error=telemetry.service_failed)
        self._chore = chore
        self._duties = duties
        self._due_deadline = 0.0

    async def _round(self) -> timedelta:
        # Looked at far more often than a slow chore is due, so that one whose holder died is taken up soon.
        if self._duties.has_chore(self._chore.name) and time.monotonic() >= self._due_deadline:
            await self._chore.run_once()
            telemetry.chore_done(self._chore.name)
            self._due_deadline = time.monotonic() + self._chore.every.total_seconds()
        return min(self._chore.every, LOOK)
