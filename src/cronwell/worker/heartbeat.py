"""What a worker does about its lease: stop when it ends, enter anew, write reports, and hear what should stop.

All of it runs on the event loop. The lease itself is lengthened by `keeper`, in a thread that a busy loop cannot hold up.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from uuid import UUID

from cronwell import errors, telemetry
from cronwell.config import WorkerSettings
from cronwell.model.execution import ExecutionKey
from cronwell.store.port import Store
from cronwell.worker.attempt import AttemptKey
from cronwell.worker.lease import Lease
from cronwell.worker.slots import Slots

CANCELS_EVERY = timedelta(seconds=1)
WATCH_EVERY = timedelta(milliseconds=500)
# Tens of thousands of attempts may have begun since the last heartbeat; no statement is longer than others like it.
REPORTS_AT_ONCE = 1000


class Heartbeat:
    """Three loops around one lease."""

    def __init__(self, store: Store, settings: WorkerSettings, lease: Lease, slots: Slots) -> None:
        self._store = store
        self._settings = settings
        self._lease = lease
        self._slots = slots
        self.is_draining = False

    async def beat(self) -> timedelta:
        """Act on what became of the lease: a worker that was given up, or gave up its attempts, enters anew."""
        telemetry.running(len(self._slots))
        if self._lease.is_given_up or self._lease.has_dropped:
            self.drop_all()
            # What was dropped may stand under a name that lives on, and nobody would take it up: give up the name.
            await self._lease.leave()
        elif self._lease.is_elsewhere:
            await self._move()
        if not self._lease.is_entered and not self.is_draining:
            await self._lease.register()
        await self._let_go()
        self._slots.sweep()
        reports = self._slots.reports()
        for start in range(0, len(reports), REPORTS_AT_ONCE):
            await self._store.report(reports[start : start + REPORTS_AT_ONCE])
        return self._settings.heartbeat

    async def watch(self) -> timedelta:
        """Stop what runs before the lease ends, when the database cannot be reached to lengthen it."""
        self.stop_untrusted()
        return WATCH_EVERY

    def stop_untrusted(self) -> None:
        if not self._lease.is_trusted:
            self.drop_all()

    async def obey(self) -> timedelta:
        """Stop the attempts that someone asked to cancel."""
        if len(self._slots):
            for name in self._lease.names:
                self._slots.cancel([(key, fence) for _, key, fence in await self._store.cancels(name)])
        return CANCELS_EVERY

    async def hand_back_held(self) -> None:
        """Give what has not started to other workers."""
        held: defaultdict[UUID, list[tuple[int, ExecutionKey, int]]] = defaultdict(list)
        for each in self._slots.take_held():
            claimed = each.claimed
            held[claimed.worker].append((claimed.tenant_id, claimed.key, claimed.fence))
        for name, claims in held.items():
            try:
                await self._store.hand_back(name, claims)
            except errors.StoreUnavailable as error:
                # They are rescued when the lease ends.
                telemetry.service_failed("hand back", error, 0.0)

    def drop_all(self) -> None:
        lost = self._slots.lose()
        if lost:
            self._lease.has_dropped = True
            telemetry.lease_lost(str(self._lease.worker), lost)

    async def _move(self) -> None:
        """Go on in another incarnation of the database: with what it confirms to be ours, under a new name.

        A claim that it never saw is dropped: it will be given to somebody, with the same fence. Nothing is claimed between
        the two names, so what the new server says of the old one is all that it will ever hold.
        """
        self._lease.retire()
        confirmed: set[AttemptKey] = set()
        for name in self._lease.names:
            held = await self._store.held_by(name)
            confirmed |= {(key, fence) for _, key, fence in held}
            strays = self._slots.unknown(held)
            if strays:
                await self._store.hand_back(name, strays)
        dropped = self._slots.lose(confirmed)
        telemetry.worker_moved(str(self._lease.worker), kept=len(self._slots), dropped=dropped)
        self._lease.is_elsewhere = False

    async def _let_go(self) -> None:
        """Give up the retired names that hold nothing any more."""
        for name in self._lease.retired:
            if not self._slots.has_any_of(name):
                await self._lease.let_go(name)
