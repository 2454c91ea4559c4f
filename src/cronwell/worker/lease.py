"""A worker's lease: who it is, and until when it may believe that what it claimed is its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID, uuid4

from cronwell import __version__
from cronwell.config import WorkerSettings
from cronwell.runtime.clock import Clock
from cronwell.runtime.node import this_process
from cronwell.store.port import Store, Worker


class Lease:
    """Entered with `register`, kept with `renew`, given back with `leave`.

    It is trusted until (monotonic time before the request) + lease - margin: the margin is for stopping what runs
    before the database lets another worker have it.
    """

    def __init__(self, store: Store, clock: Clock, settings: WorkerSettings, handlers: Sequence[str]) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._handlers = tuple(handlers)
        self._margin = settings.lease / 6
        self._trust_deadline = 0.0
        self.worker: UUID = uuid4()
        """The worker's name to the database; a new one after each lease that was lost."""

    @property
    def is_trusted(self) -> bool:
        return time.monotonic() < self._trust_deadline

    async def register(self) -> None:
        """Enter under a new name."""
        self.worker = uuid4()
        asked = time.monotonic()
        now = self._clock.now()
        await self._store.register(
            Worker(
                id=self.worker,
                name=this_process().name,
                state="active",
                version=__version__,
                pools=self._settings.pools,
                handlers=self._handlers,
                concurrency=self._settings.concurrency,
                running=0,
                started_at=now,
                heartbeat_at=now,
                lease_until=now + self._settings.lease,
                node=this_process().id,
            )
        )
        self._trust_from(asked)

    async def renew(self, *, running: int, is_draining: bool) -> bool:
        """Lengthen the lease; False where the worker was given up as lost."""
        asked = time.monotonic()
        now = self._clock.now()
        is_kept = await self._store.heartbeat(
            self.worker, now, now + self._settings.lease, running=running, is_draining=is_draining
        )
        if is_kept:
            self._trust_from(asked)
        else:
            self._trust_deadline = 0.0
        return is_kept

    async def leave(self) -> None:
        self._trust_deadline = 0.0
        await self._store.leave(self.worker, self._clock.now())

    def _trust_from(self, asked: float) -> None:
        self._trust_deadline = asked + (self._settings.lease - self._margin) / timedelta(seconds=1)
