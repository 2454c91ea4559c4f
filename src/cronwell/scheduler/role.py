"""The scheduler: stages coming slots, and does the chores of the house, each under its own lease."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID, uuid4

from cronwell import telemetry
from cronwell.coordination.port import Leases
from cronwell.runtime.service import Loop, Service
from cronwell.scheduler.chores.port import Chore
from cronwell.scheduler.staging import Staging

# A chore passes to another scheduler this long after its holder was last heard of.
CHORE_LEASE = timedelta(seconds=5)


def scheduler_services(staging: Staging, chores: Sequence[Chore], leases: Leases) -> list[Service]:
    """The services of a scheduler process."""
    owner = uuid4()
    return [
        *(ChoreLoop(chore, leases, owner) for chore in chores),
        Loop("staging", staging.poll, on_error=telemetry.service_failed),
    ]


class ChoreLoop(Loop):
    """Does one chore while its lease is held; gives the lease back when it stops."""

    def __init__(self, chore: Chore, leases: Leases, owner: UUID) -> None:
        super().__init__(f"chore {chore.name}", self._round, on_error=telemetry.service_failed)
        self._chore = chore
        self._leases = leases
        self._owner = owner
        self._lease = f"chore:{chore.name}"
        self._due_deadline = 0.0

    async def run(self) -> None:
        await super().run()
        await self._leases.release([self._lease], self._owner)

    async def _round(self) -> timedelta:
        # The lease is renewed far more often than a slow chore is due, so that a dead holder is replaced soon.
        renew = min(self._chore.every, CHORE_LEASE / 2)
        held = await self._leases.acquire([self._lease], self._owner, renew + CHORE_LEASE)
        if held and time.monotonic() >= self._due_deadline:
            await self._chore.run_once()
            self._due_deadline = time.monotonic() + self._chore.every.total_seconds()
        return renew
