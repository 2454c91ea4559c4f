"""Nights on which clocks change, made for the run: zones whose clocks go back, or forward, while it lasts.

A real night comes twice a year. Here a zone has a rule of its own by which its clock changes in a few seconds, and a base
offset that brings a minute of its clock's face just there. The product's processes and the oracle read the same rule, from
the same TZif bytes that a release of the zones would have.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from tests.faults import oracle

# None of them is a zone of the steady load: their offsets are odd seconds, which the walker follows only for times of day.
NAMES = ("Europe/Lisbon", "America/Havana", "Asia/Beirut", "America/Santiago", "Atlantic/Azores")


@dataclass(frozen=True, slots=True)
class Change:
    """A zone whose clock changes, and a cron expression for the minute that is shown twice, or never."""

    zone: str
    posix: str
    cron: str
    slot: datetime
    """When that minute is due, once."""


def night(begins: int) -> list[Change]:
    """Five zones whose clocks change within half a minute, from a moment (UNIX time) on: three go back, two forward."""
    back = [falls_back(zone, begins + 5 * n, near=3600 * (n - 1)) for n, zone in enumerate(NAMES[:3])]
    forward = [springs_forward(zone, begins + 15 + 5 * n, near=7200 * n) for n, zone in enumerate(NAMES[3:])]
    return [*back, *forward]


def falls_back(zone: str, first_pass: int, size: int = 6, near: int = 3600) -> Change:
    """The clock shows a minute at `first_pass` (UNIX time), goes back, and shows it again `size` seconds later."""
    base = near - (first_pass + near + size) % 60
    shown = oracle.at(first_pass + base + size)
    back = oracle.at(first_pass + base + size) + timedelta(seconds=size / 2)
    posix = f"AAA{_offset(base)}BBB{_offset(base + size)},J1/0,{_moment(back)}"
    return Change(zone, posix, f"{shown.minute} {shown.hour} * * *", oracle.at(first_pass))


def springs_forward(zone: str, jump: int, size: int = 60, near: int = 3600) -> Change:
    """The clock jumps over a minute at `jump` (UNIX time): that minute's slot is due right then."""
    base = near - (jump + near) % 60
    skipped = oracle.at(jump + base)
    posix = f"AAA{_offset(base)}BBB{_offset(base + size)},{_moment(skipped)},J365/23:59:59"
    return Change(zone, posix, f"{skipped.minute} {skipped.hour} * * *", oracle.at(jump))


def _offset(seconds: int) -> str:
    """An offset as POSIX writes it: west of Greenwich is positive."""
    sign = "-" if seconds >= 0 else "+"
    minutes, rest = divmod(abs(seconds), 60)
    return f"{sign}{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def _moment(face: datetime) -> str:
    """A moment of the year on a clock's face: the day without 29 February, and the time."""
    common = face.replace(year=2027)
    return f"J{common.timetuple().tm_yday}/{face:%H:%M:%S}"
