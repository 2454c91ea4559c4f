"""The OpenAPI document: what routes declare, with the schemas of everything that they take and give.

Routes read their bodies themselves, once and strictly, so they say here what they take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from cronwell import __version__
from cronwell.api import problems
from cronwell.api.auth import is_callback, is_open
from cronwell.model.job import JobSpec

Mode = Literal["validation", "serialization"]
Given = type[BaseModel] | type[str]

_REF = "#/components/schemas/{model}"
_DESCRIPTION = """\
Cron for a fleet: jobs fire on the instant, once in effect, through crashes and deploys.

Errors are RFC 9457 problem documents that name the field and what is accepted. Unknown fields and query parameters are
refused. Times are RFC 3339 with an offset, answered in UTC. Durations are texts such as `30s`, `15m` or `PT1H`.
Lists are `{"items": […], "next_cursor": …}`; pass `cursor` to go on.
"""
_BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key (`cronwell key create`), or a token of the identity provider. None is needed on 127.0.0.1.",
}
_HEADERS = {
    "Location": "Where what was made is found.",
    "ETag": "The job's revision, for If-Match.",
    "Idempotency-Replayed": "`true` where the answer is that of an earlier request with the same Idempotency-Key.",
}
# What is said of each is taken up when the document is made: routes are declared before it is.
_taken: dict[str, tuple[type[BaseModel], Mode]] = {}


def answers(
    views: dict[int, Given],
    *refusals: int,
    headers: Sequence[str] = (),
    media_type: str = "application/json",
) -> dict[int | str, dict[str, Any]]:
    """What a route answers: views by status, and the problems that it may answer with."""
    made: dict[int | str, dict[str, Any]] = {}
    for status, view in views.items():
        made[status] = {
            "description": HTTPStatus(status).phrase,
            "content": {media_type: {"schema": _schema(view, "serialization")}},
        }
        if headers and status < 300:
            made[status]["headers"] = {
                name: {"description": _HEADERS[name], "schema": {"type": "string"}} for name in headers
            }
    problem = {"schema": _schema(problems.Problem, "serialization")}
    for status in (*refusals, 401, 403, 422, 429, 500, 503):
        made.setdefault(
            status,
            {"description": HTTPStatus(status).phrase, "content": {problems.MEDIA_TYPE: problem}},
        )
    return made


def takes(
    body: type[BaseModel],
    *,
    is_required: bool = True,
    media_type: str = "application/json",
    examples: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What a route takes in its body."""
    content: dict[str, Any] = {"schema": _schema(body, "validation")}
    if examples is not None:
        content["examples"] = examples
    return {"requestBody": {"required": is_required, "content": {media_type: content}}}


def takes_merge_patch() -> dict[str, Any]:
    """What a merge of changes takes: some of a job's fields, or null to remove one."""
    schema = {
        "type": "object",
        "properties": {
            name: {"description": field.description} for name, field in JobSpec.model_fields.items()
        },
        "additionalProperties": False,
        "examples": [{"schedule": "@hourly", "description": None}],
    }
    content = {"schema": schema}
    return {
        "requestBody": {
            "required": True,
            "content": {"application/merge-patch+json": content, "application/json": content},
        }
    }


def document(app: FastAPI, *, largest_page: int) -> dict[str, Any]:
    """Make the document of an application."""
    made = get_openapi(title="Cronwell", version=__version__, description=_DESCRIPTION, routes=app.routes)
    names, definitions = models_json_schema(list(_taken.values()), ref_template=_REF)
    refs = {key: names[given]["$ref"] for key, given in _taken.items()}
    schemas: dict[str, Any] = definitions["$defs"]
    for part in _objects(schemas):
        # A limit that keeps memory in bounds; it says nothing of the field.
        if part.get("maxLength") == 100_000:
            del part["maxLength"]
            if part.get("propertyNames") == {}:
                del part["propertyNames"]
    for part in _objects(made):
        if part.get("$ref") in refs:
            part["$ref"] = refs[part["$ref"]]
        if part.get("in") in ("query", "header"):
            part["schema"] = _not_null(part["schema"])
        if part.get("name") == "limit" and part.get("in") == "query":
            part["schema"]["maximum"] = largest_page
        if "operationId" in part:
            part["summary"], _, part["description"] = part["description"].partition("\n")
    _say_what_needs_a_key(made)
    made["components"] = {"schemas": dict(sorted(schemas.items())), "securitySchemes": {"bearer": _BEARER}}
    return made


def _say_what_needs_a_key(made: dict[str, Any]) -> None:
    made["security"] = [{"bearer": []}]
    for path, item in made["paths"].items():
        refusals = ("401", "403") if is_callback(path) else ("401", "403", "429") if is_open(path) else ()
        for operation in item.values() if refusals else ():
            operation["security"] = []
            for status in refusals:
                operation["responses"].pop(status, None)


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is not given is left out; there is no way to send null."""
    [*choices] = [each for each in schema.pop("anyOf", ()) if each != {"type": "null"}]
    return {**(choices[0] if choices else {}), **schema}


def _schema(given: Given, mode: Mode) -> dict[str, Any]:
    if not issubclass(given, BaseModel):
        return {"type": "string"}
    key = f"{mode}:{given.__name__}"
    _taken[key] = (given, mode)
    return {"$ref": key}


def _objects(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        # The parts first: what is found in them may decide what becomes of the whole.
        for below in list(value.values()):
            yield from _objects(below)
        yield value
    elif isinstance(value, list):
        for below in value:
            yield from _objects(below)
