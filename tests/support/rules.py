"""Releases of zones' rules that a test makes up: a zone's clock, written as a POSIX TZ text, e.g. `AAA-2`."""

from __future__ import annotations

import io
import struct
from datetime import tzinfo
from zoneinfo import ZoneInfo

import pytest

from cronwell.model import planning, schedule, zones


def zone(name: str, posix: str) -> tzinfo:
    """A zone that keeps the rule of a POSIX TZ text for all time, read from a TZif file (RFC 8536) as any other."""
    one_type = struct.pack(">lbB", 0, 0, 0) + b"AAA\0"
    header = b"TZif2" + bytes(15) + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    data = header + one_type + header + one_type + b"\n" + posix.encode() + b"\n"
    return ZoneInfo.from_file(io.BytesIO(data), key=name)


def install(patch: pytest.MonkeyPatch, release: str, **rules: str) -> None:
    """Let the process go by a release in which these zones (`Europe__Berlin="AAA-2"`) keep these rules.

    As after a start: nothing that was worked out by the rules before is remembered.
    """
    made = {name.replace("__", "/"): posix for name, posix in rules.items()}
    found = {name: zone(name, posix) for name, posix in made.items()}
    original = zones._load
    patch.setattr(zones, "_load", lambda name: found.get(name) or original(name))
    patch.setattr(zones, "version", lambda: release)
    forget()


def forget() -> None:
    """Drop every compiled schedule, as they hold on to their zones."""
    for cached in (
        schedule.load,
        schedule.next_slot,
        schedule.shared,
        schedule._span,
        schedule._endless,
        planning.load_plan,
        planning._missed,
    ):
        cached.cache_clear()
    schedule._gaps.clear()
