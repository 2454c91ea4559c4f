"""Moments as people and programs write them: RFC 3339, or a wall-clock time where a zone is known."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from cronwell.model import zones

ACCEPTED = 'a time such as "2027-05-05T10:00:00Z" or "2027-05-05T10:00:00+02:00" (RFC 3339)'

# What lies outside is a slip of the keyboard, and would cost unbounded searches or overflow.
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
HORIZON = datetime(2101, 1, 1, tzinfo=UTC)

_LONGEST_TEXT = 64
_TEXT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?\s*([Zz]|[+-]\d\d:\d\d)?", re.ASCII
)


def parse(text: str, zone: tzinfo | None = None) -> datetime:
    """Read a moment, as UTC. Raises ValueError with a sentence that says what is accepted.

    A text without an offset is a wall-clock time of `zone`: its first pass where the clock is put back, an error
    where the clock jumps over it. Digits beyond the microsecond are dropped.
    """
    stripped = text.strip()
    match = _TEXT.fullmatch(stripped) if len(stripped) <= _LONGEST_TEXT else None
    if match is None:
        raise ValueError(f"{stripped[:_LONGEST_TEXT]!r} is not a time; write {ACCEPTED}")
    *whole, fraction, offset = match.groups(default="")
    year, month, day, hour, minute, second = (int(part or 0) for part in whole)
    out_of_range = f"{stripped!r} is not between the years {EARLIEST.year} and {HORIZON.year - 1}"
    # Judged twice: first what would overflow as UTC, then what the offset carries over the edge.
    if not EARLIEST.year <= year < HORIZON.year:
        raise ValueError(out_of_range)
    try:
        wall = datetime(
            year, month, day, hour, minute, second, int(fraction[:6].ljust(6, "0")), _offset(offset) or zone
        )
    except ValueError as error:
        raise ValueError(f"{stripped!r} is not a time: {error}") from None
    if wall.tzinfo is None:
        raise ValueError(f"{stripped!r} has no offset; add one (Z is UTC), or name a timezone")
    if zones.is_missing(wall):
        change = zones.jump(wall)
        resumes = zones.wall_at(change, wall.tzinfo, change.after)
        raise ValueError(
            f"{stripped!r} does not exist in {wall.tzinfo}: the clock jumps over it to {resumes:%H:%M}; "
            "choose another time or write the offset you mean"
        )
    moment = wall.astimezone(UTC)
    if not EARLIEST <= moment < HORIZON:
        raise ValueError(out_of_range)
    return moment


def write(moment: datetime) -> str:
    """Write a moment in UTC, RFC 3339, without needless digits; `parse(write(x)) == x`."""
    text = moment.astimezone(UTC).isoformat().removesuffix("+00:00")
    return f"{text}Z"


def _offset(text: str) -> tzinfo | None:
    if text in {"Z", "z"}:
        return UTC
    if not text:
        return None
    hours, minutes = int(text[1:3]), int(text[4:6])
    if hours > 23 or minutes > 59:
        raise ValueError(f"the offset {text} is not one")
    size = timedelta(hours=hours, minutes=minutes)
    return timezone(-size if text[0] == "-" else size)
