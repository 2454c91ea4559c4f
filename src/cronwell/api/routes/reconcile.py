"""The route that proves that nothing is silent."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from cronwell.api import openapi, parameters
from cronwell.api.answers import json_answer
from cronwell.api.callers import Reader
from cronwell.api.parameters import PageCursor
from cronwell.api.services import Given
from cronwell.control.reconcile import Reconciliation
from cronwell.model.shards import SHARDS

router = APIRouter(tags=["cluster"], dependencies=parameters.STRICT, default_response_class=Response)


@router.get("/v1/reconcile", responses=openapi.answers({200: Reconciliation}, 400))
async def reconcile_slots(
    services: Given,
    caller: Reader,
    from_: parameters.From = None,
    to: parameters.To = None,
    shard: Annotated[
        int | None, Query(ge=0, lt=SHARDS, description="Only the jobs of one shard; by default all.")
    ] = None,
    cursor: PageCursor = None,
) -> Response:
    """Compare the slots that definitions had in a past range of time with what became of them.

    By default the last hour, at most a day. Where there are many jobs, `next_cursor` leads to the next of them; the
    numbers are of those looked at for this answer.
    """
    found = await services.reconcile.reconcile(
        caller.tenant_id,
        since=parameters.read_time("from", from_),
        before=parameters.read_time("to", to),
        shard=shard,
        cursor=cursor,
    )
    return json_answer(found)
