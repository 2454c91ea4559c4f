"""Routes of backfills."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from cronwell.api import openapi, parameters, schemas
from cronwell.api.answers import answered, json_answer
from cronwell.api.bodies import Body
from cronwell.api.callers import Reader, Runner
from cronwell.api.parameters import BackfillId, IdempotencyKey, JobReference, Limit, PageCursor
from cronwell.api.services import Given
from cronwell.control.backfill_views import BackfillPlan, BackfillView
from cronwell.control.backfills import Asked
from cronwell.control.executions import UNSET
from cronwell.control.views import Page
from cronwell.model.validation import validate

router = APIRouter(tags=["backfills"], dependencies=parameters.STRICT, default_response_class=Response)

_EXAMPLES = {
    "dry run": {
        "summary": "What would it do?",
        "value": {"from": "2027-05-01T00:00:00Z", "to": "2027-05-08T00:00:00Z", "dry_run": True},
    },
    "then": {
        "summary": "A week, newest first, by the definitions of that time",
        "value": {
            "from": "2027-05-01T00:00:00Z",
            "to": "2027-05-08T00:00:00Z",
            "order": "newest",
            "rate": "100/m",
            "concurrency": 5,
            "definition": "then",
            "note": "the feed was empty that week",
        },
    },
}
_State = Annotated[
    Literal["running", "paused", "finished", "cancelled"] | None, Query(description="How it stands.")
]


@router.post(
    "/v1/jobs/{id:segment}/backfills",
    status_code=201,
    responses=openapi.answers(
        {200: BackfillPlan, 201: BackfillView},
        *(400, 404, 409, 413, 415),
        headers=("Location", "Idempotency-Replayed"),
    ),
    openapi_extra=openapi.takes(schemas.BackfillAsked, examples=_EXAMPLES),
)
async def start_backfill(
    services: Given,
    caller: Runner,
    request: Request,
    job: JobReference,
    raw: Body,
    key: IdempotencyKey = None,
) -> Response:
    """Run a range of a job's past slots, each once however often it is asked for; or say what that would do.

    A slot that ran by schedule is run again; one that has been backfilled is not. The executions have the kind `backfill`
    and low priority, and neither wait for those of the schedule nor keep them waiting.
    """
    parameters.check_payload(caller, raw)
    asked, is_dry_run = _read(raw)
    if is_dry_run:
        return json_answer(await services.backfills.preview(caller.tenant_id, job, asked))
    made = await services.backfills.start(
        caller.tenant_id, job, asked, parameters.request_key(key, request, raw)
    )
    return answered(made, "/v1/backfills/")


@router.get("/v1/jobs/{id:segment}/backfills", responses=openapi.answers({200: Page[BackfillView]}, 400, 404))
async def list_job_backfills(
    services: Given,
    caller: Reader,
    job: JobReference,
    state: _State = None,
    limit: Limit = 50,
    cursor: PageCursor = None,
) -> Response:
    """List a job's backfills, newest first."""
    page = await services.backfills.page(
        caller.tenant_id,
        reference=job,
        state=state,
        cursor=cursor,
        limit=parameters.read_page_limit(limit, services),
    )
    return json_answer(page)


@router.get("/v1/backfills", responses=openapi.answers({200: Page[BackfillView]}, 400, 404))
async def list_backfills(
    services: Given,
    caller: Reader,
    job: parameters.JobFilterText = None,
    state: _State = None,
    limit: Limit = 50,
    cursor: PageCursor = None,
) -> Response:
    """List backfills, newest first."""
    page = await services.backfills.page(
        caller.tenant_id,
        reference=job,
        state=state,
        cursor=cursor,
        limit=parameters.read_page_limit(limit, services),
    )
    return json_answer(page)


@router.get("/v1/backfills/{id:segment}", responses=openapi.answers({200: BackfillView}, 400, 404))
async def get_backfill(services: Given, caller: Reader, backfill: BackfillId) -> Response:
    """Show a backfill and how far it has come."""
    return json_answer(await services.backfills.get(caller.tenant_id, backfill))


@router.post(
    "/v1/backfills/{id:segment}/pause", responses=openapi.answers({200: BackfillView}, 400, 404, 409)
)
async def pause_backfill(services: Given, caller: Runner, backfill: BackfillId) -> Response:
    """Stage no further slots of a backfill; what is staged goes on."""
    return json_answer(await services.backfills.pause(caller.tenant_id, backfill))


@router.post(
    "/v1/backfills/{id:segment}/resume", responses=openapi.answers({200: BackfillView}, 400, 404, 409)
)
async def resume_backfill(services: Given, caller: Runner, backfill: BackfillId) -> Response:
    """Let a paused backfill go on."""
    return json_answer(await services.backfills.resume(caller.tenant_id, backfill))


@router.post(
    "/v1/backfills/{id:segment}/cancel", responses=openapi.answers({200: BackfillView}, 400, 404, 409)
)
async def cancel_backfill(services: Given, caller: Runner, backfill: BackfillId) -> Response:
    """End a backfill: what has not begun is taken back, what runs may finish but is not tried again."""
    return json_answer(await services.backfills.cancel(caller.tenant_id, backfill))


def _read(raw: dict[str, Any]) -> tuple[Asked, bool]:
    """What is asked for, and whether only what it would do."""
    asked = validate(schemas.BackfillAsked, raw)
    begin = parameters.read_time("from", asked.from_)
    assert begin is not None, "it is required"
    return Asked(
        begin=begin,
        end=parameters.read_time("to", asked.to),
        order=asked.order,
        rate=asked.rate,
        concurrency=asked.concurrency,
        definition=asked.definition,
        payload=raw.get("payload", UNSET),
        note=asked.note,
    ), asked.dry_run
