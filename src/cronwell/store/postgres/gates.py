"""Gates: executions of groups, and of tenants with quotas, are let through while there is room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from uuid import UUID

from cronwell.model.execution import ExecutionKey
from cronwell.model.gates import Free, Passage, let_through
from cronwell.runtime.postgres import Connection, Database
from cronwell.runtime.statements import load_statements
from cronwell.store.port import Claimed, Halt, Line
from cronwell.store.postgres.rows import TIERS, claimed_of, columns
from cronwell.store.work_port import EVER, FIRST_GATE, LINES, Gate

_SQL = load_statements(Path(__file__).with_suffix(".sql"))
_CLAIMS = load_statements(Path(__file__).with_name("claims.sql"))

PASSES = 20
"""Room that is left by those who may not start, because others of their job come first, is given to the next lines so often."""


class GateRows:
    """The part of the store that lets executions through their gates."""

    _database: Database

    async def waiting_lines(
        self, pools: Sequence[str], ready_by: datetime, after: Gate = FIRST_GATE
    ) -> list[Line]:
        rows = await self._database.fetch(_SQL["waiting_gates"], list(pools), ready_by, LINES, *after)
        return [Line(*row) for row in rows]

    async def claim_gated(
        self,
        worker: UUID,
        lines: Sequence[Line],
        *,
        places: int,
        shares: Mapping[int, int],
        ready_by: datetime,
        now: datetime,
    ) -> tuple[list[Claimed], bool]:
        limited = {line.tenant_id: line for line in lines if line.max_running or line.max_per_minute}
        groups: set[Gate] = {(line.tenant_id, line.gate) for line in lines if line.gate}
        wanted = sorted(groups | {(tenant, "") for tenant in limited})
        minute = now.replace(second=0, microsecond=0)
        async with self._database.transaction() as connection:
            rows = await connection.fetch(_SQL["lock_gates"], *columns(wanted, 2), minute)
            used: dict[Gate, int] = {(row["tenant_id"], row["gate"]): row["used"] for row in rows}
            running = await _count(connection, list(used))
            open_ = [
                line
                for line in lines
                if (not line.gate or (line.tenant_id, line.gate) in used)
                and (line.tenant_id not in limited or (line.tenant_id, "") in used)
            ]
            rooms = {
                tenant: _room(line, running[tenant, ""], used[tenant, ""])
                for tenant, line in limited.items()
                if (tenant, "") in used
            }
            free = Free(places, running, rooms, dict(shares))
            claims: list[Claimed] = []
            for _ in range(PASSES):
                passages = let_through(open_, free)
                let = [(line, each) for line, each in zip(open_, passages, strict=True) if each.wanted]
                if not let:
                    break
                found = await _claim(connection, worker, let, ready_by=ready_by, now=now)
                claims += found
                got = Counter((claim.tenant_id, claim.gate or "", claim.priority) for claim in found)
                for (tenant, gate, _), many in got.items():
                    free.take(tenant, gate, many)
                short = _short(let, got)
                if not short:
                    break
                open_ = [line for line in open_ if line not in short]
            await _note(connection, claims, limited, minute)
        missing = [gate for gate in wanted if gate not in used]
        if missing:
            # Locked by another worker, or not there yet.
            await self._database.execute(_SQL["make_gates"], *columns(missing, 2))
        return claims, bool(missing)

    async def why_waiting(self, tenant_id: int, key: ExecutionKey, now: datetime) -> Halt | None:
        minute = now.replace(second=0, microsecond=0)
        row = await self._database.fetchrow(
            _SQL["why_waiting"], tenant_id, key.job_id, key.kind, key.slot, minute
        )
        return None if row is None else Halt(*row)

    async def gate_waiting(self) -> int:
        limited: list[int] = await self._database.fetchval(_SQL["limited"])
        if not limited:
            return 0
        tag = await self._database.execute(_SQL["gate_waiting"], limited)
        # After it: what was claimed while it was looked at is running by now.
        await self._database.execute(_SQL["hold_running"], limited)
        return int(tag.rpartition(" ")[2])


def _short(let: Sequence[tuple[Line, Passage]], got: Mapping[tuple[int, str, int], int]) -> set[Line]:
    """The lines in which fewer may start than there was room for. Lines of several pools are told apart by nothing that a claim
    says, so either all of those that are alike but for it come short, or none."""
    wanted: Counter[tuple[int, str, int]] = Counter()
    for line, each in let:
        wanted[_likeness(line)] += each.wanted
    return {line for line, _ in let if got.get(_likeness(line), 0) < wanted[_likeness(line)]}


def _likeness(line: Line) -> tuple[int, str, int]:
    return line.tenant_id, line.gate, line.priority % TIERS


async def _count(connection: Connection, gates: Sequence[Gate]) -> dict[Gate, int]:
    """How many that went through each gate are running."""
    running = dict.fromkeys(gates, 0)
    for row in await connection.fetch(_SQL["count_holds"], *columns(gates, 2)):
        running[row["tenant_id"], row["gate"]] = row["running"]
    return running


def _room(line: Line, running: int, used: int) -> int:
    """How many more a tenant may begin now."""
    rooms = [
        most - taken
        for most, taken in ((line.max_running, running), (line.max_per_minute, used))
        if most is not None
    ]
    return max(0, min(rooms))


async def _claim(
    connection: Connection,
    worker: UUID,
    let: Sequence[tuple[Line, Passage]],
    *,
    ready_by: datetime,
    now: datetime,
) -> list[Claimed]:
    lines = columns(
        (
            (line.pool, line.priority, line.tenant_id, line.gate, each.wanted, each.running)
            for line, each in let
        ),
        6,
    )
    places = sum(each.wanted for _, each in let)
    pools, tiers, tenants, gates, wanted, running = lines
    rows = await connection.fetch(
        _CLAIMS["claim_gated"],
        *(pools, tiers, ready_by, worker, places, now, tenants, EVER, wanted, running, gates),
    )
    return claimed_of(rows, worker)


async def _note(
    connection: Connection, claims: Sequence[Claimed], limited: Mapping[int, Line], minute: datetime
) -> None:
    """Remember who went through, and count them."""
    holds = [
        (claim.tenant_id, gate, claim.key.job_id, claim.key.slot, claim.key.kind, claim.fence)
        for claim in claims
        for gate in {claim.gate or "", *([""] if claim.tenant_id in limited else ())}
        if gate or claim.tenant_id in limited
    ]
    if holds:
        await connection.execute(_SQL["hold_gates"], *columns(holds, 6))
    began = Counter(
        claim.tenant_id
        for claim in claims
        # What its target could not take has been counted before.
        if claim.attempt == 1 and not claim.is_back
        if claim.tenant_id in limited and limited[claim.tenant_id].max_per_minute
    )
    if began:
        await connection.execute(_SQL["count_minute"], *columns(began.items(), 2), minute)
