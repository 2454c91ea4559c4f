"""Who works, as a warning wants to know it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from cronwell.model.job import DEFAULT_POOL
from cronwell.runtime.clock import Clock
from cronwell.store.port import Store, Worker

FRESH_SECONDS = 1.0


class Crew:
    """The living workers. Somebody who creates job after job has them read once a second, not for each."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._workers: Sequence[Worker] = ()
        self._read_at = float("-inf")

    async def for_job(self, raw: Mapping[str, Any]) -> Sequence[Worker]:
        """The workers to hold a definition against: read anew, unless one that was there a moment ago will do for it."""
        if time.monotonic() - self._read_at > FRESH_SECONDS or not self._will_do(raw):
            self._workers = await self._store.list_workers(self._clock.now())
            self._read_at = time.monotonic()
        return self._workers

    def _will_do(self, raw: Mapping[str, Any]) -> bool:
        target = raw.get("target")
        if isinstance(target, Mapping) and "handler" in target:
            return False
        pool = raw.get("pool", DEFAULT_POOL)
        return any(worker.state == "active" and pool in worker.pools for worker in self._workers)
