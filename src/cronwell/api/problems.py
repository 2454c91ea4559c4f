"""Errors as RFC 9457 problem documents: what went wrong, in which field, and what is accepted instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, cast

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from cronwell import errors
from cronwell.model.validation import mismatch

MEDIA_TYPE = "application/problem+json"
REQUEST_ID = "cronwell.request_id"
RETRY_AFTER_S = 2

_HUMPS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class ProblemField(BaseModel):
    """One wrong field, header or parameter."""

    field: str
    message: str
    accepted: str | None = Field(default=None, description="What to write instead")
    column: int | None = Field(default=None, description="1-based place in the field's text that is to blame")


class Problem(BaseModel):
    """An RFC 9457 problem document."""

    type: str = Field(description="A stable name of the kind of problem", examples=["urn:cronwell:invalid"])
    title: str
    status: int
    detail: str
    instance: str | None = Field(default=None, description="The path that was asked for")
    request_id: str | None = Field(default=None, description="X-Request-Id, as it is in the server's log")
    errors: list[ProblemField] = Field(default_factory=list)


def document(
    status: int,
    *,
    kind: str,
    title: str,
    detail: str,
    fields: Iterable[errors.FieldProblem] = (),
    scope: Scope | None = None,
) -> dict[str, Any]:
    """Make a problem document; `scope` is the request that it answers."""
    made: dict[str, Any] = {
        "type": f"urn:cronwell:{kind}",
        "title": title,
        "status": status,
        "detail": detail,
    }
    if scope is not None:
        made["instance"] = scope["raw_path"].decode("ascii", "replace")
        made["request_id"] = scope.get(REQUEST_ID)
    made["errors"] = [
        {"field": each.field, "message": each.message, "accepted": each.accepted, "column": each.column}
        for each in fields
    ]
    return made


def told(error: errors.CronwellError, scope: Scope | None = None) -> dict[str, Any]:
    """What to answer to an error that Cronwell raised on purpose."""
    if isinstance(error, errors.UserError):
        return document(
            error.status,
            kind=_HUMPS.sub("-", type(error).__name__).lower(),
            title=error.title,
            detail=str(error),
            fields=error.problems if isinstance(error, errors.Invalid) else (),
            scope=scope,
        )
    if isinstance(error, errors.CommitUnknown):
        advice = "the change may or may not have been made: look before you repeat it, or repeat it with its Idempotency-Key"
    else:
        advice = "nothing was changed; try again"
    return document(
        503,
        kind="unavailable",
        title="The database does not answer at present",
        detail=advice,
        scope=scope,
    )


def answer(problem: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """Send a problem document."""
    extra = {"Retry-After": str(RETRY_AFTER_S)} if problem["status"] == 503 else {}
    return Response(
        orjson.dumps(problem),
        status_code=problem["status"],
        headers={**extra, **(headers or {})},
        media_type=MEDIA_TYPE,
    )


def unexpected(scope: Scope) -> Response:
    """Answer a failure of ours without its internals; the log has them under the same request id."""
    return answer(
        document(
            500,
            kind="internal-error",
            title="The server failed to answer",
            detail=f"this is a defect; report it with the request id {scope.get(REQUEST_ID)}",
            scope=scope,
        )
    )


def install(app: FastAPI) -> None:
    """Make every error of the application a problem document."""
    app.add_exception_handler(errors.UserError, _answer_told)
    app.add_exception_handler(errors.StoreUnavailable, _answer_told)
    app.add_exception_handler(RequestValidationError, _answer_parameters)
    app.add_exception_handler(HTTPException, _answer_http)


async def _answer_told(request: Request, error: Exception) -> Response:
    return answer(told(cast(errors.CronwellError, error), request.scope))


async def _answer_parameters(request: Request, error: Exception) -> Response:
    details = cast(RequestValidationError, error).errors()
    return answer(told(errors.Invalid([_parameter_problem(each) for each in details]), request.scope))


def _parameter_problem(details: Mapping[str, Any]) -> errors.FieldProblem:
    # Where it was found, and its name: ("query", "limit").
    name = ".".join(str(part) for part in details["loc"][1:2])
    context = details.get("ctx", {})
    if problem := mismatch(name, context.get("pattern", "")):
        return problem
    accepted = context.get("expected") or context.get("pattern")
    if accepted is None and (bounds := {key: context[key] for key in ("ge", "le") if key in context}):
        accepted = " and ".join(f"{'at least' if key == 'ge' else 'at most'} {bounds[key]}" for key in bounds)
    message = str(details["msg"])
    return errors.FieldProblem(name, message[:1].lower() + message[1:], accepted)


async def _answer_http(request: Request, error: Exception) -> Response:
    """Answer what routing refused by itself."""
    refused = cast(HTTPException, error)
    status = HTTPStatus(refused.status_code)
    headers: dict[str, str] = dict(refused.headers or {})
    detail = str(refused.detail)
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = _allowed_methods(request)
        headers["Allow"] = ", ".join(allowed)
        detail = f"{request.method} is not possible here; allowed: {', '.join(allowed)}"
    elif status is HTTPStatus.NOT_FOUND:
        detail = f"there is nothing at {request.url.path}; see /docs for what there is"
        if request.url.path.startswith("/v1/jobs/name:"):
            detail += ". A slash in a job's name is written as %2F"
    problem = document(
        status,
        kind=status.phrase.lower().replace(" ", "-"),
        title=status.phrase,
        detail=detail,
        scope=request.scope,
    )
    return answer(problem, headers)


def _allowed_methods(request: Request) -> list[str]:
    """Every method of this path; routing itself would tell those of the first route only."""
    methods: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)
