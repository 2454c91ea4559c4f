"""Executions: claimed, reported on and completed by workers; read, cancelled and revived by users."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import orjson

from cronwell.model.execution import ExecutionKey, Kind, State
from cronwell.runtime.postgres import Database
from cronwell.runtime.statements import load_statements
from cronwell.store.port import (
    EVER,
    Attempt,
    Backlog,
    Claimed,
    Confirmed,
    Ended,
    Execution,
    ExecutionFilter,
    Found,
    Report,
    Tier,
    Touched,
)
from cronwell.store.postgres.audit import note_change
from cronwell.store.postgres.results import called_off, write_results
from cronwell.store.postgres.rows import (
    STATES,
    attempt_of,
    claimed_of,
    columns,
    execution_of,
    key_of,
    touched_of,
)

_SQL = load_statements(Path(__file__).with_suffix(".sql"))
_CLAIMS = load_statements(Path(__file__).with_name("claims.sql"))
_BLOCKED = load_statements(Path(__file__).with_name("blocked.sql"))
_JOBS = load_statements(Path(__file__).with_name("jobs.sql"))
_STAGING = load_statements(Path(__file__).with_name("staging.sql"))

FIRST_WINDOW = timedelta(seconds=1)
WINDOW_GROWTH = 8
_TICK = timedelta(microseconds=1)

Claim = tuple[int, ExecutionKey, int]


class ExecutionRows:
    """The part of the store that keeps executions."""

    _database: Database

    async def claim(  # noqa: PLR0913  # three of them bound what is looked through
        self,
        worker: UUID,
        pool: str,
        priority: int,
        *,
        ready_by: datetime,
        limit: int,
        now: datetime,
        since: datetime = EVER,
        slots_since: datetime = EVER,
    ) -> list[Claimed]:
        rows = await self._database.fetch(
            _CLAIMS["claim"], pool, priority, ready_by, worker, limit, now, since, slots_since
        )
        return claimed_of(rows, worker)

    async def claim_shares(  # noqa: PLR0913  # three of them bound what is looked through
        self,
        worker: UUID,
        pool: str,
        priority: int,
        *,
        ready_by: datetime,
        shares: Mapping[int, int],
        now: datetime,
        since: Mapping[int, datetime] | None = None,
        slots_since: datetime = EVER,
    ) -> list[Claimed]:
        begin = since or {}
        rows = await self._database.fetch(
            _CLAIMS["claim_shares"],
            pool,
            priority,
            ready_by,
            worker,
            list(shares),
            now,
            list(shares.values()),
            slots_since,
            [begin.get(tenant, EVER) for tenant in shares],
        )
        return claimed_of(rows, worker)

    async def claim_found(
        self, worker: UUID, pool: str, found: Sequence[Found], *, ready_by: datetime, now: datetime
    ) -> list[Claimed]:
        tenants, jobs, kinds, slots = columns(((t, k.job_id, k.kind, k.slot) for t, k in found), 4)
        rows = await self._database.fetch(
            _CLAIMS["claim_found"], tenants, jobs, ready_by, worker, kinds, now, slots, EVER, pool
        )
        return claimed_of(rows, worker)

    async def startable(
        self, worker: UUID, before: Mapping[Tier, datetime], *, ready_by: datetime, limit: int, now: datetime
    ) -> dict[Tier, list[Found]]:
        pools, tiers, moments = columns(((*tier, moment) for tier, moment in before.items()), 3)
        rows = await self._database.fetch(
            _CLAIMS["startable"], pools, tiers, ready_by, worker, limit, now, moments
        )
        found: dict[Tier, list[Found]] = {}
        for row in rows:
            found.setdefault((row["pool"], row["priority"]), []).append((row["tenant_id"], key_of(row)))
        return found

    async def count_before(self, before: Mapping[Tier, datetime], limit: int) -> int:
        pools, tiers, moments = columns(((*tier, moment) for tier, moment in before.items()), 3)
        count: int = await self._database.fetchval(_CLAIMS["count_before"], pools, tiers, moments, limit)
        return count

    async def due_tiers(
        self, since: Mapping[Tier, datetime], ready_by: datetime, slots_since: datetime = EVER
    ) -> set[Tier]:
        pools, tiers, moments = columns(((*tier, moment) for tier, moment in since.items()), 3)
        rows = await self._database.fetch(_CLAIMS["due_tiers"], pools, tiers, ready_by, moments, slots_since)
        return {(row["pool"], row["priority"]) for row in rows}

    async def waiting_tenants(
        self, pool: str, priority: int, ready_by: datetime, since: datetime = EVER
    ) -> dict[int, float]:
        if since is EVER:
            rows = await self._database.fetch(_CLAIMS["waiting_tenants"], pool, priority, ready_by)
        else:
            rows = await self._database.fetch(
                _CLAIMS["waiting_tenants_since"], pool, priority, ready_by, since
            )
        return {row["id"]: row["weight"] for row in rows}

    async def settle_blocked(
        self, pools: Sequence[str], now: datetime, since: datetime = EVER
    ) -> tuple[int, set[UUID]]:
        row = await self._database.fetchrow(_BLOCKED["skip_blocked"], list(pools), now, since)
        assert row is not None, "a count is one row"
        if row["jobs"] is None:
            return row["skipped"], set()
        told = await self._database.fetch(_BLOCKED["cancel_overlapped"], row["jobs"], row["slots"], now)
        # One that waits for its callback has no worker to tell; a scheduler ends it.
        workers = {each["worker"] for each in told if each["state"] == State.RUNNING}
        return row["skipped"], workers - {None}

    async def complete(self, ended: Sequence[Ended]) -> list[State | None]:
        return await write_results(self._database, ended)

    async def hand_back(self, worker: UUID, claims: Sequence[Claim]) -> None:
        await self._database.execute(
            _SQL["hand_back"],
            *columns(((t, k.job_id, k.kind, k.slot, fence) for t, k, fence in claims), 5),
            worker,
        )

    async def confirm(
        self, worker: UUID, claims: Sequence[Claim], now: datetime, *, ahead: timedelta = timedelta()
    ) -> list[Confirmed | None]:
        rows = await self._database.fetch(
            _SQL["confirm"],
            *columns(((t, k.job_id, k.kind, k.slot, fence) for t, k, fence in claims), 5),
            worker,
            now,
            now + ahead,
        )
        found = {row["place"]: Confirmed(STATES[row["state"]], row["is_cancelled"]) for row in rows}
        return [found.get(place) for place in range(1, len(claims) + 1)]

    async def report(self, reports: Sequence[Report]) -> None:
        await self._database.execute(
            _SQL["report"],
            *columns(
                (
                    (
                        r.tenant_id,
                        r.key.job_id,
                        r.key.kind,
                        r.key.slot,
                        r.fence,
                        r.worker,
                        r.started_at,
                        r.progress,
                    )
                    for r in reports
                ),
                8,
            ),
        )

    async def cancels(self, worker: UUID) -> list[Claim]:
        rows = await self._database.fetch(_SQL["cancels"], worker)
        return [(row["tenant_id"], key_of(row), row["fence"]) for row in rows]

    async def get_execution(self, tenant_id: int, key: ExecutionKey) -> Execution | None:
        row = await self._database.fetchrow(_SQL["get_execution"], tenant_id, key.job_id, key.kind, key.slot)
        return None if row is None else execution_of(row)

    async def list_executions(
        self, tenant_id: int, where: ExecutionFilter, after: ExecutionKey | None, limit: int
    ) -> list[Execution]:
        if where.job_id is not None or where.states == (State.FAILED,):
            # One job's executions, and dead letters, stand in the order of their slots in an index.
            return await self._list(tenant_id, where, after, limit)
        found: list[Execution] = []
        if where.begun_by is not None:
            found = await self._list_early(tenant_id, where, after, limit)
            where = dataclasses.replace(where, begun_by=None, to_slot=where.begun_by + _TICK)
        async for window in self._windows(where, after):
            if len(found) >= limit:
                break
            found += await self._list(tenant_id, window, after, limit - len(found))
        return found

    async def _list_early(
        self, tenant_id: int, where: ExecutionFilter, after: ExecutionKey | None, limit: int
    ) -> list[Execution]:
        if after is not None and where.begun_by is not None and after.slot <= where.begun_by:
            return []
        rows = await self._database.fetch(
            _SQL["list_early"],
            tenant_id,
            where.begun_by,
            where.from_slot,
            where.worker,
            _containing(where.text),
            where.kind,
            None if after is None else after.slot,
            None if after is None else after.job_id,
            limit,
        )
        return [execution_of(row) for row in rows]

    async def _windows(
        self, where: ExecutionFilter, after: ExecutionKey | None
    ) -> AsyncIterator[ExecutionFilter]:
        """Cut the time to look through into windows that grow as they go back: no page of a list sorts a whole day."""
        span = await self._database.fetchrow(_STAGING["span"])
        if span is None or span["oldest"] is None:
            return
        oldest, newest = span["oldest"], span["newest"]
        end = min([newest, *(t for t in (where.to_slot, after and after.slot + _TICK) if t is not None)])
        start = max(oldest, where.from_slot or oldest)
        width = FIRST_WINDOW
        while end > start:
            begin = max(start, end - width)
            yield dataclasses.replace(where, from_slot=begin, to_slot=end)
            end = begin
            width *= WINDOW_GROWTH

    async def _list(
        self, tenant_id: int, where: ExecutionFilter, after: ExecutionKey | None, limit: int
    ) -> list[Execution]:
        last: tuple[datetime | None, UUID | None, Kind | None] = (
            (None, None, None) if after is None else (after.slot, after.job_id, after.kind)
        )
        rows = await self._database.fetch(
            _SQL["list_executions"],
            tenant_id,
            where.job_id,
            None if where.states is None else list(where.states),
            where.from_slot,
            where.to_slot,
            where.worker,
            _containing(where.text),
            where.kind,
            *last,
            limit,
            where.begun_by,
        )
        return [execution_of(row) for row in rows]

    async def list_attempts(self, tenant_id: int, key: ExecutionKey) -> list[Attempt]:
        rows = await self._database.fetch(_SQL["list_attempts"], tenant_id, key.job_id, key.kind, key.slot)
        return [attempt_of(row) for row in rows]

    async def cancel_execution(self, tenant_id: int, key: ExecutionKey, now: datetime) -> Touched | None:
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(
                _SQL["cancel_execution"], tenant_id, key.job_id, key.kind, key.slot, now
            )
            if row is None:
                return None
            await note_change(connection, tenant_id, "cancelled", f"execution:{key}")
            touched = touched_of(row)
            if touched.state is State.RUNNING and touched.worker is None:
                # It waits for its callback: there is no worker to be asked to stop it.
                await write_results(
                    connection, [called_off(tenant_id, key, row["fence"], row["callback_worker"], now)]
                )
                touched = dataclasses.replace(touched, state=State.CANCELLED)
        return touched

    async def revive_execution(self, tenant_id: int, key: ExecutionKey, now: datetime) -> str | None:
        async with self._database.transaction() as connection:
            # A trigger that is waited for is then seen, and given time to begin.
            await connection.execute(_JOBS["await_changes"], tenant_id, key.job_id)
            pool: str | None = await connection.fetchval(
                _SQL["revive_execution"], tenant_id, key.job_id, key.kind, key.slot, now
            )
            if pool is not None:
                await note_change(connection, tenant_id, "retried", f"execution:{key}")
        return pool

    async def redrive(
        self,
        tenant_id: int,
        where: ExecutionFilter,
        *,
        limit: int,
        rate: float,
        start: datetime,
        dead_by: datetime,
    ) -> list[str]:
        async with self._database.transaction() as connection:
            rows = await connection.fetch(
                _SQL["redrive"],
                tenant_id,
                where.job_id,
                where.from_slot,
                where.to_slot,
                _containing(where.text),
                limit,
                rate,
                start,
                dead_by,
                *(
                    (None, None, None)
                    if where.keys is None
                    else columns(((key.job_id, key.kind, key.slot) for key in where.keys), 3)
                ),
            )
            if rows:
                after = orjson.dumps({"count": len(rows), "rate": rate}).decode()
                await note_change(connection, tenant_id, "redriven", "dead-letters:", after)
        return [row["pool"] for row in rows]

    async def dismiss(self, tenant_id: int, key: ExecutionKey) -> bool:
        async with self._database.transaction() as connection:
            state = await connection.fetchval(_SQL["dismiss"], tenant_id, key.job_id, key.kind, key.slot)
            if state is not None:
                await note_change(connection, tenant_id, "dismissed", f"execution:{key}")
        return state is not None

    async def backlog(self, now: datetime) -> list[Backlog]:
        rows = await self._database.fetch(_SQL["backlog"], now)
        return [Backlog(row["pool"], row["depth"], row["oldest"]) for row in rows]


def _containing(text: str | None) -> str | None:
    """A pattern for ILIKE that matches the text itself, wherever it stands."""
    if text is None:
        return None
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
