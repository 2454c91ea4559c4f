"""Routes of the cluster."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from cronwell.api import openapi, parameters
from cronwell.api.answers import json_answer
from cronwell.api.callers import OPERATOR, Operator
from cronwell.api.services import Given
from cronwell.control.cluster import ClusterView, NodeView

router = APIRouter(
    tags=["cluster"], dependencies=[*parameters.STRICT, OPERATOR], default_response_class=Response
)

NodeReference = Annotated[
    str,
    Path(
        alias="id",
        max_length=300,
        description="A process's id, the beginning of one that no other has, or its name, `host:pid`.",
        examples=["web-1:4711"],
    ),
]


@router.get("/v1/cluster", responses=openapi.answers({200: ClusterView}, 400))
async def get_cluster(services: Given) -> Response:
    """Show the processes, the shards with their owners and watermarks, the workers, and what waits in each pool."""
    return json_answer(await services.cluster.show())


@router.post(
    "/v1/cluster/nodes/{id:segment}/drain", responses=openapi.answers({202: NodeView}, 400, 404, 409)
)
async def drain_node(services: Given, caller: Operator, reference: NodeReference) -> Response:
    """Ask a process to drain: within seconds it stops as by SIGTERM, hands back what it has not started, and ends.

    Asking again changes nothing. A process that `cronwell up` started is not started again.
    """
    drained = await services.cluster.drain(reference)
    await services.audit.note(caller, "drained", f"node:{drained.id}", {"name": drained.name})
    return json_answer(drained, 202)
