"""Ids of jobs: UUID version 7, so that they sort by the time of creation and keep index pages warm."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

RANDOM_BITS = 74

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def new_job_id(now: datetime, random_bits: int) -> UUID:
    """A new id: 48 bits of milliseconds since 1970, then the caller's `RANDOM_BITS` random bits."""
    milliseconds = (now - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= milliseconds < 1 << 48:
        raise ValueError(f"{now.isoformat()} does not fit an id")
    if not 0 <= random_bits < 1 << RANDOM_BITS:
        raise ValueError(f"random_bits has more than {RANDOM_BITS} bits")
    high, low = divmod(random_bits, 1 << 62)
    return UUID(int=milliseconds << 80 | 0x7 << 76 | high << 64 | 0x2 << 62 | low)
