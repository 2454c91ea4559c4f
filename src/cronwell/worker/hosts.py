"""What workers tell each other of hosts, and how they share the limits of targets: once with each heartbeat.

Each decides by itself, at once. A worker that cannot reach the database goes on with what it knows; what it does not hear of
costs a few calls to a host that is ill, or a share that is too large or too small for a while.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from cronwell import errors
from cronwell.config import WorkerSettings
from cronwell.model.throttle import Limit
from cronwell.runtime.clock import Clock
from cronwell.store.port import Store
from cronwell.worker.lease import Lease
from cronwell.worker.valves import Subject, Valves

RELEASED_AT_ONCE = 2000
SLACK = timedelta(seconds=5)
"""What was written by a clock that is behind, or committed late, is read once more."""


class Hosts:
    """One loop."""

    def __init__(
        self, store: Store, clock: Clock, settings: WorkerSettings, lease: Lease, valves: Valves
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._lease = lease
        self._valves = valves
        self.workers = 1
        """How many serve our pools, as far as is known."""
        self._stamp: tuple[int, datetime | None] | None = None
        self._limits: dict[Subject, Limit] = {}
        self._heard_until: datetime | None = None
        self._to_release: set[Subject] = set()

    def begin_anew(self) -> None:
        """Forget what was read: another incarnation of the database answers, in which it may not be true."""
        self._stamp = self._heard_until = None

    async def share(self) -> timedelta:
        """Tell what is new here, and hear what is new elsewhere."""
        await self._tell()
        await self._hear()
        await self._follow()
        await self._release()
        self._valves.tidy()
        return timedelta() if self._to_release else self._settings.heartbeat

    async def _tell(self) -> None:
        news = self._valves.take_news()
        if news:
            try:
                # In the order of their keys: no two writers wait for each other.
                await self._store.note_hosts(sorted(news, key=lambda each: (each.tenant_id, each.host)))
            except errors.StoreUnavailable:
                self._valves.give_news_back(news)
                raise

    async def _hear(self) -> None:
        now = self._clock.now()
        # The first time: whatever has changed since hosts were forgotten. Most of it is closed, and passed over.
        since = self._heard_until - SLACK if self._heard_until else now - timedelta(days=3650)
        for found in await self._store.changed_hosts(since):
            self._valves.hear(found)
        self._heard_until = now

    async def _follow(self) -> None:
        found = await self._store.throttling(self._clock.now(), self._settings.pools)
        if found.stamp != self._stamp:
            rows = await self._store.every_limit()
            limits = {(row.tenant_id, row.target): row.limit for row in rows}
            if self._stamp is not None:
                # What waits was given its time by another limit. It comes again now, to each worker that hears of it.
                self._to_release |= {subject for subject, _ in limits.items() ^ self._limits.items()}
            self._limits, self._stamp = limits, found.stamp
        own = self._lease.worker
        # One that has not entered yet, or is not seen, counts itself.
        workers = found.workers if own in found.workers else (*found.workers, own)
        self.workers = len(workers)
        self._valves.limit(self._limits, self.workers, workers.index(own))

    async def _release(self) -> None:
        """Let what waits for hosts that are well again be ready now."""
        self._to_release.update(self._valves.take_well())
        for tenant_id, target in list(self._to_release):
            released = await self._store.release_held(tenant_id, target, self._clock.now(), RELEASED_AT_ONCE)
            if released < RELEASED_AT_ONCE:
                self._to_release.discard((tenant_id, target))
