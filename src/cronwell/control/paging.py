"""Cursors of lists: where a page ended, as a short opaque text."""

from __future__ import annotations

import base64
import binascii

import orjson

from cronwell import errors


def write_cursor(*parts: str) -> str:
    """Make a cursor from the sort key of a page's last item."""
    return base64.urlsafe_b64encode(orjson.dumps(parts)).decode().rstrip("=")


def read_cursor(text: str | None, length: int) -> list[str] | None:
    """Read a cursor back; raises Invalid for a text that is not one."""
    if text is None:
        return None
    try:
        parts = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError):
        parts = None
    if (
        not isinstance(parts, list)
        or len(parts) != length
        or not all(isinstance(part, str) and "\0" not in part for part in parts)
    ):
        raise errors.Invalid.field(
            "cursor", "is not a cursor of this list", accepted="a next_cursor as it was answered"
        )
    return parts
