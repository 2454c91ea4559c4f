"""What an attempt leaves for the next one, and what it tells of its progress: JSON, and not much of it."""

from __future__ import annotations

import json
from typing import Any

from cronwell import errors
from cronwell.model.job import check_json

LIMIT = 65_536
"""Bytes of a checkpoint, and of what is told of progress."""


def write(value: Any, what: str = "checkpoint") -> str:
    """A value as it is kept; raises TooLarge, or Invalid where it is not JSON."""
    try:
        check_json(value)
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise errors.Invalid.field(what, f"cannot be kept: {error}", accepted="JSON") from None
    if len(text) > LIMIT:
        raise errors.TooLarge(
            f"the {what} has {len(text)} bytes and the limit is {LIMIT}; "
            "keep the data elsewhere, and here the place where to go on"
        )
    return text.decode()
