"""How the facts of an attempt are written for whoever is called."""

from __future__ import annotations

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
