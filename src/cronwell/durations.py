"""Lengths of time as people write them: `30s`, `15m`, `1h30m`, `500ms`, or ISO 8601 (`PT15M`)."""

from __future__ import annotations

import re
from datetime import timedelta

ACCEPTED = 'a duration such as "30s", "15m", "1h30m", "500ms" or ISO 8601 "PT15M"'

_UNITS = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
    "us": timedelta(microseconds=1),
}
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*(ms|us|w|d|h|m|s)", re.ASCII)
_ISO = re.compile(
    r"P(?:(\d{1,9})W)?(?:(\d{1,9})D)?"
    r"(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,6})?)S)?)?",
    re.ASCII,
)
_LONGEST = timedelta(days=36_525)


def parse(text: str) -> timedelta:
    """Read a duration. Raises ValueError with a sentence that says what is accepted."""
    stripped = text.strip()
    length = _parse_iso(stripped) if stripped[:1] in ("P", "p") else _parse_units(stripped)
    if length is None:
        raise ValueError(f"{text!r} is not a duration; write {ACCEPTED}")
    if length > _LONGEST:
        raise ValueError(f"{text!r} is longer than a hundred years")
    return length


def write(length: timedelta) -> str:
    """Write a duration the short way, largest unit first; `parse(write(x)) == x`."""
    left = length
    parts: list[str] = []
    for unit, size in _UNITS.items():
        if unit == "w":
            continue
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _parse_units(text: str) -> timedelta | None:
    total = timedelta()
    position = 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            return None
        try:
            total += float(part[1]) * _UNITS[part[2]] if "." in part[1] else int(part[1]) * _UNITS[part[2]]
        except OverflowError:
            return None
        position = part.end()
        while position < len(text) and text[position] == " ":
            position += 1
    return total if text else None


def _parse_iso(text: str) -> timedelta | None:
    match = _ISO.fullmatch(text.upper())
    if match is None or not any(match.groups()):
        return None
    weeks, days, hours, minutes, seconds = (float(group or 0) for group in match.groups())
    try:
        return timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        return None
