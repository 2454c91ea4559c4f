"""Write back, in batches, what may not start now: it is ready again later, and takes no place here meanwhile."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from cronwell import telemetry
from cronwell.runtime.service import FIRST_BACKOFF
from cronwell.store.port import HeldBack, Store
from cronwell.worker.attempt import Attempt

BATCH = 500


class Holding:
    """Takes attempts with `add`, and tells for each whether it was written back. What was not is to be confirmed: somebody
    has cancelled, paused or deleted it, or it is not ours any more."""

    def __init__(self, store: Store, on_written: Callable[[Attempt, bool], None]) -> None:
        self._store = store
        self._on_written = on_written
        self._waiting: list[tuple[Attempt, datetime]] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, attempt: Attempt, ready_at: datetime) -> None:
        """Let an attempt be claimed anew from a time on."""
        self._waiting.append((attempt, ready_at))
        if self._task is None:
            self._task = asyncio.create_task(self._write(), name="holding back")

    async def _write(self) -> None:
        # Those that are held back in the same moment are written together.
        await asyncio.sleep(0)
        while self._waiting:
            batch = [each for each in self._waiting[:BATCH] if not each[0].is_lost]
            del self._waiting[:BATCH]
            by_worker: defaultdict[UUID, list[tuple[Attempt, datetime]]] = defaultdict(list)
            for attempt, ready_at in batch:
                by_worker[attempt.claimed.worker].append((attempt, ready_at))
            for worker, held in by_worker.items():
                await self._write_of(worker, held)
        self._task = None

    async def _write_of(self, worker: UUID, held: list[tuple[Attempt, datetime]]) -> None:
        # In the order of the primary key, like results: no two writers wait for each other.
        held.sort(key=lambda each: (each[0].claimed.key.job_id, each[0].claimed.key.slot))
        rows = [
            HeldBack(
                attempt.claimed.tenant_id,
                attempt.claimed.key,
                attempt.claimed.fence,
                ready_at,
                attempt.job.target_name,
            )
            for attempt, ready_at in held
        ]
        try:
            written = await self._store.hold_back(worker, rows)
        except Exception as error:  # noqa: BLE001  # whatever it is: nobody else writes them
            # They stay ours and unstarted; when the lease ends they are dropped like everything else. What was written
            # although the answer is lost is found not to be ours by the next try.
            telemetry.service_failed("holding back", error, FIRST_BACKOFF)
            await asyncio.sleep(FIRST_BACKOFF)
            self._waiting += held
            return
        for (attempt, _), is_written in zip(held, written, strict=True):
            if not attempt.is_lost:
                self._on_written(attempt, is_written)
