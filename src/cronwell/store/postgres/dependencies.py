"""Jobs that follow others: which, and what of them waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from cronwell.model.execution import ExecutionKey, Kind, State
from cronwell.runtime.postgres import Database
from cronwell.runtime.statements import load_statements
from cronwell.store.dependency_port import (
    AtSlot,
    Dependent,
    Edge,
    JobPlace,
    NamedJob,
    Prospect,
    Revised,
    SlotPlace,
    UpstreamResult,
    WaitingCount,
    WaitingSlot,
)
from cronwell.store.postgres.days import DayChanges
from cronwell.store.postgres.rows import STATES, Row, columns, key_of

_SQL = load_statements(Path(__file__).with_suffix(".sql"))
_CHAINING = load_statements(Path(__file__).with_name("chaining.sql"))


class DependencyRows:
    """The part of the store that tells of jobs that follow others."""

    _database: Database

    async def jobs_around(self, tenant_id: int, job_id: UUID, limit: int) -> list[NamedJob]:
        around = await self._database.fetch(_SQL["jobs_around"], tenant_id, job_id, limit)
        rows = await self._database.fetch(_SQL["jobs_of_ids"], tenant_id, [row["id"] for row in around])
        return [NamedJob(*row) for row in rows]

    async def edges_among(self, tenant_id: int, jobs: Sequence[UUID]) -> list[Edge]:
        return [Edge(*row) for row in await self._database.fetch(_SQL["edges_among"], tenant_id, list(jobs))]

    async def waiting_of(self, tenant_id: int, jobs: Sequence[UUID], limit: int) -> list[WaitingSlot]:
        rows = await self._database.fetch(_SQL["waiting_of"], tenant_id, list(jobs), limit)
        return [WaitingSlot(*row) for row in rows]

    async def latest_of(
        self, tenant_id: int, jobs: Sequence[UUID], now: datetime, slot: datetime | None
    ) -> list[tuple[ExecutionKey, State, str | None]]:
        rows = await self._database.fetch(_SQL["latest_of"], tenant_id, list(jobs), now, slot)
        return [(key_of(row), STATES[row["state"]], row["reason"]) for row in rows]

    async def upstream_results(
        self, places: Sequence[SlotPlace], most: int
    ) -> dict[SlotPlace, list[UpstreamResult]]:
        tenants = {(job_id, slot): tenant_id for tenant_id, job_id, slot in places}
        found: defaultdict[SlotPlace, list[UpstreamResult]] = defaultdict(list)
        for row in await self._database.fetch(_SQL["upstream_results"], *columns(places, 3), most):
            job_id, slot = row["dependent_id"], row["slot"]
            found[tenants[job_id, slot], job_id, slot].append(
                UpstreamResult(
                    row["name"],
                    ExecutionKey(row["upstream_id"], Kind(row["kind"]), slot),
                    STATES[row["state"]],
                    row["output"],
                    bool(row["is_cut"]),
                )
            )
        return dict(found)

    async def any_to_judge(self, now: datetime) -> bool:
        return bool(await self._database.fetchval(_CHAINING["any_to_judge"], now))

    async def unfollowed(self, limit: int) -> list[JobPlace]:
        rows = await self._database.fetch(_CHAINING["unfollowed"], limit)
        return [(row["tenant_id"], row["upstream_id"]) for row in rows]

    async def tell_stuck(self, since: datetime) -> list[WaitingSlot]:
        rows = await self._database.fetch(_CHAINING["tell_stuck"], since)
        return [
            WaitingSlot(row["job_id"], row["slot"], row["since"], row["tenant_id"], row["name"])
            for row in rows
        ]

    async def count_waiting(self, stuck_since: datetime) -> WaitingCount:
        row = await self._database.fetchrow(_CHAINING["count_waiting"], stuck_since)
        assert row is not None
        return WaitingCount(row["waiting"], row["oldest"], row["stuck"])


class DependencyWrites(DayChanges):
    """The part of a transaction that changes what follows what, and judges dependents."""

    async def lock_graph(self, tenant_id: int) -> None:
        await self._connection.execute(_SQL["lock_graph"], tenant_id)

    async def jobs_named(self, tenant_id: int, names: Sequence[str]) -> dict[str, UUID]:
        rows = await self._connection.fetch(_SQL["jobs_named"], tenant_id, list(names))
        return {row["name"]: row["id"] for row in rows}

    async def jobs_of_ids(self, tenant_id: int, ids: Sequence[UUID]) -> list[NamedJob]:
        rows = await self._connection.fetch(_SQL["jobs_of_ids"], tenant_id, list(ids))
        return [NamedJob(*row) for row in rows]

    async def names_between(self, tenant_id: int, first: str, end: str, limit: int) -> list[str]:
        rows = await self._connection.fetch(_SQL["names_between"], tenant_id, first, end, limit)
        return [row["name"] for row in rows]

    async def put_edges(self, tenant_id: int, dependents: Sequence[UUID], edges: Sequence[Edge]) -> None:
        await self._connection.execute(_SQL["drop_edges"], tenant_id, list(dependents))
        following = {edge.dependent_id for edge in edges}
        if free := [each for each in dependents if each not in following]:
            await self._connection.execute(_SQL["drop_waiting"], tenant_id, free)
        if edges:
            await self._connection.execute(
                _SQL["insert_edges"],
                tenant_id,
                *columns(((e.dependent_id, e.upstream_id, e.place, e.condition) for e in edges), 4),
            )

    async def edges_above(self, tenant_id: int, jobs: Sequence[UUID], limit: int) -> list[Edge]:
        rows = await self._connection.fetch(_SQL["edges_above"], tenant_id, list(jobs), limit)
        return [Edge(*row) for row in rows]

    async def edges_below(self, tenant_id: int, jobs: Sequence[UUID], limit: int) -> list[Edge]:
        rows = await self._connection.fetch(_SQL["edges_below"], tenant_id, list(jobs), limit)
        return [Edge(*row) for row in rows]

    async def followed_jobs(self, tenant_id: int, jobs: Sequence[UUID]) -> set[UUID]:
        rows = await self._connection.fetch(_SQL["followed_jobs"], tenant_id, list(jobs))
        return {row["upstream_id"] for row in rows}

    async def dependents_named(self, tenant_id: int, job_id: UUID, limit: int) -> list[str]:
        rows = await self._connection.fetch(_SQL["dependents_named"], tenant_id, job_id, limit)
        return [row["name"] for row in rows]

    async def follow(self, tenant_id: int, job_id: UUID, plan: str | None) -> None:
        if plan is not None:
            await self._connection.execute(_SQL["set_plan"], tenant_id, job_id, plan)
        await self._connection.execute(_SQL["mark_followed"], tenant_id, job_id)

    async def may_judge(self) -> bool:
        return bool(await self._connection.fetchval(_CHAINING["try_chaining"]))

    async def keep_from_judging(self) -> None:
        await self._connection.execute(_CHAINING["await_chaining"])

    async def lock_followed(self, limit: int) -> list[tuple[int, ExecutionKey]]:
        rows = await self._connection.fetch(_CHAINING["lock_followed"], limit)
        return [(row["tenant_id"], key_of(row)) for row in rows]

    async def waiting_due(self, now: datetime, limit: int) -> list[SlotPlace]:
        return [_place(row) for row in await self._connection.fetch(_CHAINING["waiting_due"], now, limit)]

    async def dependents_of(self, jobs: Sequence[JobPlace]) -> list[tuple[int, UUID, UUID]]:
        rows = await self._connection.fetch(_CHAINING["dependents_of"], *columns(jobs, 2))
        return [(row["tenant_id"], row["upstream_id"], row["dependent_id"]) for row in rows]

    async def upstreams_of(self, jobs: Sequence[JobPlace]) -> list[tuple[int, Edge]]:
        rows = await self._connection.fetch(_CHAINING["upstreams_of"], *columns(jobs, 2))
        return [(tenant_id, Edge(*edge)) for tenant_id, *edge in rows]

    async def share_dependents(self, jobs: Sequence[JobPlace]) -> list[Dependent]:
        rows = await self._connection.fetch(_CHAINING["share_dependents"], *columns(jobs, 2))
        return [Dependent(*row) for row in rows]

    async def executions_at(self, places: Sequence[SlotPlace]) -> list[AtSlot]:
        rows = await self._connection.fetch(_CHAINING["executions_at"], *columns(places, 3))
        return [
            AtSlot(
                row["tenant_id"],
                key_of(row),
                STATES[row["state"]],
                row["reason"],
                row["finished_at"],
                row["is_followed"],
            )
            for row in rows
        ]

    async def prospects_at(self, places: Sequence[SlotPlace]) -> dict[SlotPlace, Prospect]:
        rows = await self._connection.fetch(_CHAINING["prospects_at"], *columns(places, 3))
        return {_place(row): Prospect(row["is_ahead"], row["is_waiting"], row["is_skipped"]) for row in rows}

    async def skip_unmet(self, reasons: Mapping[SlotPlace, str], now: datetime) -> None:
        await self._connection.execute(
            _CHAINING["skip_unmet"],
            *columns(((*place, reason) for place, reason in reasons.items()), 4),
            now,
            [Kind.DEPENDENCY] * len(reasons),
        )

    async def revise_unmet(self, revisions: Sequence[Revised], now: datetime) -> None:
        await self._connection.execute(
            _CHAINING["revise_unmet"],
            *columns(
                ((*r.place, r.ready_at, r.reason, r.revision, r.pool, r.is_followed) for r in revisions), 8
            ),
            now,
            [Kind.DEPENDENCY] * len(revisions),
            *columns((r.group or (None, None) for r in revisions), 2),
        )

    async def outrun(self, places: Sequence[SlotPlace]) -> set[SlotPlace]:
        rows = await self._connection.fetch(_CHAINING["outrun"], *columns(places, 3))
        return {_place(row) for row in rows}

    async def clear_followed(self, done: Sequence[tuple[int, ExecutionKey]]) -> None:
        keys = ((tenant_id, key.job_id, key.kind, key.slot) for tenant_id, key in done)
        await self._connection.execute(_CHAINING["clear_followed"], *columns(keys, 4))

    async def keep_waiting(self, waiting: Sequence[tuple[SlotPlace, datetime, datetime]]) -> None:
        rows: Iterable[tuple[Any, ...]] = ((*place, since, look_at) for place, since, look_at in waiting)
        await self._connection.execute(_CHAINING["keep_waiting"], *columns(rows, 5))

    async def waiting_since(self, places: Sequence[SlotPlace]) -> dict[SlotPlace, datetime]:
        rows = await self._connection.fetch(_CHAINING["waiting_since"], *columns(places, 3))
        return {_place(row): row["since"] for row in rows}

    async def end_waiting(self, places: Sequence[SlotPlace]) -> None:
        await self._connection.execute(_CHAINING["end_waiting"], *columns(places, 3))

    async def lock_rerun(
        self, tenant_id: int, jobs: Sequence[UUID], slot: datetime
    ) -> list[tuple[ExecutionKey, State]]:
        rows = await self._connection.fetch(_CHAINING["lock_rerun"], tenant_id, list(jobs), slot)
        return [(key_of(row), STATES[row["state"]]) for row in rows]

    async def rerun(
        self, tenant_id: int, key: ExecutionKey, now: datetime, *, is_followed: bool
    ) -> str | None:
        pool: str | None = await self._connection.fetchval(
            _CHAINING["rerun"], tenant_id, key.job_id, key.kind, key.slot, now, is_followed
        )
        return pool

    async def undo_dependents(
        self, tenant_id: int, jobs: Sequence[UUID], slot: datetime, now: datetime
    ) -> int:
        undone = await self._connection.execute(
            _CHAINING["undo_dependents"], tenant_id, list(jobs), slot, now
        )
        return int(undone.rpartition(" ")[2])


def _place(row: Row) -> SlotPlace:
    return row["tenant_id"], row["job_id"], row["slot"]
