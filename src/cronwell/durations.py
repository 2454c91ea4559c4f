"""Lengths of time as people write them: `30s`, `15m`, `1h30m`, `500ms`, or ISO 8601 (`PT15M`)."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

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
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?) *(ms|us|w|d|h|m|s) *", re.ASCII)
_ISO = re.compile(
    r"P(?:(\d{1,10})W)?(?:(\d{1,10})D)?"
    r"(?:T(?=\d)(?:(\d{1,10})H)?(?:(\d{1,10})M)?(?:(\d{1,10}(?:[.,]\d{1,9})?)S)?)?",
    re.ASCII,
)
_MICROSECOND = timedelta(microseconds=1)
_ISO_UNITS = ("w", "d", "h", "m", "s")
_LONGEST = timedelta(days=36_525)
_LONGEST_TEXT = 64


def parse(text: str) -> timedelta:
    """Read a duration. Raises ValueError with a sentence that says what is accepted.

    What is finer than a microsecond is rounded to it.
    """
    stripped = text.strip()
    if len(stripped) > _LONGEST_TEXT:
        raise ValueError(f"{stripped[:20] + '…'!r} is not a duration; write {ACCEPTED}")
    parts = _iso_parts(stripped) if stripped[:1] in ("P", "p") else _unit_parts(stripped)
    if not parts:
        raise ValueError(f"{text!r} is not a duration; write {ACCEPTED}")
    # Exact arithmetic: parts that are each rounded could add up to another microsecond.
    microseconds = sum(_number(count) * (_UNITS[unit] // _MICROSECOND) for count, unit in parts)
    if microseconds > _LONGEST // _MICROSECOND:
        raise ValueError(f"{text!r} is longer than a hundred years")
    return timedelta(microseconds=round(microseconds))


def write(length: timedelta) -> str:
    """Write a duration the short way, largest unit first; `parse(write(x)) == x`. It is never negative."""
    if length < timedelta():
        raise ValueError(f"{length!r} is negative, and no duration is")
    left = length
    parts: list[str] = []
    for unit, size in _UNITS.items():
        if unit == "w":
            continue
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _number(text: str) -> int | Fraction:
    # Nearly all counts are whole, and a Fraction costs ten times an int.
    return int(text) if text.isdigit() else Fraction(text)


def _unit_parts(text: str) -> list[tuple[str, str]]:
    """Split `1h30m` into counts and units; empty when it is anything else."""
    parts: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            return []
        parts.append((part[1], part[2]))
        position = part.end()
    return parts


def _iso_parts(text: str) -> list[tuple[str, str]]:
    match = _ISO.fullmatch(text.upper())
    if match is None:
        return []
    counts = zip(match.groups(), _ISO_UNITS, strict=True)
    return [(count.replace(",", "."), unit) for count, unit in counts if count]
