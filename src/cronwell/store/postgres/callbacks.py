"""Long work: checkpoints, and executions that wait for their callback."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from cronwell.model.access import Quotas
from cronwell.model.execution import ExecutionKey, State
from cronwell.runtime.acting import acting_for_nobody
from cronwell.runtime.postgres import Connection, Database
from cronwell.runtime.statements import load_statements
from cronwell.store.callback_port import Called, Told
from cronwell.store.postgres.results import write_results
from cronwell.store.postgres.rows import STATES, Row, columns, key_of
from cronwell.store.records import Ended

_SQL = load_statements(Path(__file__).with_suffix(".sql"))


class CallbackRows:
    """The part of the store that knows long work."""

    _database: Database

    async def hear(self, told: Sequence[Told], now: datetime) -> list[bool]:
        rows = await self._database.fetch(
            _SQL["hear"],
            *columns(
                (
                    (
                        t.tenant_id,
                        t.key.job_id,
                        t.key.kind,
                        t.key.slot,
                        t.fence,
                        t.worker,
                        t.progress,
                        t.checkpoint,
                    )
                    for t in told
                ),
                8,
            ),
            now,
        )
        heard = {row["place"] for row in rows}
        return [place in heard for place in range(1, len(told) + 1)]

    async def get_called(self, tenant_id: int, key: ExecutionKey) -> Called | None:
        row = await self._database.fetchrow(_SQL["get_called"], tenant_id, key.job_id, key.kind, key.slot)
        return None if row is None else _called(row)

    async def callback_terms(self, tenant_id: int) -> tuple[bytes, Quotas] | None:
        with acting_for_nobody():
            row = await self._database.fetchrow(_SQL["callback_terms"], tenant_id)
        return None if row is None else (row["key"], Quotas(requests_per_second=row["max_requests"]))


class CallbackLocks:
    """The part of a transaction that ends what waits for callbacks in vain."""

    _connection: Connection

    async def lock_overdue(self, now: datetime, limit: int) -> list[Called]:
        rows = await self._connection.fetch(_SQL["lock_overdue"], now, limit)
        # One that is overdue and cancelled comes once.
        found = {(row["tenant_id"], key_of(row)): row for row in rows}
        for row in await self._connection.fetch(_SQL["lock_called_off"], now, limit):
            found.setdefault((row["tenant_id"], key_of(row)), row)
        return [_called(row) for row in found.values()]

    async def complete(self, ended: Sequence[Ended]) -> list[State | None]:
        return await write_results(self._connection, ended)


def _called(row: Row) -> Called:
    return Called(
        tenant_id=row["tenant_id"],
        key=key_of(row),
        job_name=row["job_name"],
        spec=row["spec"],
        state=STATES[row["state"]],
        fence=row["fence"],
        worker=row["worker"],
        attempt=row["attempt"],
        started_at=row["started_at"],
        is_cancelled=row["is_cancelled"],
        until=row["callback_until"],
        deadline=row["callback_deadline"],
    )
