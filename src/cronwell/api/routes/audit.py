"""Routes of the audit."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from cronwell.api import openapi, parameters
from cronwell.api.answers import json_answer
from cronwell.api.callers import Admin
from cronwell.api.parameters import Limit, PageCursor
from cronwell.api.services import Given
from cronwell.control.audit import AuditCheck, AuditView
from cronwell.control.views import Page
from cronwell.store.port import AuditFilter

router = APIRouter(tags=["audit"], dependencies=parameters.STRICT, default_response_class=Response)

LARGEST_PAGE = 100
"""Each entry may hold two definitions; a page that is asked for with more has this many, and leads on."""

Wanted = Annotated[str | None, Query(max_length=300)]
_OBJECT = "What was changed: `job:` and an id, `calendar:` and a name, and so on."


@router.get("/v1/audit", responses=openapi.answers({200: Page[AuditView]}, 400))
async def list_audit(
    services: Given,
    caller: Admin,
    *,
    object_: Annotated[str | None, Query(alias="object", max_length=300, description=_OBJECT)] = None,
    actor: Wanted = None,
    action: Wanted = None,
    request_id: Wanted = None,
    from_: parameters.From = None,
    to: parameters.To = None,
    limit: Limit = 50,
    cursor: PageCursor = None,
) -> Response:
    """List changes, newest first: who, when, from where, and what it was before and after."""
    where = AuditFilter(
        object=object_,
        actor=actor,
        action=action,
        request_id=request_id,
        since=parameters.read_time("from", from_),
        before=parameters.read_time("to", to),
    )
    most = min(parameters.read_page_limit(limit, services), LARGEST_PAGE)
    return json_answer(await services.audit.page(caller.tenant_id, where, cursor=cursor, limit=most))


@router.get("/v1/audit/check", responses=openapi.answers({200: AuditCheck}))
async def check_audit(services: Given, caller: Admin) -> Response:
    """Tell whether the chain of changes is whole, and its last digest."""
    return json_answer(await services.audit.check(caller.tenant_id))
