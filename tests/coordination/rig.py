"""Schedulers of this process, each with a coordinator of its own, and a look at which shards nobody has."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

from cronwell import telemetry
from cronwell.config import EtcdSettings
from cronwell.coordination.etcd import EtcdCoordination
from cronwell.coordination.fallback import Fallback
from cronwell.coordination.port import Coordination
from cronwell.model.shards import SHARDS
from cronwell.runtime.service import run_services
from cronwell.scheduler.duties import Duties
from cronwell.scheduler.role import scheduler_services
from cronwell.scheduler.staging import Staging
from cronwell.scheduler.watermark import Watermark
from tests.support.house import House
from tests.support.waiting import until

LEASE = timedelta(seconds=1)


class Scheduler:
    """A scheduler, to stop in order or to kill."""

    def __init__(self, house: House, coordination: Coordination, lease: timedelta = LEASE) -> None:
        settings = dataclasses.replace(house.settings.scheduler, lease=lease)
        self.coordination = coordination
        self.duties = Duties(coordination, house.store, house.clock, settings)
        staging = Staging(house.store, house.clock, settings, self.duties)
        watermark = Watermark(house.store, house.clock, settings, self.duties)
        services = scheduler_services(self.duties, coordination, staging, watermark, [])
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(run_services(services, stop=self._stop))

    @property
    def epochs(self) -> dict[int, int]:
        return dict(self.duties.epochs)

    @property
    def is_on_reserve(self) -> bool:
        assert isinstance(self.coordination, Fallback)
        return self.coordination._in_use is self.coordination._reserve

    async def stop(self) -> None:
        if not self._task.done():
            self._stop.set()
            await self._task
        await self.coordination.close()

    async def kill(self) -> None:
        """End it where it stands: it gives nothing back."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self.coordination.close()


class Gaps:
    """How long there were shards that no scheduler staged, while it looks."""

    def __init__(self, schedulers: Sequence[Scheduler]) -> None:
        self._schedulers = schedulers
        self._began: float | None = None
        self.longest = 0.0

    def look(self) -> None:
        now = time.monotonic()
        staged = {shard for each in self._schedulers for shard in each.duties.epochs}
        if len(staged) == SHARDS:
            self._began = None
        elif self._began is None:
            self._began = now
        if self._began is not None:
            self.longest = max(self.longest, now - self._began)


@contextlib.asynccontextmanager
async def looking(*schedulers: Scheduler) -> AsyncIterator[Gaps]:
    """Look at the schedulers' shards for the length of the block."""
    gaps = Gaps(schedulers)
    is_over = False

    def look() -> bool:
        gaps.look()
        return is_over

    watching = asyncio.create_task(until(look, within=120))
    try:
        yield gaps
    finally:
        is_over = True
        await watching


def with_etcd(house: House, address: str, settings: EtcdSettings) -> Fallback:
    """What a scheduler with CRONWELL_COORDINATION=etcd://… goes by."""
    etcd = EtcdCoordination(address, settings, on_error=telemetry.service_failed)
    return Fallback(etcd, house.coordination())
