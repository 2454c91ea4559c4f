"""Gates that let nobody through although there is room. Pure: time is an argument.

A gate that is busy has room for moments as well, so one look does not tell: what was first in line at every look for a while,
and could have begun at each of them, is overdue.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from cronwell.sentinel.judging import Waiting


class Line(NamedTuple):
    """Who was first in line before a gate that had room."""

    pool: str
    tenant_id: int
    gate: str
    job_id: UUID
    slot: datetime
    ready_at: datetime


class Lines:
    """What earlier looks saw."""

    def __init__(self, overdue: timedelta) -> None:
        self._overdue = overdue
        self._since: dict[Line, datetime] = {}

    def take(self, lines: Iterable[Line], now: datetime) -> tuple[Waiting, ...]:
        """Who could have begun at each look for so long and has not, by what is seen now."""
        self._since = {line: self._since.get(line, now) for line in lines}
        return tuple(
            Waiting(line.pool, 1, line.ready_at)
            for line, since in self._since.items()
            if now - since >= self._overdue
        )
