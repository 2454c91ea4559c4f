"""Routes of jobs."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from cronwell.api import openapi, parameters, schemas
from cronwell.api.answers import answered, json_answer, shown_job
from cronwell.api.batch import Batch
from cronwell.api.bodies import Body, OptionalBody
from cronwell.api.callers import Reader, Runner, Writer
from cronwell.api.parameters import IdempotencyKey, IfMatch, JobReference, Limit, PageCursor
from cronwell.api.services import Given
from cronwell.control.executions import UNSET
from cronwell.control.explain import Explanation
from cronwell.control.views import (
    ExecutionView,
    JobDetail,
    JobStatus,
    JobView,
    Page,
    Upcoming,
)
from cronwell.model.job import POOL_PATTERN, JobSpec, TargetKind
from cronwell.model.validation import validate
from cronwell.store.port import ExecutionFilter, JobFilter

router = APIRouter(tags=["jobs"], dependencies=parameters.STRICT, default_response_class=Response)

_EXAMPLES = {
    "cron": {
        "summary": "Every day at three, Los Angeles time",
        "value": {
            "name": "daily-invoices",
            "schedule": {"cron": "0 3 * * *", "timezone": "America/Los_Angeles"},
            "target": {"http": {"url": "https://billing.internal/run", "headers": {"X-Team": "billing"}}},
            "payload": {"range": "yesterday"},
            "tags": {"team": "billing"},
        },
    },
    "short": {
        "summary": "Once, in five minutes",
        "value": {"name": "reminder", "schedule": "in 5m", "target": "https://example.com/remind"},
    },
}


@router.post(
    "/v1/jobs",
    status_code=201,
    responses=openapi.answers(
        {201: JobView}, 400, 409, 413, 415, headers=("Location", "ETag", "Idempotency-Replayed")
    ),
    openapi_extra=openapi.takes(JobSpec, examples=_EXAMPLES),
)
async def create_job(
    services: Given, caller: Writer, request: Request, raw: Body, key: IdempotencyKey = None
) -> Response:
    """Create a job."""
    made = await services.jobs.create(caller, raw, parameters.request_key(key, request, raw))
    return answered(made, "/v1/jobs/")


@router.post(
    "/v1/jobs:batch",
    responses=openapi.answers({200: schemas.BatchResult}, 400, 413, 415, media_type="application/x-ndjson"),
    openapi_extra=openapi.takes(JobSpec, media_type="application/x-ndjson"),
)
async def create_jobs(services: Given, caller: Writer, request: Request) -> Response:
    """Create many jobs: one job a line in, one result a line out, each on its own merit.

    Results are sent while jobs are still being read. A line that is wrong fails alone.
    """
    return Batch.of(services, caller, request)


@router.get("/v1/jobs", responses=openapi.answers({200: Page[JobView]}, 400))
async def list_jobs(
    services: Given,
    caller: Reader,
    *,
    state: Annotated[
        Literal["active", "paused", "finished", "deleted"] | None,
        Query(description="Deleted jobs are listed only when they are asked for."),
    ] = None,
    name_prefix: Annotated[str | None, Query(max_length=200, description="How the name begins.")] = None,
    tag: parameters.Tags = None,
    pool: Annotated[str | None, Query(pattern=POOL_PATTERN)] = None,
    target: Annotated[TargetKind | None, Query(description="What the job calls.")] = None,
    limit: Limit = 50,
    cursor: PageCursor = None,
) -> Response:
    """List jobs by name."""
    where = JobFilter(
        state=state,
        name_prefix=name_prefix,
        tags=parameters.read_tags(tag),
        pool=pool,
        target_kind=target,
    )
    page = await services.jobs.page(
        caller.tenant_id, where, cursor=cursor, limit=parameters.read_page_limit(limit, services)
    )
    return json_answer(page)


@router.get("/v1/jobs/{id:segment}", responses=openapi.answers({200: JobDetail}, 400, 404, headers=("ETag",)))
async def get_job(services: Given, caller: Reader, job: JobReference) -> Response:
    """Show a job with its latest executions."""
    return shown_job(await services.jobs.get(caller.tenant_id, job))


@router.put(
    "/v1/jobs/{id:segment}",
    responses=openapi.answers({200: JobView}, 400, 404, 409, 412, 413, 415, headers=("ETag",)),
    openapi_extra=openapi.takes(JobSpec),
)
async def replace_job(
    services: Given, caller: Writer, job: JobReference, raw: Body, if_match: IfMatch = None
) -> Response:
    """Replace a job's definition."""
    revision = parameters.read_revision(if_match)
    return shown_job(await services.jobs.replace(caller, job, raw, revision=revision))


@router.patch(
    "/v1/jobs/{id:segment}",
    responses=openapi.answers({200: JobView}, 400, 404, 409, 412, 413, 415, headers=("ETag",)),
    openapi_extra=openapi.takes_merge_patch(),
)
async def change_job(
    services: Given, caller: Writer, job: JobReference, raw: Body, if_match: IfMatch = None
) -> Response:
    """Merge changes into a job's definition (RFC 7396): what is null is removed."""
    revision = parameters.read_revision(if_match)
    return shown_job(await services.jobs.patch(caller, job, raw, revision=revision))


@router.delete("/v1/jobs/{id:segment}", responses=openapi.answers({200: schemas.Deleted}, 400, 404, 409, 412))
async def delete_job(
    services: Given,
    caller: Writer,
    job: JobReference,
    force: Annotated[bool, Query(description="Although other jobs follow it.")] = False,
    if_match: IfMatch = None,
) -> Response:
    """Delete a job: no slot of it fires any more. Its history stays for the time of retention."""
    revision = parameters.read_revision(if_match)
    await services.jobs.delete(caller.tenant_id, job, revision=revision, is_forced=force)
    return json_answer(schemas.Deleted())


@router.post(
    "/v1/jobs/{id:segment}/pause",
    responses=openapi.answers({200: JobView}, 400, 404, 409, 413, 415, headers=("ETag",)),
    openapi_extra=openapi.takes(schemas.Pause, is_required=False),
)
async def pause_job(services: Given, caller: Writer, job: JobReference, raw: OptionalBody) -> Response:
    """Pause a job. Nothing of it starts after the answer, except what a backfill asks for."""
    asked = validate(schemas.Pause, raw)
    until = parameters.read_time("until", asked.until)
    return shown_job(await services.jobs.pause(caller.tenant_id, job, note=asked.note, until=until))


@router.post(
    "/v1/jobs/{id:segment}/resume",
    responses=openapi.answers({200: JobView}, 400, 404, 409, 413, 415, headers=("ETag",)),
    openapi_extra=openapi.takes(schemas.Resume, is_required=False),
)
async def resume_job(services: Given, caller: Writer, job: JobReference, raw: OptionalBody) -> Response:
    """Resume a paused job with its next slot. What it missed fires only when asked for."""
    asked = validate(schemas.Resume, raw)
    return shown_job(await services.jobs.resume(caller.tenant_id, job, fire_missed=asked.fire_missed))


@router.post(
    "/v1/jobs/{id:segment}/trigger",
    status_code=201,
    responses=openapi.answers(
        {201: ExecutionView}, 400, 404, 409, 413, 415, headers=("Location", "Idempotency-Replayed")
    ),
    openapi_extra=openapi.takes(schemas.Trigger, is_required=False),
)
async def trigger_job(
    services: Given,
    caller: Runner,
    request: Request,
    job: JobReference,
    raw: OptionalBody,
    key: IdempotencyKey = None,
) -> Response:
    """Run a job now, beside its schedule."""
    asked = validate(schemas.Trigger, raw)
    parameters.check_payload(caller, raw)
    made = await services.executions.trigger(
        caller.tenant_id,
        job,
        payload=raw.get("payload", UNSET),
        overlap=asked.overlap,
        key=parameters.request_key(key, request, raw),
    )
    return answered(made, "/v1/executions/")


@router.get("/v1/jobs/{id:segment}/status", responses=openapi.answers({200: JobStatus}, 400, 404))
async def get_job_status(services: Given, caller: Reader, job: JobReference) -> Response:
    """Tell how a job's latest execution stands, and when it runs next."""
    return json_answer(await services.outlook.status(caller.tenant_id, job))


@router.get("/v1/jobs/{id:segment}/upcoming", responses=openapi.answers({200: Upcoming}, 400, 404))
async def list_upcoming(
    services: Given,
    caller: Reader,
    job: JobReference,
    count: Annotated[int, Query(ge=1, le=1000, description="How many slots.")] = 10,
) -> Response:
    """Show a job's next slots."""
    return json_answer(await services.outlook.upcoming(caller.tenant_id, job, count))


@router.get("/v1/jobs/{id:segment}/explain", responses=openapi.answers({200: Explanation}, 400, 404))
async def explain_slot(
    services: Given,
    caller: Reader,
    job: JobReference,
    at: Annotated[
        str,
        Query(
            max_length=64,
            description="An RFC 3339 time, or a wall-clock time in the zone of the job's schedule.",
            examples=["2027-03-28T02:30"],
        ),
    ],
) -> Response:
    """Say what became of an instant of a job, and why."""
    return json_answer(await services.explain.explain(caller.tenant_id, job, at))


@router.get("/v1/jobs/{id:segment}/history", responses=openapi.answers({200: Page[ExecutionView]}, 400, 404))
@router.get(
    "/v1/jobs/{id:segment}/executions", responses=openapi.answers({200: Page[ExecutionView]}, 400, 404)
)
async def list_job_executions(
    services: Given,
    caller: Reader,
    *,
    job: JobReference,
    state: parameters.States = None,
    from_: parameters.From = None,
    to: parameters.To = None,
    limit: Limit = 50,
    cursor: PageCursor = None,
) -> Response:
    """List a job's executions, newest slot first."""
    found = await services.jobs.find(caller.tenant_id, job)
    where = ExecutionFilter(
        job_id=found.id,
        states=parameters.read_states(state),
        from_slot=parameters.read_time("from", from_),
        to_slot=parameters.read_time("to", to),
    )
    page = await services.executions.page(
        caller.tenant_id, where, cursor=cursor, limit=parameters.read_page_limit(limit, services)
    )
    return json_answer(page)
