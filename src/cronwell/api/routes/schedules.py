"""Routes of schedules that belong to no job."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.responses import Response

from cronwell.api import openapi, parameters, schemas
from cronwell.api.answers import json_answer
from cronwell.api.bodies import Body
from cronwell.api.callers import Reader
from cronwell.api.services import Given
from cronwell.control.views import Preview
from cronwell.model.validation import validate

router = APIRouter(tags=["schedules"], dependencies=parameters.STRICT, default_response_class=Response)


@router.post(
    "/v1/schedules/preview",
    responses=openapi.answers({200: Preview}, 400, 413, 415),
    openapi_extra=openapi.takes(schemas.PreviewAsked),
)
async def preview_schedule(services: Given, caller: Reader, raw: Body) -> Response:
    """Show what a schedule would do. Nothing is stored."""
    asked = validate(schemas.PreviewAsked, raw)
    known = await services.calendars.known(caller.tenant_id, [{"schedule": asked.schedule}])
    # A thousand slots take up to 50 ms, too long to keep the event loop from others.
    shown = await asyncio.to_thread(
        services.outlook.preview,
        asked.schedule,
        timezone=asked.timezone,
        window=asked.window,
        after=parameters.read_time("after", asked.after),
        count=asked.count,
        job=asked.job,
        calendars=known.calendars,
    )
    return json_answer(shown)
