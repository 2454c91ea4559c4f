"""What a scheduler or worker shows of itself: health, readiness and metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI

from cronwell.api.app import assemble
from cronwell.api.metrics import Scrapes
from cronwell.api.routes import health
from cronwell.runtime.clock import Clock
from cronwell.store.port import Store


def create_ops_app(is_ready: Callable[[], Awaitable[list[str]]], store: Store, clock: Clock) -> FastAPI:
    """Make the application that watches a process which serves no API."""
    app = assemble([health.router], None)
    app.state.is_ready = is_ready
    app.state.scrapes = Scrapes(store, clock)
    return app
