"""Routes of the cluster."""

from __future__ import annotations

from collections import Counter

from fastapi import APIRouter
from starlette.responses import Response

from cronwell import __version__
from cronwell.api import openapi, parameters, schemas
from cronwell.api.answers import json_answer
from cronwell.api.services import Given
from cronwell.control.workers import worker_view

router = APIRouter(tags=["cluster"], dependencies=parameters.STRICT, default_response_class=Response)


@router.get("/v1/cluster", responses=openapi.answers({200: schemas.ClusterView}, 400))
async def get_cluster(services: Given) -> Response:
    """Show the workers, and what waits in each pool."""
    now = services.clock.now()
    workers = await services.store.list_workers(now)
    serving = Counter(pool for worker in workers if worker.state == "active" for pool in worker.pools)
    waiting = {each.pool: each for each in await services.store.backlog(now)}
    pools = [
        schemas.PoolView(
            name=pool,
            workers=serving[pool],
            depth=waiting[pool].depth if pool in waiting else 0,
            oldest_due_at=waiting[pool].oldest if pool in waiting else None,
        )
        for pool in sorted(serving.keys() | waiting.keys())
    ]
    view = schemas.ClusterView(
        version=__version__, now=now, workers=[worker_view(each) for each in workers], pools=pools
    )
    return json_answer(view)
