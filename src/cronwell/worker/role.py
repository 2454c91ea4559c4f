"""The worker: claims executions of its pools, starts each on its instant, and keeps what came of it.

Its services, in the order of starting; they stop in reverse, for these reasons:

    completion   last to stop: every result that is known must be written
    checkpoints  what attempts leave for the next ones, for as long as anything runs
    heartbeat    the lease must last as long as anything runs; a thread of its own
    lease, watch, orders, hosts
    attempts     stops by draining: hand back what is held, let the rest finish, then ask, then force
    claiming     first to stop: nothing new
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from cronwell import errors, telemetry
from cronwell.bus.port import Bus, orders_for, work_in
from cronwell.config import WorkerSettings
from cronwell.control.jobs import Jobs
from cronwell.runtime.clock import Clock
from cronwell.runtime.keyring import Keyring
from cronwell.runtime.service import Loop, Service, Waker
from cronwell.store.port import Claimed, Store
from cronwell.targets.port import TargetRunner
from cronwell.worker.catalog import Catalog
from cronwell.worker.checkpoints import Checkpoints
from cronwell.worker.claiming import Claiming
from cronwell.worker.completion import Completion
from cronwell.worker.heartbeat import Heartbeat
from cronwell.worker.hosts import Hosts
from cronwell.worker.keeper import Keeper, OpenStore
from cronwell.worker.lease import Lease
from cronwell.worker.slots import Means, Slots
from cronwell.worker.valves import Valves
from cronwell.worker.vault import Vault

FORCED_STOP = timedelta(seconds=3)


@dataclass(frozen=True, slots=True)
class Premises:
    """What a worker needs of the process that it runs in."""

    handlers: Sequence[str]
    """The names of the handlers that there are."""
    open_store: OpenStore
    """Connects anew, for the thread that keeps the lease."""
    end_process: Callable[[str], None]
    """How that thread ends a process whose event loop is blocked; it is told why."""
    on_failover: Callable[[Callable[[], None]], None] = lambda forget: None
    """Takes what to call when another incarnation of the database answers."""
    per_host: int = 256
    """Requests that are under way to one host at once."""
    keyring: Keyring = field(default_factory=Keyring)
    """The keys that secrets are encrypted with."""


async def worker_services(
    store: Store,
    bus: Bus,
    clock: Clock,
    settings: WorkerSettings,
    runners: Mapping[str, TargetRunner],
    jobs: Jobs,
    premises: Premises,
) -> list[Service]:
    """Enter the worker and return its services."""
    claim_waker, order_waker, lease_waker, hosts_waker = Waker(), Waker(), Waker(), Waker()
    departures = Departures(jobs)
    completion = Completion(store, settings)
    checkpoints = Checkpoints(store, clock)

    def on_free(claimed: Claimed) -> None:
        # One claim for each place that falls free would be one for each execution.
        if claimed.is_awaited:
            claiming.hasten()
        if claimed.is_awaited or claiming.wants_room:
            claim_waker.wake()

    valves = Valves(settings, premises.per_host, clock, hosts_waker.wake)
    vault = Vault(store, premises.keyring)
    slots = Slots(
        Means(runners, vault),
        completion,
        store,
        clock,
        settings,
        valves,
        on_free=on_free,
        on_gone=departures.pause,
    )
    slots.save = checkpoints.save
    lease = Lease(store, clock, settings, premises.handlers)
    await lease.register()
    hosts = Hosts(store, clock, settings, lease, valves)
    # Before anything is claimed: what is limited would start without a limit.
    await hosts.share()
    heartbeat = Heartbeat(store, clock, settings, lease, slots)
    keeper = Keeper(
        premises.open_store,
        settings,
        lease,
        slots,
        heartbeat=heartbeat,
        on_news=lease_waker.wake,
        end_process=premises.end_process,
    )
    catalog = Catalog(store)
    premises.on_failover(catalog.clear)
    premises.on_failover(vault.clear)
    premises.on_failover(keeper.look_again)
    premises.on_failover(hosts.begin_anew)

    async def tell(workers: Collection[UUID]) -> None:
        await bus.publish([orders_for(worker) for worker in workers])

    claiming = Claiming(store, clock, settings, lease, catalog, slots, tell=tell)
    claiming.behind.on_found = claim_waker.wake
    claiming.behind.count_workers = lambda: hosts.workers
    orders = orders_for(lease.worker)

    def hear(topic: str) -> None:
        (order_waker if topic == orders else claim_waker).wake()

    topics = [*(work_in(pool) for pool in settings.pools), orders]
    failed = telemetry.service_failed
    return [
        completion,
        checkpoints,
        keeper,
        Loop("lease", heartbeat.beat, on_error=failed, waker=lease_waker),
        Loop("lease watch", heartbeat.watch, on_error=failed),
        Loop("orders", heartbeat.obey, on_error=failed, waker=order_waker),
        Loop("look back", claiming.behind.look, on_error=failed, stop_deadline=timedelta(seconds=1)),
        Loop("hosts", hosts.share, on_error=failed, waker=hosts_waker),
        Attempts(slots, heartbeat, lease, completion, departures, settings),
        bus.subscribe(topics, hear),
        Loop("claiming", claiming.poll, on_error=failed, waker=claim_waker),
    ]


class Departures:
    """Pauses the jobs whose target said that it is gone for good."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._tasks: set[asyncio.Task[None]] = set()

    def pause(self, claimed: Claimed) -> None:
        task = asyncio.create_task(self._pause(claimed), name="pause of a job that is gone")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    async def _pause(self, claimed: Claimed) -> None:
        note = f"the target answered 410 Gone to execution {claimed.key}"
        try:
            await self._jobs.pause(claimed.tenant_id, str(claimed.key.job_id), note=note)
        except Exception as error:  # noqa: BLE001  # the next attempt will say so again
            telemetry.service_failed("pause of a job that is gone", error, 0.0)


class Attempts(Service):
    """Runs no loop of its own; its end is the worker's drain."""

    def __init__(
        self,
        slots: Slots,
        heartbeat: Heartbeat,
        lease: Lease,
        completion: Completion,
        departures: Departures,
        settings: WorkerSettings,
    ) -> None:
        limit = settings.drain + settings.cancel_grace + FORCED_STOP + timedelta(seconds=5)
        super().__init__("attempts", stop_deadline=limit)
        self._slots = slots
        self._heartbeat = heartbeat
        self._lease = lease
        self._completion = completion
        self._departures = departures
        self._settings = settings
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        await self._stopped.wait()
        self._heartbeat.is_draining = True
        await self._heartbeat.hand_back_held()
        if not await self._slots.wait_until_empty(self._settings.drain):
            self._slots.ask_to_stop()
            if not await self._slots.wait_until_empty(self._settings.cancel_grace + FORCED_STOP / 3):
                self._slots.force()
                await self._slots.wait_until_empty(FORCED_STOP)
        await self._departures.wait()
        try:
            await self._lease.leave()
        except errors.StoreUnavailable as error:
            # The lease ends by itself.
            telemetry.service_failed("leave", error, 0.0)

    def stop(self) -> None:
        self._stopped.set()
