"""Routes of jobs that follow others."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from cronwell.api import openapi, parameters, schemas
from cronwell.api.answers import json_answer
from cronwell.api.bodies import OptionalBody
from cronwell.api.callers import Reader, Runner
from cronwell.api.parameters import ExecutionId, JobReference
from cronwell.api.services import Given
from cronwell.control.graph import GraphView
from cronwell.control.views import ExecutionDetail
from cronwell.model.validation import validate

router = APIRouter(tags=["dependencies"], dependencies=parameters.STRICT, default_response_class=Response)


@router.get("/v1/jobs/{id:segment}/graph", responses=openapi.answers({200: GraphView}, 400, 404))
async def show_graph(
    services: Given,
    caller: Reader,
    job: JobReference,
    slot: Annotated[
        str | None,
        Query(
            max_length=64,
            description="How the jobs stand at this slot: RFC 3339; by default, at their newest.",
        ),
    ] = None,
) -> Response:
    """Show all jobs that a job has to do with by what follows what."""
    at = parameters.read_time("slot", slot)
    return json_answer(await services.graphs.graph(caller.tenant_id, job, at))


@router.post(
    "/v1/executions/{id:segment}/rerun",
    status_code=202,
    responses=openapi.answers({202: ExecutionDetail}, 400, 404, 409, 413, 415),
    openapi_extra=openapi.takes(schemas.Rerun, is_required=False),
)
async def rerun_execution(
    services: Given, caller: Runner, execution: ExecutionId, raw: OptionalBody
) -> Response:
    """Run an execution that has ended once more, whatever came of it; and what follows it, where that is asked for."""
    asked = validate(schemas.Rerun, raw)
    found = await services.graphs.rerun(caller.tenant_id, execution, is_downstream=asked.downstream)
    return json_answer(found, 202)
