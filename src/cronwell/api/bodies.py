"""Request bodies: read within their limit, parsed once, and refused where they could not be kept.

A key that is given twice counts the last time, as in most readers of JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NoReturn

import orjson
from fastapi import Depends, HTTPException, Request

from cronwell import errors
from cronwell.api.services import Given
from cronwell.model.job import PAYLOAD_DEPTH

# A payload may be as deep as this, and lies a few levels down in the body.
DEEPEST = PAYLOAD_DEPTH + 8

_JSON_TYPE = re.compile(r"application/(?:[\w.-]+\+)?json", re.IGNORECASE | re.ASCII)
# Anything shorter fits into 64 bits. A text of so many digits is found too; a second look tells them apart. All digits
# are made the same to look for many at once, which takes a sixth of the time that an expression would (1.8 µs for 250 bytes).
_MANY_DIGITS = b"0" * 19
_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"000000000")
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1


async def _required(request: Request, services: Given) -> dict[str, Any]:
    data = await read_limited(request, services.settings.limits.body)
    if not data:
        raise errors.Malformed("the request has no body; send a JSON object")
    _check_type(request)
    return parse_object(data)


async def _optional(request: Request, services: Given) -> dict[str, Any]:
    data = await read_limited(request, services.settings.limits.body)
    if not data:
        return {}
    _check_type(request)
    return parse_object(data)


Body = Annotated[dict[str, Any], Depends(_required)]
OptionalBody = Annotated[dict[str, Any], Depends(_optional)]


async def read_limited(request: Request, limit: int) -> bytes:
    """Read the whole body; raises TooLarge as soon as it passes the limit, whatever length it was said to have."""
    length = declared_length(request.headers)
    if length is not None and length > limit:
        _refuse_size(limit)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            _refuse_size(limit)
        parts.append(part)
    return b"".join(parts)


def declared_length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() else None


def parse_object(data: bytes) -> dict[str, Any]:
    """Parse a JSON object; raises Malformed, or Invalid for a text that PostgreSQL cannot keep."""
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise errors.Malformed(f"this is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise errors.Malformed('this is JSON but not an object; send one, such as {"name": "…"}')
    if data.count(b"{") + data.count(b"[") > DEEPEST and _is_deep(parsed):
        raise errors.Malformed(f"this is nested deeper than {DEEPEST} levels")
    if b"\\u0000" in data:
        _refuse_nulls(parsed)
    if _MANY_DIGITS in data.translate(_DIGITS_ALIKE):
        _refuse_wide_integers(data)
    return parsed


def _check_type(request: Request) -> None:
    """Refuse bodies that are not said to be JSON.

    A page of any site can make a browser send other types here without asking first.
    """
    given = request.headers.get("content-type", "")
    if not _JSON_TYPE.fullmatch(given.partition(";")[0].strip()):
        raise HTTPException(
            415,
            f"the body is said to be {given or 'nothing in particular'}; send Content-Type: application/json "
            "(with curl: --json)",
        )


def _refuse_size(limit: int) -> NoReturn:
    raise errors.TooLarge(f"the body has more than {limit} bytes")


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [below for above in level for _, below in _parts(above) if isinstance(below, (dict, list))]
        if not level:
            return False
    return True


def _refuse_nulls(value: object, place: str = "") -> None:
    for key, below in _parts(value):
        here = f"{place}.{key}" if place else str(key)
        if "\0" in str(key) or (isinstance(below, str) and "\0" in below):
            raise errors.Invalid.field(
                here.replace("\0", "\\u0000"),
                "text cannot carry the null character \\u0000",
                accepted="text without it; encode binary data, for instance as base64",
            )
        _refuse_nulls(below, here)


def _parts(value: object) -> Iterator[tuple[object, object]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def _refuse_wide_integers(data: bytes) -> None:
    # orjson reads these as floats and so would quietly change the user's number.
    json.loads(data, parse_int=_narrow)


def _narrow(digits: str) -> int:
    number = int(digits) if len(digits) <= 20 else _LARGEST + 1
    if not _SMALLEST <= number <= _LARGEST:
        shown = digits if len(digits) <= 40 else f"{digits[:40]}…"
        raise errors.Malformed(f"the number {shown} does not fit into 64 bits; send it as text")
    return number
