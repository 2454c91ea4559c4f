"""Which plans the jobs share: all of them, or of a sample."""

from __future__ import annotations

from pathlib import Path

from cronwell.runtime.postgres import Database
from cronwell.runtime.statements import load_statements
from cronwell.store.port import Herd

_SQL = load_statements(Path(__file__).with_suffix(".sql"))
_SMALLEST_PERCENT = 0.01


class ForecastReads:
    """The part of the store that a forecast is made from."""

    _database: Database

    async def herds(self, tenant_id: int, most: int) -> tuple[list[Herd], float]:
        rows = await self._database.fetch(_SQL["all_plans"], tenant_id, most + 1)
        if sum(row["jobs"] for row in rows) <= most:
            return [Herd(*row) for row in rows], 1.0
        cursors = await self._database.fetchval(_SQL["cursors_estimate"])
        percent = min(100.0, max(_SMALLEST_PERCENT, 100 * most / max(cursors, 1)))
        rows = await self._database.fetch(_SQL["sampled_plans"], tenant_id, percent)
        return [Herd(*row) for row in rows], percent / 100
