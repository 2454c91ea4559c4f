"""The composition root: what each process is made of. The only importer of implementations."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cronwell import errors, logs, telemetry
from cronwell.bus.port import Bus
from cronwell.bus.postgres import PostgresBus
from cronwell.config import Settings
from cronwell.control.continuity import Continuity
from cronwell.control.jobs import Jobs
from cronwell.control.keys import Keys
from cronwell.control.overrides import Overrides
from cronwell.control.presence import Presence
from cronwell.control.tenants import Tenants
from cronwell.coordination.port import Coordination
from cronwell.coordination.postgres import PostgresCoordination
from cronwell.model.access import ALL_SCOPES, Caller
from cronwell.runtime.acting import Actor, act_as
from cronwell.runtime.clock import DatabaseClock
from cronwell.runtime.collector import calm_collector, collect_on_growth
from cronwell.runtime.embedded import EmbeddedPostgres
from cronwell.runtime.keyring import Keyring
from cronwell.runtime.node import this_process
from cronwell.runtime.postgres import Database
from cronwell.runtime.service import Service, run_loop, run_services
from cronwell.runtime.supervisor import drained_code, watch_lifeline
from cronwell.runtime.web import WebServer
from cronwell.scheduler.chores.every import every_chore
from cronwell.scheduler.duties import Duties
from cronwell.scheduler.role import scheduler_services
from cronwell.scheduler.staging import Staging
from cronwell.scheduler.watermark import Watermark
from cronwell.store.port import Store
from cronwell.store.postgres import migrate as migrations
from cronwell.store.postgres.leases import lease_store
from cronwell.store.postgres.store import PostgresStore
from cronwell.targets.egress import Egress
from cronwell.targets.group import kill_every_group
from cronwell.targets.handler import REGISTRY, HandlerRunner, load
from cronwell.targets.port import TargetRunner
from cronwell.targets.shell import ShellRunner
from cronwell.worker.keeper import end_process
from cronwell.worker.role import Premises, worker_services

_uvloop: Any = None
with contextlib.suppress(ImportError):
    _uvloop = importlib.import_module("uvloop")

CONNECT_EVERY = 0.5
CONNECT_SELDOM = 5.0
# A command that somebody waits for gives up on a database that does not answer; a role never does.
COMMAND_PATIENCE = 20.0
STALE_AFTER = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class Base:
    """What every role stands on."""

    settings: Settings
    database: Database
    store: Store
    clock: DatabaseClock
    bus: Bus
    jobs: Jobs
    continuity: Continuity

    def services(self, role: str, on_drain: Callable[[], None]) -> list[Service]:
        return [
            Presence(self.store, self.clock, role, this_process(), on_drain),
            self.continuity.service(lambda: self.clock.measure(self.database)),
            self.clock.keep_measured(self.database, on_error=telemetry.service_failed),
            collect_on_growth(on_error=telemetry.service_failed),
        ]


def run_api(settings: Settings) -> int:
    """Serve the HTTP interface until a signal."""
    return _run("api", settings, _api, is_hot=False)


def run_scheduler(settings: Settings) -> int:
    """Stage slots and do chores until a signal."""
    return _run("scheduler", settings, _scheduler, is_hot=True)


def run_worker(settings: Settings) -> int:
    """Run executions until a signal."""
    return _run("worker", settings, _worker, is_hot=True)


def migrate(settings: Settings, *, role: str = "migrate") -> list[str]:
    """Bring the schema up to date and return what was applied; `role` is who does it, for the log."""
    logs.configure(settings.log, role=role)

    async def go(url: str) -> list[str]:
        async with _database(settings, url, "migrate", is_hot=False, patience=COMMAND_PATIENCE) as database:
            return [f"{step.version:04d} {step.name}" for step in await migrations.migrate(database)]

    with _reachable_database(settings) as url:
        applied: list[str] = _main(go(url))
    for step in applied:
        telemetry.migrated(step)
    return applied


def signing_secret(settings: Settings, tenant: str) -> str:
    """The secret that a tenant's deliveries are signed with."""

    async def tell(store: Store, database: Database) -> str:
        found = await Tenants(store, await DatabaseClock.measured(database)).find(tenant)
        return await store.signing_secret(found.id)

    return _asked("signing-secret", settings, tell)


def bootstrap(settings: Settings, tenant: str, name: str, scopes: Sequence[str]) -> str:
    """Make a key, which whoever reaches the database may do."""

    async def make(store: Store, database: Database) -> str:
        clock = await DatabaseClock.measured(database)
        found = await Tenants(store, clock).find(tenant)
        act_as(Actor("bootstrap", "", ""))
        made = await Keys(store, clock).create(Caller(found.id, ALL_SCOPES, "bootstrap"), name, scopes)
        return made.key

    return _asked("bootstrap", settings, make)


def _asked(role: str, settings: Settings, ask: Callable[[Store, Database], Awaitable[str]]) -> str:
    """What a command asks of the store itself, of which the API tells nobody."""
    logs.configure(settings.log, role=role)

    if not settings.database.url and not EmbeddedPostgres(settings.data_dir).is_made:
        raise errors.ConfigError(
            f"there is no database in {settings.data_dir}; set CRONWELL_DATABASE_URL, or CRONWELL_DATA_DIR as `up` has it"
        )

    async def go(url: str) -> str:
        async with _database(settings, url, role, is_hot=False, patience=COMMAND_PATIENCE) as database:
            if missing := await migrations.pending(database):
                raise errors.ConfigError(_lacks(missing[0]))
            return await ask(PostgresStore(database), database)

    with _reachable_database(settings) as url:
        answer: str = _main(go(url))
    return answer


def database_url(settings: Settings) -> str:
    """The address of the database; of the embedded one, if that is running."""
    if settings.database.url:
        return settings.database.url
    embedded = EmbeddedPostgres(settings.data_dir)
    if not embedded.is_running:
        raise errors.ConfigError(
            "no database: set CRONWELL_DATABASE_URL, or start `cronwell up`, which brings its own "
            f"(none is running in {settings.data_dir})"
        )
    return embedded.url


@contextlib.contextmanager
def _reachable_database(settings: Settings) -> Iterator[str]:
    """The database's address; an embedded one that is not running is started for the while."""
    embedded = EmbeddedPostgres(settings.data_dir)
    if settings.database.url or embedded.is_running:
        yield database_url(settings)
        return
    url = embedded.start()
    try:
        yield url
    finally:
        embedded.stop()


def _main(coroutine: Coroutine[Any, Any, Any]) -> Any:
    # uvloop is not made for every platform; it is an installation's extra speed, not its need.
    return run_loop(coroutine, (_uvloop or asyncio).new_event_loop())


def _run(role: str, settings: Settings, build: _Build, *, is_hot: bool) -> int:
    logs.configure(settings.log, role=role)

    async def go() -> int:
        stop, drained = asyncio.Event(), asyncio.Event()

        def drain() -> None:
            drained.set()
            stop.set()

        watch_lifeline(stop)
        calm_collector()
        async with _base(settings, role, is_hot=is_hot) as base, contextlib.AsyncExitStack() as stack:
            services = base.services(role, drain)
            # Bound before the role is built: a worker that cannot listen must not have entered itself.
            watched = _ops(base, services) if role != "api" and settings.ops_port else []
            services += await build(base, stack)
            services += watched
            telemetry.started(role)
            await run_services(services, stop=stop, on_stop=telemetry.stopping)
        telemetry.stopped(role)
        return drained_code() if drained.is_set() else 0

    code: int = _main(go())
    return code


def _ops(base: Base, services: list[Service]) -> list[Service]:
    """The server by which a role without an API is watched; it listens from now on."""
    from cronwell.api.ops import create_ops_app

    app = create_ops_app(_readiness(base, lambda: services), base.store, base.clock)
    return [WebServer(app, base.settings.host, base.settings.ops_port, setting="CRONWELL_OPS_PORT")]


_Build = Callable[[Base, contextlib.AsyncExitStack], Awaitable[list[Service]]]


async def _api(base: Base, stack: contextlib.AsyncExitStack) -> list[Service]:
    # Here, because the other roles start in half the time without them.
    from cronwell.api.role import api
    from cronwell.runtime.fetching import fetch

    services: list[Service] = []
    settings = base.settings
    app = await api(
        base.store,
        base.bus,
        base.clock,
        settings,
        base.jobs,
        is_ready=_readiness(base, lambda: services),
        load_token_keys=functools.partial(fetch, settings.auth.jwks),
    )
    services.append(WebServer(app, settings.host, settings.port))
    # Once the web server has stopped: who was refused then must not have a job after all, and the pool not wait for it.
    stack.push_async_callback(base.jobs.close)
    return services


async def _scheduler(base: Base, stack: contextlib.AsyncExitStack) -> list[Service]:
    settings = base.settings
    overrides = _overrides(base)
    chores = every_chore(base.store, base.bus, base.clock, settings, base.jobs, overrides)
    # Before anything is staged: after a long outage the slots of waiting overrides may be due.
    await overrides.apply_waiting()
    coordination = _coordination(base)
    stack.push_async_callback(coordination.close)
    names = [chore.name for chore in chores]
    duties = Duties(coordination, base.store, base.clock, settings.scheduler, names, this_process().id)
    base.continuity.on_failover(duties.begin_anew)
    staging = Staging(base.store, base.clock, settings.scheduler, duties)
    watermark = Watermark(base.store, base.clock, settings.scheduler, duties)
    return scheduler_services(duties, coordination, staging, watermark, chores)


def _coordination(base: Base) -> Coordination:
    settings, failed = base.settings, telemetry.service_failed
    by_postgres = PostgresCoordination(
        base.database, database_url(settings), can_listen=not settings.database.pooler, on_error=failed
    )
    if settings.coordination == "postgres":
        return by_postgres
    from cronwell.coordination.etcd import EtcdCoordination
    from cronwell.coordination.fallback import Fallback

    return Fallback(EtcdCoordination(settings.coordination, settings.etcd, on_error=failed), by_postgres)


async def _worker(base: Base, stack: contextlib.AsyncExitStack) -> list[Service]:
    from cronwell.targets.email import EmailRunner
    from cronwell.targets.http import HttpRunner
    from cronwell.targets.publish import PublishRunner

    settings = base.settings
    load(settings.worker.imports)
    limit = settings.worker.output_limit
    runners: dict[str, TargetRunner] = {
        "http": HttpRunner(
            settings.http, Egress(settings.egress_allow), base.clock, limit, public_url=settings.public_url
        ),
        "shell": ShellRunner(settings.shell, limit),
        "handler": HandlerRunner(limit, threads=settings.worker.threads),
        "publish": PublishRunner(settings.brokers, settings.publish),
        "email": EmailRunner(settings.smtp, limit),
    }
    for runner in runners.values():
        stack.push_async_callback(runner.close)
    return await worker_services(
        base.store,
        base.bus,
        base.clock,
        settings.worker,
        runners,
        base.jobs,
        Premises(
            sorted(REGISTRY.names()),
            lambda: lease_store(settings.database, settings.worker, database_url(settings)),
            functools.partial(end_process, kill_every_group),
            on_failover=base.continuity.on_failover,
            per_host=settings.http.per_host,
            keyring=Keyring.of(settings),
        ),
    )


def _overrides(base: Base) -> Overrides:
    return Overrides(base.store, base.bus, base.clock, base.settings, base.jobs)


@contextlib.asynccontextmanager
async def _base(settings: Settings, role: str, *, is_hot: bool) -> AsyncIterator[Base]:
    url = database_url(settings)
    async with _database(settings, url, role, is_hot=is_hot) as database:
        missing = await migrations.pending(database)
        if missing:
            raise errors.ConfigError(_lacks(missing[0]))
        await migrations.check_roles(database)
        store = PostgresStore(database)
        clock = await DatabaseClock.measured(database)
        bus = PostgresBus(
            database, url, can_listen=not settings.database.pooler, on_error=telemetry.service_failed
        )
        jobs = Jobs(store, bus, clock, settings)
        yield Base(settings, database, store, clock, bus, jobs, Continuity(database, store, clock))


@contextlib.asynccontextmanager
async def _database(
    settings: Settings, url: str, role: str, *, is_hot: bool, patience: float | None = None
) -> AsyncIterator[Database]:
    database = await _connect(settings, url, role, is_hot=is_hot, patience=patience)
    try:
        yield database
    finally:
        await database.close()


async def _connect(
    settings: Settings, url: str, role: str, *, is_hot: bool, patience: float | None
) -> Database:
    """Connect, waiting for a database that is not up yet; for `patience` seconds at the most where that is given."""
    began, wait = time.monotonic(), CONNECT_EVERY
    while True:
        try:
            return await Database.connect(
                settings.database, url, application_name=f"cronwell {role}", is_hot=is_hot
            )
        except errors.StoreUnavailable as error:
            if patience is not None and time.monotonic() - began > patience:
                raise
            telemetry.service_failed("connect", error, wait)
            await asyncio.sleep(wait)
            wait = min(2 * wait, CONNECT_SELDOM)


def _readiness(base: Base, services: Callable[[], Sequence[Service]]) -> Callable[[], Awaitable[list[str]]]:
    schema = migrations.SchemaWatch(base.database, base.clock)

    async def reasons() -> list[str]:
        found = []
        try:
            async with asyncio.timeout(2):
                await base.store.ping()
                if (missing := await schema.missing()) is not None:
                    found.append(_lacks(missing))
        except (errors.StoreUnavailable, TimeoutError) as error:
            found.append(f"the database does not answer: {error!r}")
        for service in services():
            age = service.last_success_age
            if age is not None and age > STALE_AFTER and service.name in ("staging", "heartbeat", "claiming"):
                found.append(f"{service.name} has not succeeded for {age.total_seconds():.0f} s")
        return found

    return reasons


def _lacks(step: migrations.Migration) -> str:
    return f"the database lacks migration {step}; run `cronwell migrate`"
