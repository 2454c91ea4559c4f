"""Routes of alerts: rules, channels, incidents."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from cronwell.api import openapi, parameters, schemas
from cronwell.api.answers import json_answer
from cronwell.api.bodies import Body
from cronwell.api.callers import Reader, Runner, Writer
from cronwell.api.parameters import IfMatch, Limit, PageCursor
from cronwell.api.services import Given
from cronwell.control.alert_views import ChannelView, IncidentView, RuleView, Tested
from cronwell.control.views import Page
from cronwell.model.alerts import Channel, Rule
from cronwell.model.part import NAME_PATTERN

router = APIRouter(tags=["alerts"], dependencies=parameters.STRICT, default_response_class=Response)

RuleName = Annotated[str, Path(alias="name", pattern=NAME_PATTERN, description="The rule's name.")]
ChannelName = Annotated[str, Path(alias="name", pattern=NAME_PATTERN, description="The channel's name.")]
State = Annotated[
    Literal["open", "resolved"] | None, Query(description="Only those that go on, or that are over.")
]
OfRule = Annotated[str | None, Query(max_length=200, description="Only those of the rule of this name.")]


@router.put(
    "/v1/alerts/rules/{name:segment}",
    responses=openapi.answers({200: RuleView, 201: RuleView}, 400, 409, 412, 413, 415, headers=("ETag",)),
    openapi_extra=openapi.takes(Rule),
)
async def put_rule(
    services: Given, caller: Writer, name: RuleName, raw: Body, if_match: IfMatch = None
) -> Response:
    """Keep a rule under a name. It is judged every few seconds from now on."""
    shown, is_new = await services.alerts.put_rule(
        caller.tenant_id, name, raw, revision=parameters.read_revision(if_match)
    )
    return json_answer(shown, 201 if is_new else 200, {"ETag": f'"{shown.revision}"'})


@router.get("/v1/alerts/rules", responses=openapi.answers({200: Page[RuleView]}, 400))
async def list_rules(
    services: Given, caller: Reader, limit: Limit = 50, cursor: PageCursor = None
) -> Response:
    """List rules by name."""
    most = parameters.read_page_limit(limit, services)
    return json_answer(await services.alerts.rules(caller.tenant_id, cursor=cursor, limit=most))


@router.get(
    "/v1/alerts/rules/{name:segment}",
    responses=openapi.answers({200: RuleView}, 400, 404, headers=("ETag",)),
)
async def get_rule(services: Given, caller: Reader, name: RuleName) -> Response:
    """Show a rule."""
    shown = await services.alerts.get_rule(caller.tenant_id, name)
    return json_answer(shown, 200, {"ETag": f'"{shown.revision}"'})


@router.delete("/v1/alerts/rules/{name:segment}", responses=openapi.answers({200: schemas.Deleted}, 404))
async def delete_rule(services: Given, caller: Writer, name: RuleName) -> Response:
    """Delete a rule. Its incidents are over, and who was told of them is told that."""
    await services.alerts.delete_rule(caller.tenant_id, name)
    return json_answer(schemas.Deleted())


@router.put(
    "/v1/alerts/channels/{name:segment}",
    responses=openapi.answers({200: ChannelView, 201: ChannelView}, 400, 409, 413, 415),
    openapi_extra=openapi.takes(Channel),
)
async def put_channel(services: Given, caller: Writer, name: ChannelName, raw: Body) -> Response:
    """Keep a channel under a name. Values of its headers are never shown again."""
    shown, is_new = await services.alerts.put_channel(caller.tenant_id, name, raw)
    return json_answer(shown, 201 if is_new else 200)


@router.get("/v1/alerts/channels", responses=openapi.answers({200: Page[ChannelView]}, 400))
async def list_channels(
    services: Given, caller: Reader, limit: Limit = 50, cursor: PageCursor = None
) -> Response:
    """List channels by name."""
    most = parameters.read_page_limit(limit, services)
    return json_answer(await services.alerts.channels(caller.tenant_id, cursor=cursor, limit=most))


@router.get("/v1/alerts/channels/{name:segment}", responses=openapi.answers({200: ChannelView}, 400, 404))
async def get_channel(services: Given, caller: Reader, name: ChannelName) -> Response:
    """Show a channel."""
    return json_answer(await services.alerts.get_channel(caller.tenant_id, name))


@router.delete(
    "/v1/alerts/channels/{name:segment}", responses=openapi.answers({200: schemas.Deleted}, 404, 409)
)
async def delete_channel(services: Given, caller: Writer, name: ChannelName) -> Response:
    """Delete a channel by which no rule speaks."""
    await services.alerts.delete_channel(caller.tenant_id, name)
    return json_answer(schemas.Deleted())


@router.post(
    "/v1/alerts/channels/{name:segment}/test",
    status_code=202,
    responses=openapi.answers({202: Tested}, 404),
)
async def test_channel(services: Given, caller: Runner, name: ChannelName) -> Response:
    """Have a channel say that this is a test."""
    return json_answer(await services.alerts.test(caller.tenant_id, name), 202)


@router.get("/v1/alerts/incidents", responses=openapi.answers({200: Page[IncidentView]}, 400))
async def list_incidents(
    services: Given,
    caller: Reader,
    *,
    state: State = None,
    rule: OfRule = None,
    limit: Limit = 50,
    cursor: PageCursor = None,
) -> Response:
    """List incidents, newest first."""
    most = parameters.read_page_limit(limit, services)
    is_open = None if state is None else state == "open"
    return json_answer(
        await services.alerts.incidents(
            caller.tenant_id, is_open=is_open, rule=rule, cursor=cursor, limit=most
        )
    )
