"""The HTTP interface, put together."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter, FastAPI

from cronwell import __version__
from cronwell.api import docs, openapi, problems
from cronwell.api.auth import Authenticator
from cronwell.api.edge import Edge
from cronwell.api.metrics import Scrapes
from cronwell.api.routes import (
    alerts,
    audit,
    backfills,
    calendars,
    callbacks,
    cluster,
    dependencies,
    executions,
    forecast,
    health,
    hosts,
    jobs,
    keys,
    overrides,
    reconcile,
    schedules,
    secrets,
    tenants,
    tzdata,
)
from cronwell.api.services import Services

ROUTERS = (
    jobs.router,
    overrides.router,
    executions.router,
    callbacks.router,
    dependencies.router,
    backfills.router,
    schedules.router,
    calendars.router,
    alerts.router,
    forecast.router,
    tzdata.router,
    reconcile.router,
    cluster.router,
    keys.router,
    secrets.router,
    tenants.router,
    audit.router,
    hosts.router,
    health.router,
)


def create_app(services: Services, authenticator: Authenticator) -> FastAPI:
    """Make the whole interface; it holds no connection and no task of its own."""
    app = assemble(ROUTERS, authenticator)
    app.state.services = services
    app.state.is_ready = services.is_ready
    app.state.scrapes = Scrapes(services.store, services.clock)
    document = openapi.document(app, largest_page=services.settings.limits.page)
    app.router.routes.extend(docs.routes(document))
    return app


def assemble(routers: Iterable[APIRouter], authenticator: Authenticator | None) -> FastAPI:
    """Make an application of these routes, with our errors and our edge; without an authenticator it only watches."""
    app = FastAPI(
        title="Cronwell",
        version=__version__,
        openapi_url=None,  # the document is made once, not at the first request
        redirect_slashes=False,
        routes=[route for router in routers for route in router.routes],
    )
    problems.install(app)
    app.add_middleware(Edge, authenticator=authenticator)
    return app
