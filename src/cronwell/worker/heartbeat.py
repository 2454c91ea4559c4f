"""Keep the worker's lease, write what attempts report, and hear which of them should stop."""

from __future__ import annotations

from datetime import timedelta

from cronwell import errors, telemetry
from cronwell.config import WorkerSettings
from cronwell.store.port import Store
from cronwell.worker.lease import Lease
from cronwell.worker.slots import Slots

CANCELS_EVERY = timedelta(seconds=1)
WATCH_EVERY = timedelta(milliseconds=500)


class Heartbeat:
    """Three loops around one lease."""

    def __init__(self, store: Store, settings: WorkerSettings, lease: Lease, slots: Slots) -> None:
        self._store = store
        self._settings = settings
        self._lease = lease
        self._slots = slots
        self._has_dropped = False
        """Attempts were stopped while the lease was in doubt: the database still takes them for ours."""
        self.is_draining = False

    async def beat(self) -> timedelta:
        """Lengthen the lease; a worker that was given up, or gave up its attempts, drops everything and enters anew."""
        is_kept = await self._lease.renew(running=len(self._slots), is_draining=self.is_draining)
        telemetry.running(len(self._slots))
        if not is_kept or self._has_dropped:
            self._drop_all()
            if is_kept:
                # What was dropped stands under a name that lives on, and nobody would take it up: give up the name.
                await self._lease.leave()
            self._has_dropped = False
            if not self.is_draining:
                await self._lease.register()
            return self._settings.heartbeat
        self._slots.sweep()
        reports = self._slots.reports()
        if reports:
            await self._store.report(reports)
        return self._settings.heartbeat

    async def watch(self) -> timedelta:
        """Stop what runs before the lease ends, when the database cannot be reached to lengthen it."""
        if not self._lease.is_trusted:
            self._drop_all()
        return WATCH_EVERY

    async def obey(self) -> timedelta:
        """Stop the attempts that someone asked to cancel."""
        if len(self._slots):
            for _, key, fence in await self._store.cancels(self._lease.worker):
                self._slots.cancel((key, fence))
        return CANCELS_EVERY

    async def hand_back_held(self) -> None:
        """Give what has not started to other workers."""
        held = self._slots.take_held()
        if held:
            try:
                await self._store.hand_back(
                    [(each.claimed.tenant_id, each.claimed.key, each.claimed.fence) for each in held]
                )
            except errors.StoreUnavailable as error:
                # They are rescued when the lease ends.
                telemetry.service_failed("hand back", error, 0.0)

    def _drop_all(self) -> None:
        lost = self._slots.lose()
        if lost:
            self._has_dropped = True
            telemetry.lease_lost(str(self._lease.worker), lost)
