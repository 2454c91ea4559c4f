"""Staging: cursors that are due, and the slots that they pass, written in one transaction."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from pathlib import Path
from uuid import UUID

import asyncpg

from cronwell import errors
from cronwell.model import zones
from cronwell.model.execution import State
from cronwell.model.planning import LOWEST_PRIORITY, PlannedSlot
from cronwell.runtime.statements import load_statements
from cronwell.store.port import Cursor, Move
from cronwell.store.postgres.dependencies import DependencyWrites
from cronwell.store.postgres.rows import QUEUEING, changed_by, columns, cursor_of, micros, waiting_of

_SQL = load_statements(Path(__file__).with_suffix(".sql"))

# Longer than a claim takes: see `may_start` in claims.sql.
A_CLAIM = timedelta(seconds=2)
# So many slots at once are worth a savepoint, which takes a statement of its own.
MANY = 64
_READY_AT = itemgetter(2)


class StagingWrites(DependencyWrites):
    """The part of a transaction that moves cursors and writes the slots that they pass."""

    async def lock_due(self, since: Mapping[int, datetime], until: datetime, each: int) -> list[Cursor]:
        rows = await self._connection.fetch(_SQL["lock_due"], list(since), until, each, list(since.values()))
        return [cursor_of(row) for row in rows]

    async def stage(self, moves: Sequence[Move], now: datetime) -> None:
        await self.record(moves, now)
        moved = await self._connection.execute(
            _SQL["move_cursors"],
            *columns(
                (
                    (
                        m.cursor.tenant_id,
                        m.cursor.job_id,
                        m.cursor.revision,
                        m.cursor.next_slot,
                        m.next_slot,
                        m.runs_left,
                        m.awaits,
                        m.held_until(now),
                    )
                    for m in moves
                ),
                8,
            ),
            zones.version(),
        )
        count = changed_by(moved)
        if count != len(moves):
            raise errors.LeaseLost(
                f"{len(moves) - count} of {len(moves)} cursors had moved; nothing was staged"
            )

    async def lock_awaiting(self, now: datetime, limit: int) -> list[tuple[Cursor, datetime | None]]:
        rows = await self._connection.fetch(_SQL["lock_awaiting"], now, limit)
        return [(Cursor(*row[:6]), row["finished_at"]) for row in rows]

    async def record(self, moves: Sequence[Move], now: datetime) -> None:
        slots = [each.slot for move in moves for each in move.planned]
        if slots:
            await self._ensure_days(slots)
            moves = await self._put_off(moves, now)
            await self._insert_staged(moves)
            await self._insert_others(moves, now)
        ranges = [
            (move.cursor.tenant_id, move.cursor.job_id, each.reason, each.from_slot, each.to_slot, each.slots)
            for move in moves
            for each in move.ranges
        ]
        if ranges:
            await self._connection.execute(_SQL["insert_skips"], *columns(ranges, 6), now)

    async def _put_off(self, moves: Sequence[Move], now: datetime) -> Sequence[Move]:
        """Have what is staged late, beside a later one of its job such as a trigger, wait until no claim is under way that
        does not see it."""
        places = [
            (move.cursor.tenant_id, move.cursor.job_id, each.slot)
            for move in moves
            if move.running_limit is not None
            for each in move.planned
            if each.slot < now and each.state is State.PENDING
        ]
        late = await self.outrun(places) if places else set()
        if not late:
            return moves
        return [
            dataclasses.replace(
                move,
                planned=[
                    dataclasses.replace(each, ready_at=max(each.ready_at, now + A_CLAIM))
                    if (move.cursor.tenant_id, move.cursor.job_id, each.slot) in late
                    else each
                    for each in move.planned
                ],
            )
            for move in moves
        ]

    async def _insert_staged(self, moves: Sequence[Move]) -> None:
        """Write the slots that wait for their instant."""
        jobs: list[tuple[int, UUID, int, int, int, int, int, int, bool]] = []
        pools: dict[str, int] = {}
        groups: dict[tuple[str, int] | None, int] = {None: 0}
        staged: list[tuple[int, datetime, datetime]] = []
        for move in moves:
            waiting = [each for each in move.planned if each.reason is None]
            if waiting:
                cursor = move.cursor
                pool = pools.setdefault(move.pool, len(pools) + 1)
                jobs.append(
                    (
                        cursor.tenant_id,
                        cursor.job_id,
                        cursor.revision,
                        move.priority,
                        move.running_limit or 0,
                        pool,
                        QUEUEING[move.queueing] or 0,
                        groups.setdefault(move.group, len(groups)),
                        move.is_followed,
                    )
                )
                number = len(jobs)
                staged += [(number, each.slot, each.ready_at) for each in waiting]
        if staged:
            # In the order in which they become ready: what is claimed together then lies together.
            staged.sort(key=_READY_AT)
            tenants, ids, revisions, priorities, limits, numbers, queueing, grouped, followed = columns(
                jobs, 9
            )
            named = [group for group in groups if group is not None]
            await self._insert_slots(
                tenants,
                ids,
                revisions,
                priorities,
                limits,
                list(pools),
                numbers,
                [number for number, _, _ in staged],
                [micros(slot) for _, slot, _ in staged],
                [None if ready_at == slot else micros(ready_at) for _, slot, ready_at in staged],
                queueing,
                *columns(named, 2),
                grouped,
                followed,
                is_many=len(staged) >= MANY,
            )

    async def _insert_slots(self, *given: object, is_many: bool) -> None:
        """Write slots; one that has its verdict already keeps it. There hardly ever is one, and not to look for it is cheaper."""
        if is_many:
            await self._connection.execute("savepoint fresh")
            try:
                await self._connection.execute(_SQL["insert_fresh"], *given)
            except asyncpg.UniqueViolationError:
                await self._connection.execute("rollback to savepoint fresh")
            else:
                return
        await self._connection.execute(_SQL["insert_staged"], *given)

    async def _insert_others(self, moves: Sequence[Move], now: datetime) -> None:
        """Write the slots that have a reason: skipped ones, and those that catch up."""
        rows = [
            (
                move.cursor.tenant_id,
                move.cursor.job_id,
                each.slot,
                each.ready_at,
                each.state,
                move.cursor.revision,
                _priority(move, each),
                move.running_limit,
                move.pool,
                each.reason,
                now if each.state is State.SKIPPED else None,
                *waiting_of(move),
            )
            for move in moves
            for each in move.planned
            if each.reason is not None
        ]
        if rows:
            await self._connection.execute(_SQL["insert_executions"], *columns(rows, 15))


def _priority(move: Move, planned: PlannedSlot) -> int:
    """What is caught up stands one tier below its job: slots on time go first."""
    return min(LOWEST_PRIORITY, move.priority + 1) if planned.is_caught_up else move.priority
