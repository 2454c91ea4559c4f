"""Routes of calendars."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from cronwell.api import openapi, parameters, schemas
from cronwell.api.answers import json_answer
from cronwell.api.bodies import Body
from cronwell.api.callers import Reader, Writer
from cronwell.api.parameters import IfMatch, Limit, PageCursor
from cronwell.api.services import Given
from cronwell.control.calendars import CalendarDetail, CalendarView
from cronwell.control.views import Page
from cronwell.model.part import NAME_PATTERN

router = APIRouter(tags=["calendars"], dependencies=parameters.STRICT, default_response_class=Response)

Name = Annotated[str, Path(pattern=NAME_PATTERN, description="The calendar's name.")]


@router.put(
    "/v1/calendars/{name:segment}",
    responses=openapi.answers(
        {200: CalendarView, 201: CalendarView}, 400, 409, 412, 413, 415, headers=("ETag",)
    ),
    openapi_extra=openapi.takes(schemas.CalendarGiven),
)
async def put_calendar(
    services: Given, caller: Writer, name: Name, raw: Body, if_match: IfMatch = None
) -> Response:
    """Keep a calendar under a name. Jobs that follow it are planned anew within seconds."""
    shown, is_new = await services.calendars.put(
        caller.tenant_id, name, raw, revision=parameters.read_revision(if_match)
    )
    return json_answer(shown, 201 if is_new else 200, {"ETag": f'"{shown.revision}"'})


@router.get("/v1/calendars", responses=openapi.answers({200: Page[CalendarView]}, 400))
async def list_calendars(
    services: Given, caller: Reader, limit: Limit = 50, cursor: PageCursor = None
) -> Response:
    """List calendars by name."""
    most = parameters.read_page_limit(limit, services)
    return json_answer(await services.calendars.page(caller.tenant_id, cursor=cursor, limit=most))


@router.get(
    "/v1/calendars/{name:segment}",
    responses=openapi.answers({200: CalendarDetail}, 400, 404, headers=("ETag",)),
)
async def get_calendar(
    services: Given,
    caller: Reader,
    name: Name,
    timezone: Annotated[str, Query(max_length=64, description="Whose days are shown.")] = "UTC",
) -> Response:
    """Show a calendar and what it contains next."""
    shown = await services.calendars.get(caller.tenant_id, name, timezone=timezone)
    return json_answer(shown, 200, {"ETag": f'"{shown.revision}"'})


@router.delete("/v1/calendars/{name:segment}", responses=openapi.answers({200: schemas.Deleted}, 404, 409))
async def delete_calendar(services: Given, caller: Writer, name: Name) -> Response:
    """Delete a calendar that no job follows."""
    await services.calendars.delete(caller.tenant_id, name)
    return json_answer(schemas.Deleted())
