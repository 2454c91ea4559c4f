"""Ids of jobs: UUID version 7, so that they sort by the time of creation and keep index pages warm."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from uuid import UUID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def new_job_id(now: datetime) -> UUID:
    """A new id: 48 bits of milliseconds, then 74 random bits."""
    milliseconds = (now - _EPOCH) // timedelta(milliseconds=1)
    value = (milliseconds & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return UUID(int=value)
