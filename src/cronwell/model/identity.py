"""Ids of jobs: UUID version 7, so that they sort by the time of creation and keep index pages warm."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

RANDOM_BITS = 74
RANDOM_BYTES = 10

# The bits that neither the time nor the version and the variant take.
_OWN = 0xFFF << 64 | (1 << 62) - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def new_job_id(now: datetime, random_bits: int) -> UUID:
    """A new id: 48 bits of milliseconds since 1970, then the caller's `RANDOM_BITS` random bits."""
    if not 0 <= random_bits < 1 << RANDOM_BITS:
        raise ValueError(f"random_bits has more than {RANDOM_BITS} bits")
    high, low = divmod(random_bits, 1 << 62)
    return UUID(int=_beginning(now) | high << 64 | low)


def new_job_ids(now: datetime, random: bytes) -> list[UUID]:
    """New ids, one for each `RANDOM_BYTES` of the caller's random bytes."""
    if len(random) % RANDOM_BYTES:
        raise ValueError(f"each id takes {RANDOM_BYTES} random bytes")
    beginning = _beginning(now)
    return [
        UUID(int=beginning | int.from_bytes(random[place : place + RANDOM_BYTES]) & _OWN)
        for place in range(0, len(random), RANDOM_BYTES)
    ]


def _beginning(now: datetime) -> int:
    """What ids of one moment share: the time, the version and the variant."""
    milliseconds = (now - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= milliseconds < 1 << 48:
        raise ValueError(f"{now.isoformat()} does not fit an id")
    return milliseconds << 80 | 0x7 << 76 | 0x2 << 62
