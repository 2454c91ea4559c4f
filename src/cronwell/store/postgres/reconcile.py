"""What a range of time ought to have had, and what it had: many jobs at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from cronwell.runtime.postgres import Database
from cronwell.runtime.statements import load_statements
from cronwell.store.port import Accountable, Revision

_SQL = load_statements(Path(__file__).with_suffix(".sql"))
_FIRST = UUID(int=0)

T = TypeVar("T")


class ReconcileReads:
    """The part of the store that proves that nothing is silent."""

    _database: Database

    async def accountable_jobs(
        self,
        tenant_id: int,
        since: datetime,
        before: datetime,
        *,
        shard: int | None,
        after: UUID | None,
        limit: int,
    ) -> list[Accountable]:
        rows = await self._database.fetch(
            _SQL["accountable_jobs"], tenant_id, after or _FIRST, shard, since, before, limit
        )
        ids = [row["id"] for row in rows]
        replaced: dict[UUID, list[Revision]] = defaultdict(list)
        for each in await self._database.fetch(_SQL["revisions_between"], tenant_id, ids, since, before):
            replaced[each["job_id"]].append(Revision(*each[1:]))
        return [
            Accountable(
                job_id=row["id"],
                name=row["name"],
                created_at=row["created_at"],
                paused_at=row["paused_at"],
                is_over=row["is_over"] is not False,
                revisions=(
                    *sorted(replaced[row["id"]], key=lambda revision: revision.valid_from),
                    *(
                        [Revision(row["revision"], row["plan"], row["defined_at"], None)]
                        if row["plan"] is not None
                        else []
                    ),
                ),
            )
            for row in rows
        ]

    async def skips_between(
        self, tenant_id: int, jobs: Sequence[UUID], since: datetime, before: datetime
    ) -> dict[UUID, list[tuple[datetime, datetime]]]:
        rows = await self._database.fetch(_SQL["skips_between"], tenant_id, list(jobs), since, before)
        return _gathered((row["job_id"], (row["from_slot"], row["to_slot"])) for row in rows)

    async def slots_between(
        self, tenant_id: int, jobs: Sequence[UUID], since: datetime, before: datetime
    ) -> dict[UUID, list[datetime]]:
        rows = await self._database.fetch(_SQL["slots_between"], tenant_id, list(jobs), since, before)
        return _gathered((row["job_id"], row["slot"]) for row in rows)

    async def last_slots(self, tenant_id: int, jobs: Sequence[UUID]) -> dict[UUID, datetime]:
        rows = await self._database.fetch(_SQL["last_slots"], tenant_id, list(jobs))
        return {row["job_id"]: row["slot"] for row in rows}


def _gathered(pairs: Iterable[tuple[UUID, T]]) -> dict[UUID, list[T]]:
    found: dict[UUID, list[T]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found
