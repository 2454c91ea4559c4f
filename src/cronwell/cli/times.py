"""Times between people and the API: read what they type, show moments in their own zone with how far away they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

from cronwell import durations

ACCEPTED = 'a time such as "2027-05-05T10:00:00Z", "2027-05-05 10:00" (your zone), or a duration such as "2h"'

_SECOND = timedelta(seconds=1)
_SIZES = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("m", timedelta(minutes=1)), ("s", _SECOND))


def parse_moment(text: str, *, now: datetime, toward: Literal["past", "future"]) -> datetime:
    """Read a moment. A duration is counted from `now` toward the past or the future; no offset means the local zone.

    Raises ValueError with what is accepted.
    """
    stripped = text.strip()
    if stripped.lower() == "now":
        return now
    try:
        length = durations.parse(stripped)
    except ValueError:
        pass
    else:
        return now - length if toward == "past" else now + length
    try:
        moment = datetime.fromisoformat(stripped)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time; write {ACCEPTED}") from None


def write_moment(moment: datetime) -> str:
    """A moment as the API takes it."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def read_moment(text: str) -> datetime:
    """A moment as the API answers it."""
    return datetime.fromisoformat(text)


def local(moment: datetime) -> str:
    """A moment in the local zone, to the second."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def distance(moment: datetime, now: datetime) -> str:
    """How long ago, or in how long, in at most two units: "in 3h5m", "2d ago", "now"."""
    ahead = moment - now
    if abs(ahead) < _SECOND:
        return "now"
    return f"in {rounded(ahead)}" if ahead > timedelta() else f"{rounded(-ahead)} ago"


def rounded(length: timedelta) -> str:
    """A length in its largest unit and the next one, rounded down; days stand alone from ten on."""
    for place, (unit, size) in enumerate(_SIZES):
        count, left = divmod(length, size)
        if not count:
            continue
        if unit == "s" or (unit == "d" and count >= 10):
            return f"{count}{unit}"
        below_unit, below_size = _SIZES[place + 1]
        below = left // below_size
        return f"{count}{unit}{below}{below_unit}" if below else f"{count}{unit}"
    return "0s"


def elapsed(milliseconds: float) -> str:
    """A measured time with the digits that matter: "0.4ms", "12ms", "1.25s", "3m20s"."""
    size = abs(milliseconds)
    if size < 10:
        return f"{milliseconds:.1f}ms"
    if size < 1000:
        return f"{milliseconds:.0f}ms"
    if size < 60_000:
        return f"{milliseconds / 1000:.2f}s"
    return ("-" if milliseconds < 0 else "") + rounded(timedelta(milliseconds=size))
