"""Signs of life of every process."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from uuid import UUID

from cronwell.runtime.postgres import Database
from cronwell.runtime.statements import load_statements
from cronwell.store.cluster_port import Pulse

_SQL = load_statements(Path(__file__).with_suffix(".sql"))


class PulseRows:
    """The part of the store that keeps signs of life."""

    _database: Database

    async def pulse(self, process: UUID, number: int, now: datetime) -> Pulse:
        row = await self._database.fetchrow(_SQL["pulse"], process, number, now)
        assert row is not None
        return Pulse(*row)
