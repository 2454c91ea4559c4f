"""What a worker does about its lease: stop when it ends, enter anew, write reports, and hear what should stop.

All of it runs on the event loop. The lease itself is lengthened by `keeper`, in a thread that a busy loop cannot hold up.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from cronwell import errors, telemetry
from cronwell.config import WorkerSettings
from cronwell.runtime.clock import Clock
from cronwell.runtime.service import FIRST_BACKOFF
from cronwell.store.port import Store
from cronwell.worker.attempt import AttemptKey, Claim
from cronwell.worker.lease import Lease
from cronwell.worker.returning import give_back, sorted_claims
from cronwell.worker.slots import Slots

CANCELS_EVERY = timedelta(seconds=1)
WATCH_EVERY = timedelta(milliseconds=500)
# Tens of thousands of attempts may have begun since the last heartbeat; no statement is longer than others like it.
REPORTS_AT_ONCE = 1000
HAND_BACK_SECONDS = 5.0
"""So long a worker that stops tries to hand back, before what runs is waited for."""


class Heartbeat:
    """Three loops around one lease."""

    def __init__(
        self, store: Store, clock: Clock, settings: WorkerSettings, lease: Lease, slots: Slots
    ) -> None:
        self._store = store
        self._clock = clock
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
            try:
                await self._store.report(reports[start : start + REPORTS_AT_ONCE])
            except BaseException:
                self._slots.report_again(reports[start:])
                raise
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
        """Give what has not started to other workers, and what we know nothing of; nothing is claimed any more."""
        held: defaultdict[UUID, list[Claim]] = defaultdict(list)
        for each in self._slots.take_held():
            claimed = each.claimed
            held[claimed.worker].append((claimed.tenant_id, claimed.key, claimed.fence))
        give_up_deadline = time.monotonic() + HAND_BACK_SECONDS
        if self._lease.may_claim:
            held.setdefault(self._lease.worker, [])
        for name in held:
            while True:
                try:
                    await self._hand_back(name, held[name])
                    break
                except errors.StoreUnavailable as error:
                    if time.monotonic() > give_up_deadline:
                        # They are rescued when the lease ends.
                        telemetry.service_failed("hand back", error, 0.0)
                        break
                    telemetry.service_failed("hand back", error, FIRST_BACKOFF)
                    await asyncio.sleep(FIRST_BACKOFF)

    async def _hand_back(self, name: UUID, held: Sequence[Claim]) -> None:
        found = await self._store.held_by(name) if name == self._lease.worker else []
        # What was dropped has run, and is unknown here as well.
        strays = self._slots.unknown(found) if self._lease.may_claim else []
        await give_back(self._store, name, list({*held, *strays}), self._clock.now())

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
            if self._lease.has_dropped or self._lease.is_given_up:
                # What was dropped meanwhile is unknown here as well: the name is given up, with all that it holds.
                return
            confirmed |= {(key, fence) for _, key, fence in held}
            strays = self._slots.unknown(held)
            if strays:
                await give_back(self._store, name, strays, self._clock.now())
                # What had begun is not given back: its result was lost with the server that had taken it.
                begun = set(strays).intersection(await self._store.held_by(name))
                if begun:
                    await self._store.disown(name, sorted_claims(begun), self._clock.now())
        dropped = self._slots.lose(confirmed)
        telemetry.worker_moved(str(self._lease.worker), kept=len(self._slots), dropped=dropped)
        self._lease.is_elsewhere = False

    async def _let_go(self) -> None:
        """Give up the retired names that hold nothing any more."""
        for name in self._lease.retired:
            if not self._slots.has_any_of(name):
                await self._lease.let_go(name)
