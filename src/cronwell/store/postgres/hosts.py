"""What targets bear, how hosts fare, and the executions that wait for either."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from uuid import UUID

import orjson

from cronwell.runtime.postgres import Database
from cronwell.runtime.statements import load_statements
from cronwell.store.hosts_port import HeldBack, HostState, TargetLimit, Throttling
from cronwell.store.postgres.audit import note_change
from cronwell.store.postgres.rows import columns

_SQL = load_statements(Path(__file__).with_suffix(".sql"))


class HostRows:
    """The part of the store that keeps limits of targets, and what is known of hosts."""

    _database: Database

    async def hold_back(self, worker: UUID, held: Sequence[HeldBack]) -> list[bool]:
        rows = await self._database.fetch(
            _SQL["hold_back"],
            *columns(
                (
                    (h.tenant_id, h.key.job_id, h.key.kind, h.key.slot, h.fence, h.ready_at, h.held_by)
                    for h in held
                ),
                7,
            ),
            worker,
        )
        places = {row["place"] for row in rows}
        return [place in places for place in range(1, len(held) + 1)]

    async def release_held(self, tenant_id: int, target: str, now: datetime, limit: int) -> int:
        done = await self._database.execute(_SQL["release_held"], tenant_id, target, now, limit)
        return int(done.rpartition(" ")[2])

    async def count_held(self, tenant_id: int, targets: Sequence[str], most: int) -> dict[str, int]:
        rows = await self._database.fetch(_SQL["count_held"], tenant_id, list(targets), most)
        return {row["target"]: row["number"] for row in rows}

    async def throttling(self, now: datetime, pools: Sequence[str]) -> Throttling:
        row = await self._database.fetchrow(_SQL["throttling"], now, list(pools))
        assert row is not None, "an aggregate has a row"
        return Throttling((row["limits"], row["newest"]), tuple(row["workers"]))

    async def every_limit(self) -> list[TargetLimit]:
        return [TargetLimit(*row) for row in await self._database.fetch(_SQL["every_limit"])]

    async def put_limit(self, limit: TargetLimit) -> tuple[TargetLimit, bool]:
        async with self._database.transaction() as connection:
            was = await connection.fetchrow(_SQL["lock_limit"], limit.tenant_id, limit.target)
            row = await connection.fetchrow(
                _SQL["put_limit"],
                limit.tenant_id,
                limit.target,
                limit.rate,
                limit.concurrency,
                limit.breaker,
                limit.updated_at,
            )
            assert row is not None, "it is inserted or changed"
            kept = TargetLimit(*row)
            before = None if was is None else TargetLimit(*was)
            if before is None or _told(before) != _told(kept):
                action = "created" if before is None else "changed"
                await connection.execute(
                    _SQL["note_limit"],
                    *(kept.tenant_id, action, f"limit:{kept.target}"),
                    *(None if before is None else _told(before), _told(kept)),
                )
        return kept, was is None

    async def drop_limit(self, tenant_id: int, target: str) -> bool:
        async with self._database.transaction() as connection:
            was = await connection.fetchrow(_SQL["lock_limit"], tenant_id, target)
            if was is None:
                return False
            await connection.execute(_SQL["drop_limit"], tenant_id, target)
            told = _told(TargetLimit(*was))
            await connection.execute(_SQL["note_limit"], tenant_id, "deleted", f"limit:{target}", told, None)
        return True

    async def get_limit(self, tenant_id: int, target: str) -> TargetLimit | None:
        row = await self._database.fetchrow(_SQL["get_limit"], tenant_id, target)
        return None if row is None else TargetLimit(*row)

    async def list_limits(self, tenant_id: int, after: str | None, limit: int) -> list[TargetLimit]:
        rows = await self._database.fetch(_SQL["list_limits"], tenant_id, after, limit)
        return [TargetLimit(*row) for row in rows]

    async def note_hosts(self, states: Sequence[HostState]) -> None:
        await self._database.execute(
            _SQL["note_hosts"],
            *columns(
                (
                    (
                        *(s.tenant_id, s.host, s.state, s.since, s.failures, s.waits, s.next_probe_at),
                        *(s.error, s.changed_at),
                    )
                    for s in states
                ),
                9,
            ),
        )

    async def changed_hosts(self, since: datetime) -> list[HostState]:
        return [HostState(*row) for row in await self._database.fetch(_SQL["changed_hosts"], since)]

    async def list_hosts(
        self, tenant_id: int, state: str | None, after: str | None, limit: int
    ) -> list[HostState]:
        rows = await self._database.fetch(_SQL["list_hosts"], tenant_id, after, limit, state)
        return [HostState(*row) for row in rows]

    async def get_host(self, tenant_id: int, host: str) -> HostState | None:
        row = await self._database.fetchrow(_SQL["get_host"], tenant_id, host)
        return None if row is None else HostState(*row)

    async def close_host(self, tenant_id: int, host: str, now: datetime) -> bool:
        async with self._database.transaction() as connection:
            closed = await connection.fetchval(_SQL["close_host"], tenant_id, host, now)
            if closed is not None:
                await note_change(connection, tenant_id, "closed", f"host:{host}")
        return closed is not None

    async def forget_hosts(self, before: datetime) -> None:
        await self._database.execute(_SQL["forget_hosts"], before)


def _told(limit: TargetLimit) -> str:
    """A limit as the audit shows it."""
    fields = {
        "target": limit.target,
        "rate": limit.rate,
        "concurrency": limit.concurrency,
        "breaker": limit.breaker,
    }
    return orjson.dumps(fields).decode()
