"""Windows: how far a job may lie behind its slot, so that a herd of one instant is spread.

Each job has one stable place in its window, a function of its id, so that it runs at the same point after each slot.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from uuid import UUID

from cronwell import durations

ACCEPTED = 'a duration from "1s" to "7d" such as "10m", or a share of the time to the next slot such as "50%"'
SHORTEST = timedelta(seconds=1)
LONGEST = timedelta(days=7)

_PERCENT = re.compile(r"(\d{1,3})(?:\.(\d{1,2}))?\s*%", re.ASCII)
_WHOLE = 10_000
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Share:
    """A share of the time between a slot and the next, in hundredths of a percent."""

    hundredths: int

    def __str__(self) -> str:
        whole, rest = divmod(self.hundredths, 100)
        return f"{whole}.{rest:02d}".rstrip("0").rstrip(".") + "%" if rest else f"{whole}%"


Window = timedelta | Share


def parse(text: str) -> Window:
    """Read a window. Raises ValueError with a sentence that says what is wrong."""
    match = _PERCENT.fullmatch(text.strip())
    if match is not None:
        share = int(match[1]) * 100 + int((match[2] or "").ljust(2, "0"))
        if not 0 < share <= _WHOLE:
            raise ValueError(f"{text.strip()} is not above 0% and up to 100%")
        return Share(share)
    length = durations.parse(text)
    if not SHORTEST <= length <= LONGEST:
        raise ValueError(f"a window of {durations.write(length)} is not between 1s and 7d")
    return length


def write(window: Window) -> str:
    """Write a window; `parse(write(x)) == x`."""
    return str(window) if isinstance(window, Share) else durations.write(window)


def span(window: Window, gap: timedelta | None) -> timedelta:
    """Return how much of the window lies before the next slot, which comes `gap` later (None: there is none)."""
    if isinstance(window, Share):
        return timedelta() if gap is None else gap * window.hundredths / _WHOLE
    return window if gap is None else min(window, gap)


def offset(job_id: UUID, length: timedelta) -> timedelta:
    """Return the job's stable place in [0, length), in whole milliseconds."""
    digest = blake2b(job_id.bytes, digest_size=8, person=b"cronwell window").digest()
    return (length // _MILLISECOND * int.from_bytes(digest) >> 64) * _MILLISECOND
