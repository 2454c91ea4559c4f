"""What the HTTP interface is given to work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

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
from cronwell.store.port import Store


@dataclass(frozen=True, slots=True)
class Services:
    """The verbs and what stands below them; one instance serves a process."""

    jobs: Jobs
    executions: Executions
    graphs: Graphs
    outlook: Outlook
    explain: Explain
    calendars: Calendars
    forecast: Forecast
    reconcile: Reconcile
    tzdata: Tzdata
    overrides: Overrides
    backfills: Backfills
    callbacks: Callbacks
    alerts: Alerts
    cluster: Cluster
    keys: Keys
    audit: Audit
    tenants: Tenants
    hosts: Hosts
    secrets: Secrets
    store: Store
    clock: Clock
    settings: Settings
    is_ready: Callable[[], Awaitable[list[str]]]
    """Says why requests cannot be served at present; an empty list where they can."""


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Given = Annotated[Services, Depends(_services)]
