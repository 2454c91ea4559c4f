"""How the facts of an attempt are written for whoever is called."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

import orjson


def write_json(value: Any) -> bytes:
    """Write a value that came from JSON."""
    try:
        return orjson.dumps(value)
    except TypeError:
        # orjson refuses what JSON allows: integers beyond 64 bits and lone surrogates.
        return json.dumps(value, separators=(",", ":")).encode()


def write_moment(moment: datetime) -> str:
    """Write a moment as RFC 3339 in UTC, with a Z."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def write_traceparent(execution_id: str, attempt: int) -> str:
    """The trace context of an attempt: the trace follows from the execution, the span from the attempt."""
    execution = execution_id.encode()
    trace = hashlib.blake2b(execution, digest_size=16).hexdigest()
    span = hashlib.blake2b(b"%s/%d" % (execution, attempt), digest_size=8).hexdigest()
    return f"00-{trace}-{span}-01"
