"""A worker's lease: who it is, and until when it may believe that what it claimed is its own."""

from __future__ import annotations

import threading
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

    A name belongs to one incarnation of the database, and claims in that one only. After a failover the worker enters
    under a new name; the old one is retired: it claims nothing more, and is kept for the attempts that the new server
    confirms, until they have ended.

    `renew` is called from a thread of its own, everything else from the event loop's.
    """

    def __init__(self, store: Store, clock: Clock, settings: WorkerSettings, handlers: Sequence[str]) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._handlers = tuple(handlers)
        self._lock = threading.Lock()
        self._trust_deadline = 0.0
        self._incarnation: str | None = None
        self._is_entered = False
        self._retired: set[UUID] = set()
        self.margin = settings.lease / 6
        self.worker: UUID = uuid4()
        """The worker's name to the database; a new one after each lease that was lost, and after a failover."""
        self.is_given_up = False
        """A name of ours was taken for lost: what it held belongs to others."""
        self.is_elsewhere = False
        """Another incarnation of the database answers than the one that we entered in."""
        self.has_dropped = False
        """Attempts were stopped while the lease was in doubt: the database still takes them for ours, and some of them have run."""

    @property
    def is_trusted(self) -> bool:
        return time.monotonic() < self._trust_deadline

    @property
    def is_entered(self) -> bool:
        """Whether we have a name that is not retired."""
        return self._is_entered

    @property
    def may_claim(self) -> bool:
        """Whether what is claimed now would be ours, and whatever else stands under our name is known to us."""
        is_whole = not self.is_elsewhere and not self.is_given_up and not self.has_dropped
        return self._is_entered and is_whole and self.is_trusted

    @property
    def names(self) -> list[UUID]:
        """Every name that may hold something."""
        return [*([self.worker] if self._is_entered else []), *self._retired]

    @property
    def retired(self) -> list[UUID]:
        """Names of incarnations before this one that still hold something."""
        return list(self._retired)

    async def register(self) -> None:
        """Enter under a new name."""
        name = uuid4()
        asked = time.monotonic()
        now = self._clock.now()
        incarnation = await self._store.register(
            Worker(
                id=name,
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
        with self._lock:
            trusted = self._until(asked)
            self._trust_deadline = min(self._trust_deadline, trusted) if self._retired else trusted
            self._incarnation = incarnation
            self.worker = name
            self._is_entered = True

    async def renew(self, store: Store, *, running: int, is_draining: bool) -> None:
        """Lengthen the lease of every name, and find out whether we still have one and where."""
        asked = time.monotonic()
        names = self.names
        is_given_up = False
        incarnation = None
        for name in names:
            now = self._clock.now()
            incarnation = await store.heartbeat(
                name, now, now + self._settings.lease, running=running, is_draining=is_draining
            )
            is_given_up = is_given_up or incarnation is None
        with self._lock:
            if names != self.names:
                return  # a name came or went meanwhile: what was asked says too little
            if is_given_up:
                self._trust_deadline = 0.0
                self.is_given_up = True
            elif names:
                self._trust_deadline = self._until(asked)
                if self._is_entered:
                    self.is_elsewhere = incarnation != self._incarnation

    def retire(self) -> None:
        """Claim no more under this name; it is kept for what it holds."""
        with self._lock:
            if self._is_entered:
                self._retired.add(self.worker)
                self._is_entered = False

    async def let_go(self, name: UUID) -> None:
        """Give up a retired name that holds nothing any more."""
        with self._lock:
            # First: a name that was given up, and whose answer is lost, would be taken for one that somebody took from us.
            self._retired.discard(name)
        await self._store.leave(name, self._clock.now())

    async def leave(self) -> None:
        """Give every name back."""
        names = self.names
        with self._lock:
            self._trust_deadline = 0.0
            self._is_entered = self.is_given_up = self.is_elsewhere = self.has_dropped = False
            self._retired.clear()
        for name in names:
            await self._store.leave(name, self._clock.now())

    def _until(self, asked: float) -> float:
        return asked + (self._settings.lease - self.margin) / timedelta(seconds=1)
