"""Routes of overrides: what was decided about one slot of a job."""

from __future__ import annotations

from datetime import datetime, tzinfo

from fastapi import APIRouter
from starlette.responses import Response

from cronwell.api import openapi, parameters, schemas
from cronwell.api.answers import json_answer
from cronwell.api.bodies import Body
from cronwell.api.callers import Reader, Writer
from cronwell.api.parameters import JobReference, Limit, PageCursor
from cronwell.api.services import Given
from cronwell.control.overrides import OverrideView, read_decision
from cronwell.control.views import Page
from cronwell.model.validation import validate

router = APIRouter(tags=["overrides"], dependencies=parameters.STRICT, default_response_class=Response)


@router.get("/v1/jobs/{id:segment}/overrides", responses=openapi.answers({200: Page[OverrideView]}, 400, 404))
async def list_overrides(
    services: Given, caller: Reader, job: JobReference, limit: Limit = 50, cursor: PageCursor = None
) -> Response:
    """List what was decided about single slots of a job, the latest slot first."""
    page = await services.overrides.page(
        caller.tenant_id, job, cursor=cursor, limit=parameters.read_page_limit(limit, services)
    )
    return json_answer(page)


@router.put(
    "/v1/jobs/{id:segment}/overrides/{slot:segment}",
    responses=openapi.answers({200: OverrideView}, 400, 404, 409, 413, 415),
    openapi_extra=openapi.takes(
        schemas.OverrideAsked,
        examples={
            "skip": {
                "summary": "Skip the slot",
                "value": {"action": "skip", "note": "books are closed", "author": "ana"},
            },
            "move": {
                "summary": "Start it two hours later",
                "value": {"action": "move", "to": "2027-05-05T05:00:00Z", "author": "ana"},
            },
        },
    ),
)
async def put_override(
    services: Given, caller: Writer, job: JobReference, slot: parameters.Slot, raw: Body
) -> Response:
    """Skip one coming slot of a job, move it, or give it another payload.

    The slot is one of those that `upcoming` shows. What was decided about it before is replaced.
    """
    asked = validate(schemas.OverrideAsked, raw)
    parameters.check_payload(caller, raw)
    zone = await services.overrides.zone(caller.tenant_id, job)
    decision = read_decision(
        {name: getattr(asked, name) for name in asked.model_fields_set},
        parameters.read_time("to", asked.to, zone),
        parameters.read_time("expires_at", asked.expires_at),
    )
    return json_answer(await services.overrides.put(caller.tenant_id, job, _read(slot, zone), decision))


@router.delete(
    "/v1/jobs/{id:segment}/overrides/{slot:segment}",
    responses=openapi.answers({200: schemas.Deleted}, 400, 404, 409),
)
async def delete_override(
    services: Given, caller: Writer, job: JobReference, slot: parameters.Slot
) -> Response:
    """Remove what was decided about a coming slot: it is what it would have been."""
    zone = await services.overrides.zone(caller.tenant_id, job)
    await services.overrides.remove(caller.tenant_id, job, _read(slot, zone))
    return json_answer(schemas.Deleted())


def _read(slot: str, zone: tzinfo) -> datetime:
    moment = parameters.read_time("slot", slot, zone)
    assert moment is not None, "a path has a slot"
    return moment
