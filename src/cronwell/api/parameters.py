"""What requests say beside their body: query parameters and headers, each refused with what is accepted."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo
from typing import Annotated, Any

import orjson
from fastapi import Depends, Header, Path, Query, Request

from cronwell import durations, errors
from cronwell.api.services import Services
from cronwell.control.idempotency import RequestKey
from cronwell.model import instants, validation
from cronwell.model.access import Caller
from cronwell.model.execution import State

_ENTITY_TAG = re.compile(r'\s*(?:"(\d{1,10})"|(\d{1,10})|(\*))\s*', re.ASCII)
_TAG = re.compile(r"([^:=]+)[:=](.*)", re.DOTALL)
_STATES = [str(state) for state in State]
_MOMENT = {"format": "date-time"}

JobReference = Annotated[
    str,
    Path(
        alias="id",
        description="A job's id, or `name:` and its name. A slash in a name is written as %2F.",
        examples=["name:daily-invoices"],
    ),
]
Slot = Annotated[
    str,
    Path(
        alias="slot",
        description="A coming slot of the job: RFC 3339, or a wall-clock time in the zone of its schedule.",
        examples=["2027-05-05T03:00:00Z"],
    ),
]
ExecutionId = Annotated[str, Path(alias="id", description="An execution's id.")]
BackfillId = Annotated[str, Path(alias="id", description="A backfill's id.")]
Limit = Annotated[int, Query(ge=1, description="Items on the page.")]
PageCursor = Annotated[
    str | None,
    Query(max_length=2000, description="The `next_cursor` of the page before, as it was answered."),
]
From = Annotated[
    str | None, Query(alias="from", description="Slots from this time on.", json_schema_extra=_MOMENT)
]
To = Annotated[
    str | None, Query(alias="to", description="Slots before this time.", json_schema_extra=_MOMENT)
]
JobFilterText = Annotated[
    str | None, Query(max_length=300, description="A job's id, or `name:` and its name.")
]
Text = Annotated[
    str | None, Query(min_length=1, max_length=200, description="Text that the output or the error contains.")
]
States = Annotated[
    list[str] | None,
    Query(
        description="One of several states: given more than once, or with commas.",
        json_schema_extra={"items": {"type": "string", "enum": _STATES}},
    ),
]
Tags = Annotated[
    list[str] | None,
    Query(
        description="`key:value`. Given more than once, a job has all of them.",
        json_schema_extra={"items": {"type": "string", "pattern": "^[^:=]+[:=]"}},
    ),
]
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description='The revision that is to be changed, such as `"3"`; `*` is any.',
        json_schema_extra={"pattern": r'^("[0-9]{1,10}"|[0-9]{1,10}|\*)$'},
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x20-\x7e]+$",
        description="The same key with the same request is answered as it was the first time, and done once.",
    ),
]


async def refuse_unknown_query(request: Request) -> None:
    """Refuse query parameters that the route does not know, with the nearest that it does."""
    if not request.scope["query_string"]:
        return
    known = sorted(field.alias for field in request.scope["route"].dependant.query_params)
    problems = [
        _unknown_parameter(name, known) for name in dict.fromkeys(request.query_params) if name not in known
    ]
    if problems:
        raise errors.Invalid(problems)


STRICT = [Depends(refuse_unknown_query)]


def read_page_limit(limit: int, services: Services) -> int:
    if limit > services.settings.limits.page:
        raise errors.Invalid.field(
            "limit", "asks for too many items", accepted=f"1 to {services.settings.limits.page}"
        )
    return limit


def read_time(field: str, text: str | None, zone: tzinfo | None = None) -> datetime | None:
    """Read an RFC 3339 time with its offset; without one, where a zone is given, a wall-clock time there."""
    if text is None:
        return None
    try:
        return instants.parse(text, zone)
    except ValueError as error:
        advice = "; write + as %2B in an address" if re.search(r"\d \d\d:\d\d$", text) else ""
        raise errors.Invalid.field(field, f"{error}{advice}", accepted=instants.ACCEPTED) from None


def read_duration(field: str, text: str) -> timedelta:
    try:
        return durations.parse(text)
    except ValueError as error:
        raise errors.Invalid.field(field, str(error), accepted=durations.ACCEPTED) from None


def check_payload(caller: Caller, raw: dict[str, Any]) -> None:
    """Refuse a payload in a body that is larger than the caller's tenant may have."""
    if "payload" in raw:
        caller.quotas.check_payload(len(orjson.dumps(raw["payload"])))


def read_states(given: list[str] | None) -> tuple[State, ...] | None:
    if given is None:
        return None
    states = dict.fromkeys(name.strip() for text in given for name in text.split(","))
    for name in states:
        if name not in _STATES:
            raise errors.Invalid(
                [validation.unknown("state", f"{name[:40]!r} is not a state", name, _STATES)]
            )
    return tuple(State(name) for name in states)


def read_tags(given: list[str] | None) -> dict[str, str] | None:
    if given is None:
        return None
    tags: dict[str, str] = {}
    for text in given:
        match = _TAG.fullmatch(text)
        if match is None:
            raise errors.Invalid.field("tag", f"{text[:80]!r} is not a tag", accepted="key:value")
        if tags.setdefault(match[1], match[2]) != match[2]:
            raise errors.Invalid.field("tag", f"no job has two values of the tag {match[1]!r}")
    return tags


def read_revision(if_match: str | None) -> int | None:
    """The revision that If-Match names; None where any will do."""
    if if_match is None:
        return None
    match = _ENTITY_TAG.fullmatch(if_match)
    if match is None:
        raise errors.Malformed(
            f'If-Match: {if_match[:40]} is not a revision; write one such as "3", as ETag answers it, or *'
        )
    text = match[1] or match[2]
    return None if text is None else int(text)


def request_key(key: str | None, request: Request, body: dict[str, Any]) -> RequestKey | None:
    """Bind an Idempotency-Key to its request. How the JSON was written does not count."""
    if key is None:
        return None
    said = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    return RequestKey.of(key, request.method.encode(), request.scope["path"].encode(), said)


def _unknown_parameter(name: str, known: list[str]) -> errors.FieldProblem:
    if not known:
        return errors.FieldProblem(name[:100], "unknown query parameter", "no query parameters")
    return validation.unknown(name[:100], "unknown query parameter", name, known)
