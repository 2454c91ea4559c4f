"""The role that serves the HTTP interface."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI

from cronwell import addresses, errors
from cronwell.api.app import create_app
from cronwell.api.auth import Authenticator
from cronwell.api.services import Services
from cronwell.api.tokens import Load, Tokens
from cronwell.bus.port import Bus
from cronwell.config import Settings
from cronwell.control.alerts import Alerts
from cronwell.control.audit import Audit
from cronwell.control.backfills import Backfills
from cronwell.control.calendars import Calendars
from cronwell.control.callbacks import Callbacks
from cronwell.control.cluster import Cluster
from cronwell.control.executions import Executions
from cronwell.control.explain import Explain
from cronwell.control.forecast import Forecast
from cronwell.control.graph import Graphs
from cronwell.control.hosts import Hosts
from cronwell.control.jobs import Jobs
from cronwell.control.keys import Keys
from cronwell.control.outlook import Outlook
from cronwell.control.overrides import Overrides
from cronwell.control.reconcile import Reconcile
from cronwell.control.secrets import Secrets
from cronwell.control.tenants import Tenants
from cronwell.control.tzdata import Tzdata
from cronwell.runtime.clock import Clock
from cronwell.runtime.keyring import Keyring
from cronwell.store.port import Store


async def api(
    store: Store,
    bus: Bus,
    clock: Clock,
    settings: Settings,
    jobs: Jobs,
    *,
    is_ready: Callable[[], Awaitable[list[str]]],
    load_token_keys: Load,
) -> FastAPI:
    """The whole interface. Raises ConfigError where others could reach it and nobody could be told from anybody."""
    auth = settings.auth
    if auth.jwks and not (auth.issuer and auth.audience):
        missing = "auth.issuer (CRONWELL_AUTH_ISSUER) and auth.audience (CRONWELL_AUTH_AUDIENCE)"
        raise errors.ConfigError(
            f"auth.jwks is set, and {missing} must be as well: else tokens for others would do here"
        )
    if not addresses.is_loopback(settings.host) and not auth.jwks and not await store.has_keys(clock.now()):
        raise errors.ConfigError(
            f"others can reach {settings.host} (CRONWELL_HOST or --host), and there is no key by which to tell who they are: "
            "run `cronwell bootstrap`, which makes one, or set auth.jwks (CRONWELL_AUTH_JWKS); "
            "on 127.0.0.1 no key is needed"
        )
    executions = Executions(store, bus, clock, settings, jobs)
    keyring = Keyring.of(settings)
    services = Services(
        jobs=jobs,
        executions=executions,
        graphs=Graphs(store, bus, clock, jobs, executions),
        outlook=Outlook(store, clock, jobs),
        explain=Explain(store, clock, jobs),
        calendars=Calendars(store, clock),
        forecast=Forecast(store, clock),
        reconcile=Reconcile(store, clock),
        tzdata=Tzdata(store, clock, settings.scheduler, jobs),
        overrides=Overrides(store, bus, clock, settings, jobs),
        backfills=Backfills(store, clock, settings, jobs),
        callbacks=Callbacks(store, clock, settings, keyring),
        alerts=Alerts(store, bus, clock, settings),
        cluster=Cluster(store, clock, settings),
        keys=Keys(store, clock),
        audit=Audit(store),
        tenants=Tenants(store, clock),
        hosts=Hosts(store, clock),
        secrets=Secrets(store, clock, keyring),
        store=store,
        clock=clock,
        settings=settings,
        is_ready=is_ready,
    )
    tokens = Tokens(auth, load_token_keys) if auth.jwks else None
    return create_app(services, Authenticator(store, clock, settings, tokens))
