"""The whole house in one process: store, control, staging, chores and workers, on a database of its own."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import orjson

from cronwell import telemetry
from cronwell.bus.postgres import PostgresBus
from cronwell.config import DatabaseSettings, SchedulerSettings, Settings
from cronwell.control.alerts import Alerts
from cronwell.control.backfills import Backfills
from cronwell.control.calendars import Calendars
from cronwell.control.executions import Executions
from cronwell.control.explain import Explain
from cronwell.control.forecast import Forecast
from cronwell.control.graph import Graphs
from cronwell.control.jobs import Jobs
from cronwell.control.outlook import Outlook
from cronwell.control.overrides import Overrides
from cronwell.control.reconcile import Reconcile
from cronwell.control.tzdata import Tzdata
from cronwell.coordination.postgres import PostgresCoordination
from cronwell.model.access import ALL_SCOPES, Caller
from cronwell.model.execution import ExecutionKey, State
from cronwell.model.shards import SHARDS
from cronwell.runtime.clock import Clock, DatabaseClock
from cronwell.runtime.keyring import Keyring
from cronwell.runtime.postgres import Database
from cronwell.runtime.service import run_services
from cronwell.scheduler.chores.alerting import Alerting
from cronwell.scheduler.chores.backfilling import Backfilling
from cronwell.scheduler.chores.calendars import FollowingCalendars
from cronwell.scheduler.chores.chaining import Chaining
from cronwell.scheduler.chores.overriding import Overriding
from cronwell.scheduler.chores.rescue import Rescue
from cronwell.scheduler.chores.rezoning import Rezoning
from cronwell.scheduler.chores.upkeep import Finishing, Following, Resuming
from cronwell.scheduler.staging import Staging
from cronwell.store.port import Claimed, Execution, ExecutionFilter, Store, Worker
from cronwell.store.postgres.leases import lease_store
from cronwell.store.postgres.store import PostgresStore
from cronwell.targets.handler import HandlerRunner, Registry
from cronwell.targets.port import TargetRunner
from cronwell.worker.role import Premises, worker_services
from tests.support.waiting import until_async

TENANT = 1
CALLER = Caller(TENANT, ALL_SCOPES, "test")
HANDLER = {"handler": {"name": "work"}}


class EveryShard:
    """An owner of every shard, from when it first stages. Implements `scheduler.staging.Holder`."""

    def __init__(self) -> None:
        self.member = uuid4()
        self.epochs: Mapping[int, int] = {}
        self._entering = asyncio.Lock()

    async def enter(self, store: Store, now: datetime) -> None:
        async with self._entering:
            self.epochs = self.epochs or await store.enter_shards(self.member, range(SHARDS), now)

    def drop(self, shards: Iterable[int]) -> None:
        raise AssertionError(f"somebody else began an epoch of shards {sorted(shards)}")


class _Staging(Staging):
    def __init__(
        self, store: Store, clock: Clock, settings: SchedulerSettings, every_shard: EveryShard
    ) -> None:
        super().__init__(store, clock, settings, every_shard)
        self._every_shard = every_shard

    async def run_once(self) -> int:
        await self._every_shard.enter(self._store, self._clock.now())
        return await super().run_once()


class House:
    """Every part, made by hand, so that a test can run one of them at a time."""

    def __init__(self, database: Database, url: str, clock: Clock, settings: Settings) -> None:
        self.database = database
        self.url = url
        self.clock = clock
        self.settings = settings
        self.store: Store = PostgresStore(database)
        self.bus = PostgresBus(database, url, can_listen=True, on_error=telemetry.service_failed)
        self.jobs = Jobs(self.store, self.bus, clock, settings)
        self.executions = Executions(self.store, self.bus, clock, settings, self.jobs)
        self.graphs = Graphs(self.store, self.bus, clock, self.jobs, self.executions)
        self.outlook = Outlook(self.store, clock, self.jobs)
        self.explain = Explain(self.store, clock, self.jobs)
        self.calendars = Calendars(self.store, clock)
        self.forecast = Forecast(self.store, clock)
        self.reconcile = Reconcile(self.store, clock)
        self.tzdata = Tzdata(self.store, clock, settings.scheduler, self.jobs)
        self.overrides = Overrides(self.store, self.bus, clock, settings, self.jobs)
        self.backfills = Backfills(self.store, clock, settings, self.jobs)
        self.alerts = Alerts(self.store, self.bus, clock, settings)
        self.registry = Registry()
        self.every_shard = EveryShard()
        self.endings: list[str] = []
        """Why workers of this process would have ended it."""

    @classmethod
    async def open(cls, url: str, settings: Settings, clock: Clock | None = None) -> House:
        database = await Database.connect(DatabaseSettings(), url, application_name="test house")
        return cls(database, url, clock or await DatabaseClock.measured(database), settings)

    def coordination(self) -> PostgresCoordination:
        return PostgresCoordination(
            self.database, self.url, can_listen=True, on_error=telemetry.service_failed
        )

    def staging(self, clock: Clock | None = None) -> Staging:
        """Staging of every shard; several of them are one owner, so that no fence keeps them apart."""
        return _Staging(self.store, clock or self.clock, self.settings.scheduler, self.every_shard)

    def rescue(self) -> Rescue:
        return Rescue(self.store, self.clock)

    def finishing(self) -> Finishing:
        return Finishing(self.store, self.clock, self.settings.scheduler)

    def following(self) -> Following:
        return Following(self.store, self.clock, self.settings.scheduler)

    def following_calendars(self) -> FollowingCalendars:
        return FollowingCalendars(self.store, self.clock, self.settings.scheduler, self.calendars)

    def overriding(self) -> Overriding:
        return Overriding(self.store, self.clock, self.overrides, self.settings.retention)

    def backfilling(self, clock: Clock | None = None) -> Backfilling:
        return Backfilling(self.store, self.bus, clock or self.clock, self.settings.retention)

    def alerting(self, clock: Clock | None = None) -> Alerting:
        return Alerting(self.store, self.bus, clock or self.clock, self.settings)

    def chaining(self) -> Chaining:
        return Chaining(self.store, self.bus, self.clock, self.settings.scheduler)

    def resuming(self) -> Resuming:
        return Resuming(self.store, self.clock, self.jobs)

    def rezoning(self) -> Rezoning:
        return Rezoning(self.tzdata, self.settings.scheduler)

    async def create(self, name: str = "job", **fields: Any) -> UUID:
        """Add a job, by default one for the handler `work`, and return its id."""
        raw: Mapping[str, Any] = {"name": name, "target": HANDLER, **fields}
        answered = await self.jobs.create(CALLER, raw)
        return UUID(orjson.loads(answered.body)["id"])

    async def trigger(self, name: str = "job", **fields: Any) -> ExecutionKey:
        """Trigger a job and return the execution's key."""
        answered = await self.executions.trigger(TENANT, f"name:{name}", **fields)
        return ExecutionKey.parse(orjson.loads(answered.body)["id"])

    async def enter(self, lease: timedelta = timedelta(seconds=30)) -> Worker:
        """Enter a worker that does nothing by itself: the test claims and completes in its name."""
        now = self.clock.now()
        worker = Worker(
            id=uuid4(),
            name="by hand",
            state="active",
            version="test",
            pools=("default",),
            handlers=(),
            concurrency=10,
            running=0,
            started_at=now,
            heartbeat_at=now,
            lease_until=now + lease,
        )
        await self.store.register(worker)
        return worker

    async def claim(self, worker: Worker, limit: int = 10) -> list[Claimed]:
        """Claim what is ready, of normal priority, in the name of a worker."""
        now = self.clock.now()
        return await self.store.claim(worker.id, "default", 1, ready_by=now, limit=limit, now=now)

    async def history(self, job: UUID | None = None, **where: Any) -> list[Execution]:
        """Executions, oldest slot first."""
        found = await self.store.list_executions(TENANT, ExecutionFilter(job_id=job, **where), None, 10_000)
        return found[::-1]

    async def get(self, key: ExecutionKey) -> Execution:
        found = await self.store.get_execution(TENANT, key)
        assert found is not None
        return found

    async def until_state(self, key: ExecutionKey, *states: State, within: float = 15.0) -> Execution:
        """Wait until an execution is in one of the states."""

        async def reached() -> Execution | None:
            found = await self.get(key)
            return found if found.state in states else None

        found = await until_async(reached, within=within)
        assert found is not None
        return found

    @contextlib.asynccontextmanager
    async def working(
        self, runners: Mapping[str, TargetRunner] | None = None, **settings: Any
    ) -> AsyncIterator[asyncio.Event]:
        """A worker of this process; it drains when the block ends or the event is set."""
        own = dataclasses.replace(self.settings.worker, **settings)
        handlers = HandlerRunner(own.output_limit, registry=self.registry)
        services = await worker_services(
            self.store,
            self.bus,
            self.clock,
            own,
            {"handler": handlers, **(runners or {})},
            self.jobs,
            Premises(
                self.registry.names(),
                lambda: lease_store(self.settings.database, own, self.url),
                self.endings.append,
                per_host=self.settings.http.per_host,
                keyring=Keyring(self.settings.secrets),
            ),
        )
        stop = asyncio.Event()
        task = asyncio.create_task(run_services(services, stop=stop))
        try:
            yield stop
        finally:
            stop.set()
            await task
            await handlers.close()

    async def close(self) -> None:
        await self.database.close()


def at(text: str) -> datetime:
    """A moment from RFC 3339 text."""
    return datetime.fromisoformat(text)


SECOND = timedelta(seconds=1)
