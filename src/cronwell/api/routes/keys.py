"""Routes of API keys."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from cronwell.api import openapi, parameters, schemas
from cronwell.api.answers import json_answer
from cronwell.api.bodies import Body, OptionalBody
from cronwell.api.callers import Admin
from cronwell.api.parameters import Limit, PageCursor
from cronwell.api.services import Given
from cronwell.control.keys import KeyView, NewKey
from cronwell.control.views import Page
from cronwell.model.validation import validate

router = APIRouter(tags=["keys"], dependencies=parameters.STRICT, default_response_class=Response)

KeyId = Annotated[str, Path(alias="id", description="A key's id.")]
# What is shown once is not to be found in a cache.
NO_STORE = {"Cache-Control": "no-store"}


@router.post(
    "/v1/keys",
    status_code=201,
    responses=openapi.answers({201: NewKey}, 400, 413, 415),
    openapi_extra=openapi.takes(schemas.KeyAsked),
)
async def create_key(services: Given, caller: Admin, raw: Body) -> Response:
    """Make a key. It is shown in this answer and never again, and has no scope that yours lacks."""
    asked = validate(schemas.KeyAsked, raw)
    expires_at = parameters.read_time("expires_at", asked.expires_at)
    made = await services.keys.create(caller, asked.name, asked.scopes, expires_at=expires_at)
    return json_answer(made, 201, {**NO_STORE, "Location": f"/v1/keys/{made.id}"})


@router.get("/v1/keys", responses=openapi.answers({200: Page[KeyView]}, 400))
async def list_keys(services: Given, caller: Admin, limit: Limit = 50, cursor: PageCursor = None) -> Response:
    """List the tenant's keys, newest first, with those that are over."""
    most = parameters.read_page_limit(limit, services)
    return json_answer(await services.keys.page(caller, cursor=cursor, limit=most))


@router.get("/v1/keys/{id:segment}", responses=openapi.answers({200: KeyView}, 404))
async def get_key(services: Given, caller: Admin, key: KeyId) -> Response:
    """Show a key: everything but the key itself."""
    return json_answer(await services.keys.get(caller, key))


@router.post("/v1/keys/{id:segment}/revoke", responses=openapi.answers({200: KeyView}, 404))
async def revoke_key(services: Given, caller: Admin, key: KeyId) -> Response:
    """Revoke a key: it opens nothing from now on. Revoking again changes nothing."""
    return json_answer(await services.keys.revoke(caller, key))


@router.post(
    "/v1/keys/{id:segment}/rotate",
    status_code=201,
    responses=openapi.answers({201: NewKey}, 400, 404, 409, 413, 415),
    openapi_extra=openapi.takes(schemas.Rotate, is_required=False),
)
async def rotate_key(services: Given, caller: Admin, key: KeyId, raw: OptionalBody) -> Response:
    """Make a key with the same name and scopes; the old one goes on to be good for the time of the overlap."""
    asked = validate(schemas.Rotate, raw)
    made = await services.keys.rotate(caller, key, overlap=parameters.read_duration("overlap", asked.overlap))
    return json_answer(made, 201, {**NO_STORE, "Location": f"/v1/keys/{made.id}"})
