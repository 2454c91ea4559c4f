"""Giving back what was claimed and has not started: what is held when the worker stops, and claims that it never heard of.

The answer of a claim can be lost although it was made. One look at what stands under our name is not enough then: the statement may
still be under way in the database, behind a lock or a standby, and be committed after the look. So the worker looks for as
long as one may last.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from cronwell.model.execution import ExecutionKey, Result, State
from cronwell.runtime.clock import Clock
from cronwell.store.port import Ended, Store
from cronwell.worker.attempt import Claim
from cronwell.worker.lease import Lease
from cronwell.worker.slots import Slots

DOUBT_SECONDS = 45.0
"""A statement lasts 30 s at the most, and a commit that waits for a standby a little longer."""
LOOK_SECONDS = 1.0


class Strays:
    """Claims that stand under our name and that we know nothing of."""

    def __init__(self, store: Store, clock: Clock, lease: Lease, slots: Slots) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._slots = slots
        self._doubt_deadline = 0.0
        self._look_at = 0.0

    def doubt(self) -> None:
        """A claim may have been made without us, or may still be."""
        self._doubt_deadline = time.monotonic() + DOUBT_SECONDS
        self._look_at = 0.0

    async def look(self) -> None:
        """Give back what we know nothing of, where there is doubt and we have not looked just now."""
        now = time.monotonic()
        if now < self._doubt_deadline and now >= self._look_at:
            worker = self._lease.worker
            held = await self._store.held_by(worker)
            if self._lease.worker != worker or not self._lease.may_claim:
                # What has run and was dropped meanwhile is unknown here as well, and would be given back as if it never had.
                return
            await give_back(self._store, worker, self._slots.unknown(held), self._clock.now())
            self._look_at = time.monotonic() + LOOK_SECONDS


async def give_back(store: Store, worker: UUID, claims: Collection[Claim], now: datetime) -> None:
    """Let others have claims that were not started.

    What a pause, a delete or a cancel has reached meanwhile is for nobody to start: it ends here, or else it would be
    ours, and running, for as long as we live.
    """
    if not claims:
        return
    claims = sorted_claims(claims)
    confirmed = await store.confirm(worker, claims, now)
    cancelled = [
        ended_before_start(claim, worker, now, "cancelled", "cancelled before it started")
        for claim, found in zip(claims, confirmed, strict=True)
        if found is not None and found.is_cancelled and found.state is State.RUNNING
    ]
    if cancelled:
        await store.complete(cancelled)
    await store.hand_back(worker, claims)


def sorted_claims(claims: Collection[Claim]) -> list[Claim]:
    """In the order of the primary key, like results: no two writers wait for each other."""
    return sorted(claims, key=lambda claim: (claim[1].job_id, claim[1].slot))


def ended_before_start(
    claim: tuple[int, ExecutionKey, int], worker: UUID, now: datetime, error_kind: str, error: str
) -> Ended:
    """An execution that is cancelled without having run."""
    tenant_id, key, fence = claim
    return Ended(
        tenant_id=tenant_id,
        key=key,
        fence=fence,
        worker=worker,
        state=State.CANCELLED,
        result=Result.CANCELLED,
        started_at=None,
        finished_at=now,
        error_kind=error_kind,
        error=error,
    )
