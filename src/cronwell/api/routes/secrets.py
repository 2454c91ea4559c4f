"""Routes of secrets, and of the keys that they are encrypted with."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from cronwell.api import openapi, parameters, schemas
from cronwell.api.answers import json_answer
from cronwell.api.bodies import Body, OptionalBody
from cronwell.api.callers import Operator, Reader, Writer
from cronwell.api.parameters import Limit, PageCursor
from cronwell.api.services import Given
from cronwell.control.secrets import KeyUses, Rotated, SecretDetail, SecretView
from cronwell.control.views import Page
from cronwell.model.references import SECRET_PATTERN
from cronwell.model.validation import validate

router = APIRouter(tags=["secrets"], dependencies=parameters.STRICT, default_response_class=Response)

Name = Annotated[str, Path(pattern=SECRET_PATTERN, description="The secret's name.")]


@router.put(
    "/v1/secrets/{name:segment}",
    responses=openapi.answers({200: SecretView, 201: SecretView}, 400, 409, 413, 415),
    openapi_extra=openapi.takes(schemas.SecretGiven),
)
async def put_secret(services: Given, caller: Writer, name: Name, raw: Body) -> Response:
    """Set a secret. Jobs that name it use the new value within seconds; no answer tells it."""
    given = validate(schemas.SecretGiven, raw)
    shown, is_new = await services.secrets.put(caller, name, given.value)
    return json_answer(shown, 201 if is_new else 200)


@router.get("/v1/secrets", responses=openapi.answers({200: Page[SecretView]}, 400))
async def list_secrets(
    services: Given, caller: Reader, limit: Limit = 50, cursor: PageCursor = None
) -> Response:
    """List secrets by name: everything but their values."""
    most = parameters.read_page_limit(limit, services)
    return json_answer(await services.secrets.page(caller, cursor=cursor, limit=most))


@router.get("/v1/secrets/{name:segment}", responses=openapi.answers({200: SecretDetail}, 404))
async def get_secret(services: Given, caller: Reader, name: Name) -> Response:
    """Show a secret and which jobs name it: everything but its value."""
    return json_answer(await services.secrets.get(caller, name))


@router.delete("/v1/secrets/{name:segment}", responses=openapi.answers({200: schemas.Deleted}, 404, 409))
async def delete_secret(
    services: Given,
    caller: Writer,
    name: Name,
    force: Annotated[bool, Query(description="Also where jobs name it; their attempts fail then.")] = False,
) -> Response:
    """Delete a secret that no job names."""
    await services.secrets.delete(caller, name, is_forced=force)
    return json_answer(schemas.Deleted())


@router.get("/v1/secret-keys", responses=openapi.answers({200: KeyUses}, 409))
async def list_secret_keys(services: Given, caller: Operator) -> Response:  # noqa: ARG001  # named for its scope
    """List the installation's keys by their ids, and how many secrets are encrypted with each."""
    return json_answer(await services.secrets.keys())


@router.post(
    "/v1/secret-keys/rotate",
    responses=openapi.answers({200: Rotated}, 400, 409, 413, 415),
    openapi_extra=openapi.takes(schemas.RotateKeys, is_required=False),
)
async def rotate_secret_keys(services: Given, caller: Operator, raw: OptionalBody) -> Response:
    """Encrypt some secrets, of whichever tenants, by way of the first key; repeat it with `next_cursor` for all."""
    asked = validate(schemas.RotateKeys, raw)
    return json_answer(await services.secrets.rotate(caller, cursor=asked.cursor))
