"""Routes of callbacks: whoever answered a delivery with 202 says here how it goes on, and how it ended.

The address itself is what shows who calls: it was sent with the delivery, and nobody else could have written it.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from cronwell.api import openapi, parameters, schemas
from cronwell.api.answers import json_answer
from cronwell.api.bodies import Body, OptionalBody
from cronwell.api.callers import Attempt
from cronwell.api.services import Given
from cronwell.control.callbacks import UNSET, CallbackView
from cronwell.model.validation import validate

router = APIRouter(tags=["callbacks"], dependencies=parameters.STRICT, default_response_class=Response)

_ANSWERS = openapi.answers({200: CallbackView}, 400, 404, 409, 413, 415)


@router.post(
    "/v1/callbacks/{token:segment}/complete",
    responses=_ANSWERS,
    openapi_extra=openapi.takes(schemas.Completed, is_required=False),
)
async def complete(services: Given, attempt: Attempt, raw: OptionalBody) -> Response:
    """End the attempt with success. Ending it so again changes nothing; where it is over in another way: 409."""
    asked = validate(schemas.Completed, raw)
    return json_answer(await services.callbacks.complete(attempt, asked.output))


@router.post(
    "/v1/callbacks/{token:segment}/fail", responses=_ANSWERS, openapi_extra=openapi.takes(schemas.Failed)
)
async def fail(services: Given, attempt: Attempt, raw: Body) -> Response:
    """End the attempt with failure. It is tried again by the job's policy, unless `retry` is false."""
    asked = validate(schemas.Failed, raw)
    view = await services.callbacks.fail(attempt, asked.error, retry=asked.retry, output=asked.output)
    return json_answer(view)


@router.post(
    "/v1/callbacks/{token:segment}/progress",
    responses=_ANSWERS,
    openapi_extra=openapi.takes(schemas.Progress),
)
async def progress(services: Given, attempt: Attempt, raw: Body) -> Response:
    """Show how far the attempt is. It is a heartbeat too."""
    asked = validate(schemas.Progress, raw)
    return json_answer(await services.callbacks.tell(attempt, progress=asked.progress))


@router.post(
    "/v1/callbacks/{token:segment}/checkpoint",
    responses=_ANSWERS,
    openapi_extra=openapi.takes(schemas.Checkpoint),
)
async def checkpoint(services: Given, attempt: Attempt, raw: Body) -> Response:
    """Leave something for the next attempt, which gets it with its delivery. It is a heartbeat too."""
    asked = validate(schemas.Checkpoint, raw)
    return json_answer(await services.callbacks.tell(attempt, checkpoint=asked.checkpoint))


@router.post(
    "/v1/callbacks/{token:segment}/heartbeat",
    responses=_ANSWERS,
    openapi_extra=openapi.takes(schemas.Heartbeat, is_required=False),
)
async def heartbeat(services: Given, attempt: Attempt, raw: OptionalBody) -> Response:
    """Say that the attempt goes on. 409: it does not, because it was cancelled, timed out or begun anew."""
    asked = validate(schemas.Heartbeat, raw)
    told = UNSET if asked.progress is None else asked.progress
    return json_answer(await services.callbacks.tell(attempt, progress=told))
