"""The values of settings: how each kind is read from a text or a TOML value, and written back."""

from __future__ import annotations

import typing
from datetime import timedelta
from pathlib import Path
from typing import Any

from cronwell import durations


def write(value: object) -> str:
    """A setting's value as its environment variable would carry it."""
    if isinstance(value, timedelta):
        return durations.write(value)
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _as_bool(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    text = str(raw).strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off", ""):
        return False
    raise ValueError(f"{raw!r} is neither true nor false")


def _as_int(raw: object) -> int:
    try:
        number = int(str(raw))
    except ValueError:
        raise ValueError(f"{raw!r} is not a whole number") from None
    if number < 0:
        raise ValueError(f"{raw!r} is negative")
    return number


def _as_duration(raw: object) -> timedelta:
    return raw if isinstance(raw, timedelta) else durations.parse(str(raw))


def _as_names(raw: object) -> tuple[str, ...]:
    items = raw.split(",") if isinstance(raw, str) else list(typing.cast("typing.Iterable[object]", raw))
    return tuple(text for item in items if (text := str(item).strip()))


CONVERTERS: dict[str, Any] = {
    "str": str,
    "int": _as_int,
    "bool": _as_bool,
    "timedelta": _as_duration,
    "Path": lambda raw: Path(str(raw)),
    "tuple": _as_names,
}
