"""The values of settings: how each kind is read from a text or a TOML value, and written back."""

from __future__ import annotations

import base64
import binascii
import typing
from datetime import timedelta
from pathlib import Path
from typing import Any

from cronwell import durations

KEY_BYTES = 32
_PLAIN = str.maketrans("-_", "+/")


def write(value: object) -> str:
    """A setting's value as its environment variable would carry it."""
    if isinstance(value, timedelta):
        return durations.write(value)
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def read_keys(text: str) -> list[bytes]:
    """Keys of 32 bytes, as base64 or hex, with commas or line ends between; what follows a # on a line is left out.

    Raises ValueError, which does not tell what the text is.
    """
    lines = [line.partition("#")[0] for line in text.splitlines()]
    words = [word for line in lines for part in line.split(",") if (word := part.strip())]
    keys = []
    for place, word in enumerate(words, start=1):
        key = _read_key(word)
        if key is None:
            which = "it" if len(words) == 1 else f"key {place} of {len(words)}"
            raise ValueError(
                f"{which} is not a key; write 32 bytes as base64 or hex: `openssl rand -base64 32` makes one"
            )
        keys.append(key)
    return keys


def _read_key(word: str) -> bytes | None:
    try:
        if len(word) == 2 * KEY_BYTES:
            return bytes.fromhex(word)
        key = base64.b64decode(word.translate(_PLAIN) + "=" * (-len(word) % 4), validate=True)
    except (ValueError, binascii.Error):
        return None
    return key if len(key) == KEY_BYTES else None


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
