"""Routes of the rules of zones: what those installed would move, and what is to be done about it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from cronwell import errors
from cronwell.api import openapi, parameters, schemas
from cronwell.api.answers import json_answer
from cronwell.api.bodies import OptionalBody
from cronwell.api.callers import Reader, Writer
from cronwell.api.parameters import Limit, PageCursor
from cronwell.api.services import Given, Services
from cronwell.control.tzdata import Action, Impact, Settled
from cronwell.model.access import Caller
from cronwell.model.validation import validate

router = APIRouter(tags=["schedules"], dependencies=parameters.STRICT, default_response_class=Response)


@router.get("/v1/tzdata/impact", responses=openapi.answers({200: Impact}, 400))
async def list_tzdata_impact(
    services: Given, caller: Reader, limit: Limit = 50, cursor: PageCursor = None
) -> Response:
    """List jobs whose next slots move under the rules of zones that are installed now.

    Where there are many jobs a page may be short, or empty; the list ends where there is no `next_cursor`.
    """
    found = await services.tzdata.impact(
        caller.tenant_id, cursor=cursor, limit=parameters.read_page_limit(limit, services)
    )
    return json_answer(found)


@router.post(
    "/v1/tzdata/apply",
    responses=openapi.answers({200: Settled}, 400, 404, 413, 415),
    openapi_extra=openapi.takes(schemas.TzdataDecided, is_required=False),
)
async def apply_tzdata(services: Given, caller: Writer, raw: OptionalBody) -> Response:
    """Move the next slots of jobs to where the rules installed have them, also those that are staged."""
    return await _settle(services, caller, "apply", raw)


@router.post(
    "/v1/tzdata/hold",
    responses=openapi.answers({200: Settled}, 400, 404, 413, 415),
    openapi_extra=openapi.takes(schemas.TzdataDecided, is_required=False),
)
async def hold_tzdata(services: Given, caller: Writer, raw: OptionalBody) -> Response:
    """Keep the next slots of jobs where they are; those after them follow the rules installed."""
    return await _settle(services, caller, "hold", raw)


async def _settle(services: Services, caller: Caller, action: Action, raw: dict[str, Any]) -> Response:
    asked = validate(schemas.TzdataDecided, raw)
    if asked.jobs is not None and asked.cursor is not None:
        raise errors.Invalid.field(
            "cursor", "means nothing beside `jobs`", accepted="`jobs` alone, or `cursor` alone"
        )
    settled = await services.tzdata.settle(caller.tenant_id, action, jobs=asked.jobs, cursor=asked.cursor)
    await services.audit.note(caller, f"tzdata {action}", "tzdata:", settled.model_dump(mode="json"))
    return json_answer(settled)
