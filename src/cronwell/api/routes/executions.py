"""Routes of executions and dead letters."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.responses import Response

from cronwell import errors
from cronwell.api import openapi, parameters, schemas
from cronwell.api.answers import json_answer
from cronwell.api.bodies import OptionalBody
from cronwell.api.callers import Reader, Runner
from cronwell.api.parameters import ExecutionId, Limit, PageCursor
from cronwell.api.services import Given, Services
from cronwell.control.views import ExecutionDetail, ExecutionView, Page
from cronwell.model.access import Caller
from cronwell.model.execution import ExecutionKey, Kind, State
from cronwell.model.validation import validate
from cronwell.store.port import ExecutionFilter

router = APIRouter(dependencies=parameters.STRICT, default_response_class=Response)


@router.get(
    "/v1/executions", tags=["executions"], responses=openapi.answers({200: Page[ExecutionView]}, 400, 404)
)
async def list_executions(
    services: Given,
    caller: Reader,
    *,
    job: parameters.JobFilterText = None,
    state: parameters.States = None,
    from_: parameters.From = None,
    to: parameters.To = None,
    worker: Annotated[UUID | None, Query(description="The worker that has or had it.")] = None,
    q: parameters.Text = None,
    kind: Annotated[Kind | None, Query(description="What asked for it.")] = None,
    limit: Limit = 50,
    cursor: PageCursor = None,
) -> Response:
    """Search executions, newest slot first."""
    where = ExecutionFilter(
        job_id=await _job_id(services, caller, job),
        states=parameters.read_states(state),
        from_slot=parameters.read_time("from", from_),
        to_slot=parameters.read_time("to", to),
        worker=worker,
        text=q,
        kind=kind,
    )
    page = await services.executions.page(
        caller.tenant_id, where, cursor=cursor, limit=parameters.read_page_limit(limit, services)
    )
    return json_answer(page)


@router.get(
    "/v1/executions/{id:segment}",
    tags=["executions"],
    responses=openapi.answers({200: ExecutionDetail}, 400, 404),
)
async def get_execution(services: Given, caller: Reader, execution: ExecutionId) -> Response:
    """Show an execution with its attempts, timeline and output."""
    return json_answer(await services.executions.get(caller.tenant_id, execution))


@router.post(
    "/v1/executions/{id:segment}/cancel",
    tags=["executions"],
    status_code=202,
    responses=openapi.answers({202: ExecutionDetail}, 400, 404, 409, 413, 415),
)
async def cancel_execution(services: Given, caller: Runner, execution: ExecutionId) -> Response:
    """End an execution that has not started, or ask the one that runs to stop."""
    return json_answer(await services.executions.cancel(caller.tenant_id, execution), 202)


@router.post(
    "/v1/executions/{id:segment}/retry",
    tags=["executions"],
    status_code=202,
    responses=openapi.answers({202: ExecutionDetail}, 400, 404, 409),
)
async def retry_execution(services: Given, caller: Runner, execution: ExecutionId) -> Response:
    """Give a dead letter, or what was cancelled, a new set of attempts."""
    return json_answer(await services.executions.retry(caller.tenant_id, execution), 202)


@router.get(
    "/v1/dead-letters", tags=["dead letters"], responses=openapi.answers({200: Page[ExecutionView]}, 400, 404)
)
async def list_dead_letters(
    services: Given,
    caller: Reader,
    *,
    job: parameters.JobFilterText = None,
    from_: parameters.From = None,
    to: parameters.To = None,
    q: parameters.Text = None,
    limit: Limit = 50,
    cursor: PageCursor = None,
) -> Response:
    """List the executions that have no attempts left, newest slot first."""
    where = ExecutionFilter(
        job_id=await _job_id(services, caller, job),
        states=(State.FAILED,),
        from_slot=parameters.read_time("from", from_),
        to_slot=parameters.read_time("to", to),
        text=q,
    )
    page = await services.executions.page(
        caller.tenant_id, where, cursor=cursor, limit=parameters.read_page_limit(limit, services)
    )
    return json_answer(page)


@router.post(
    "/v1/dead-letters/redrive",
    tags=["dead letters"],
    responses=openapi.answers({200: schemas.Redriven}, 400, 404, 413, 415),
    openapi_extra=openapi.takes(schemas.Redrive, is_required=False),
)
async def redrive_dead_letters(services: Given, caller: Runner, raw: OptionalBody) -> Response:
    """Retry dead letters, oldest first: those of `ids`, or all that match; so many a second."""
    asked = validate(schemas.Redrive, raw)
    where = ExecutionFilter(
        job_id=await _job_id(services, caller, asked.job),
        from_slot=parameters.read_time("from", asked.from_),
        to_slot=parameters.read_time("to", asked.to),
        text=asked.q,
        keys=None if asked.ids is None else tuple(_key(each) for each in asked.ids),
    )
    counts = services.executions.redrive(caller.tenant_id, where, rate=asked.rate, limit=asked.limit)
    return json_answer(schemas.Redriven(count=max([count async for count in counts], default=0)))


@router.post(
    "/v1/dead-letters/{id:segment}/dismiss",
    tags=["dead letters"],
    responses=openapi.answers({200: ExecutionDetail}, 400, 404, 409),
)
async def dismiss_dead_letter(services: Given, caller: Runner, execution: ExecutionId) -> Response:
    """Let a dead letter rest. It stays in the history."""
    return json_answer(await services.executions.dismiss(caller.tenant_id, execution))


async def _job_id(services: Services, caller: Caller, reference: str | None) -> UUID | None:
    return None if reference is None else (await services.jobs.find(caller.tenant_id, reference)).id


def _key(text: str) -> ExecutionKey:
    try:
        return ExecutionKey.parse(text)
    except errors.NotFound as error:
        raise errors.Invalid.field("ids", str(error), accepted="ids of executions") from None
