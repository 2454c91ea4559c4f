"""Routes of tenants."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from cronwell.api import openapi, parameters, schemas
from cronwell.api.answers import json_answer
from cronwell.api.bodies import Body
from cronwell.api.callers import OPERATOR
from cronwell.api.parameters import Limit, PageCursor
from cronwell.api.services import Given
from cronwell.control.tenants import TenantView
from cronwell.control.views import Page
from cronwell.model.access import TENANT_PATTERN, Quotas
from cronwell.model.validation import validate

router = APIRouter(
    tags=["tenants"], dependencies=[*parameters.STRICT, OPERATOR], default_response_class=Response
)

Name = Annotated[str, Path(pattern=TENANT_PATTERN, description="The tenant's name.")]


@router.post(
    "/v1/tenants",
    status_code=201,
    responses=openapi.answers({201: TenantView}, 400, 409, 413, 415),
    openapi_extra=openapi.takes(schemas.TenantAsked),
)
async def create_tenant(services: Given, raw: Body) -> Response:
    """Make a tenant. `cronwell bootstrap --tenant NAME` makes its first key."""
    asked = validate(schemas.TenantAsked, raw)
    quotas = Quotas(**asked.quotas.model_dump())
    made = await services.tenants.create(asked.name, weight=asked.weight, quotas=quotas)
    return json_answer(made, 201, {"Location": f"/v1/tenants/{made.name}"})


@router.get("/v1/tenants", responses=openapi.answers({200: Page[TenantView]}, 400))
async def list_tenants(services: Given, limit: Limit = 50, cursor: PageCursor = None) -> Response:
    """List tenants by name."""
    most = parameters.read_page_limit(limit, services)
    return json_answer(await services.tenants.page(cursor=cursor, limit=most))


@router.get("/v1/tenants/{name:segment}", responses=openapi.answers({200: TenantView}, 400, 404))
async def get_tenant(services: Given, name: Name) -> Response:
    """Show a tenant."""
    return json_answer(await services.tenants.get(name))


@router.patch(
    "/v1/tenants/{name:segment}",
    responses=openapi.answers({200: TenantView}, 400, 404, 413, 415),
    openapi_extra=openapi.takes(schemas.TenantChanged),
)
async def change_tenant(services: Given, name: Name, raw: Body) -> Response:
    """Change a tenant's share or its quotas."""
    asked = validate(schemas.TenantChanged, raw)
    quotas = {} if asked.quotas is None else asked.quotas.model_dump(exclude_unset=True)
    return json_answer(await services.tenants.change(name, weight=asked.weight, quotas=quotas))
