"""Routes by which other programs watch this process: is it alive, is it ready, and what does it count."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request
from starlette.responses import Response

from cronwell import errors
from cronwell.api import openapi, parameters, schemas
from cronwell.api.answers import json_answer
from cronwell.api.callers import OPERATOR
from cronwell.api.metrics import CONTENT_TYPE, Scrapes

router = APIRouter(tags=["health"], dependencies=parameters.STRICT, default_response_class=Response)

READY_TIMEOUT_S = 5.0
NO_STORE = {"Cache-Control": "no-store"}


@router.get("/healthz", responses=openapi.answers({200: schemas.Health}))
async def get_health() -> Response:
    """Tell that the process lives. Asks nothing of the database."""
    return json_answer(schemas.Health(), headers=NO_STORE)


@router.get("/readyz", responses=openapi.answers({200: schemas.Readiness, 503: schemas.Readiness}))
async def get_readiness(request: Request) -> Response:
    """Tell whether requests can be served, and why not."""
    is_ready: Callable[[], Awaitable[list[str]]] = request.app.state.is_ready
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            reasons = await is_ready()
    except errors.StoreUnavailable as error:
        reasons = [str(error)]
    except TimeoutError:
        reasons = [f"no answer within {READY_TIMEOUT_S:g} s"]
    status = 503 if reasons else 200
    return json_answer(schemas.Readiness(ready=not reasons, reasons=reasons), status, NO_STORE)


@router.get(
    "/metrics", dependencies=[OPERATOR], responses=openapi.answers({200: str}, media_type="text/plain")
)
async def get_metrics(request: Request) -> Response:
    """Metrics for Prometheus."""
    scrapes: Scrapes = request.app.state.scrapes
    return Response(await scrapes.text(), headers={**NO_STORE, "Content-Type": CONTENT_TYPE})
