"""Routes of what targets bear, and of hosts that keep failing."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from cronwell.api import openapi, parameters, schemas
from cronwell.api.answers import json_answer
from cronwell.api.bodies import Body
from cronwell.api.callers import Reader, Runner, Writer
from cronwell.api.parameters import Limit, PageCursor
from cronwell.api.services import Given
from cronwell.control.hosts import HostHealth, HostView, LimitView
from cronwell.control.views import Page
from cronwell.model.throttle import LONGEST_NAME
from cronwell.model.validation import validate

router = APIRouter(tags=["hosts"], dependencies=parameters.STRICT, default_response_class=Response)

Target = Annotated[
    str,
    Path(
        max_length=LONGEST_NAME,
        description="`host:NAME`, `host:NAME:PORT` (a port that is not 80 or 443), `handler:NAME`, or `shell`.",
    ),
]
Host = Annotated[
    str, Path(max_length=LONGEST_NAME, description="A name or an address, with its port unless 80 or 443.")
]
State = Annotated[HostHealth | None, Query(description="Only hosts in this state.")]


@router.put(
    "/v1/limits/{target:segment}",
    responses=openapi.answers({200: LimitView, 201: LimitView}, 400, 413, 415),
    openapi_extra=openapi.takes(schemas.LimitGiven),
)
async def put_limit(services: Given, caller: Writer, target: Target, raw: Body) -> Response:
    """Say what a target bears. Workers keep to it, all together, within a heartbeat."""
    asked = validate(schemas.LimitGiven, raw)
    shown, is_new = await services.hosts.put_limit(
        caller.tenant_id, target, rate=asked.rate, concurrency=asked.concurrency, breaker=asked.breaker
    )
    return json_answer(shown, 201 if is_new else 200)


@router.get("/v1/limits", responses=openapi.answers({200: Page[LimitView]}, 400))
async def list_limits(
    services: Given, caller: Reader, limit: Limit = 50, cursor: PageCursor = None
) -> Response:
    """List what targets bear, by target."""
    most = parameters.read_page_limit(limit, services)
    return json_answer(await services.hosts.page_limits(caller.tenant_id, cursor=cursor, limit=most))


@router.get("/v1/limits/{target:segment}", responses=openapi.answers({200: LimitView}, 400, 404))
async def get_limit(services: Given, caller: Reader, target: Target) -> Response:
    """Show what a target bears, and how many executions wait for it."""
    return json_answer(await services.hosts.get_limit(caller.tenant_id, target))


@router.delete("/v1/limits/{target:segment}", responses=openapi.answers({200: schemas.Deleted}, 404))
async def delete_limit(services: Given, caller: Writer, target: Target) -> Response:
    """Let a target have as much as there is. What waits for it comes again within a heartbeat."""
    await services.hosts.drop_limit(caller.tenant_id, target)
    return json_answer(schemas.Deleted())


@router.get("/v1/hosts", responses=openapi.answers({200: Page[HostView]}, 400))
async def list_hosts(
    services: Given, caller: Reader, state: State = None, limit: Limit = 50, cursor: PageCursor = None
) -> Response:
    """List hosts that keep failing, or did so lately, by name."""
    most = parameters.read_page_limit(limit, services)
    page = await services.hosts.page_hosts(caller.tenant_id, state=state, cursor=cursor, limit=most)
    return json_answer(page)


@router.get("/v1/hosts/{host:segment}", responses=openapi.answers({200: HostView}, 400, 404))
async def get_host(services: Given, caller: Reader, host: Host) -> Response:
    """Show how a host fares, when it is tried next, and how many executions wait for it."""
    return json_answer(await services.hosts.get_host(caller.tenant_id, host))


@router.post("/v1/hosts/{host:segment}/close", responses=openapi.answers({200: HostView}, 400, 404, 409))
async def close_host(services: Given, caller: Runner, host: Host) -> Response:
    """Say that a host is well: workers call it again, and what waits for it comes again, within a heartbeat."""
    return json_answer(await services.hosts.close(caller.tenant_id, host))
