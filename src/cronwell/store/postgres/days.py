"""The days that a transaction writes to: each has partitions of its own, which must be there first."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path

from cronwell.runtime.postgres import Connection
from cronwell.runtime.statements import load_statements

_STAGING = load_statements(Path(__file__).with_name("staging.sql"))


class DayChanges:
    """The part of a transaction that makes room for days; every part that adds executions stands on it."""

    def __init__(self, connection: Connection, known_days: frozenset[date]) -> None:
        self._connection = connection
        self._known_days = known_days
        self.made_days: set[date] = set()
        """Days whose partitions exist once this transaction commits."""

    async def _ensure_days(self, slots: Iterable[datetime]) -> None:
        """Make sure that the days of these slots have partitions, asking only for days not seen before."""
        days = {slot.astimezone(UTC).date() for slot in slots}
        for day in days - self._known_days - self.made_days:
            await self._connection.fetchval(_STAGING["ensure_day"], day)
            self.made_days.add(day)
