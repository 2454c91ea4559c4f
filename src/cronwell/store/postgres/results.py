"""Results of attempts, written in batches: how they ended, or that they wait for their callback."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from cronwell import errors
from cronwell.model.execution import ExecutionKey, Kind, Result, State
from cronwell.runtime.postgres import Connection, Database
from cronwell.runtime.statements import load_statements
from cronwell.store.postgres.rows import STATES, columns, micros
from cronwell.store.records import Awaited, Ended
from cronwell.store.work_port import EVER

T = TypeVar("T")

_SQL = load_statements(Path(__file__).with_suffix(".sql"))
_CALLBACKS = load_statements(Path(__file__).with_name("callbacks.sql"))


async def write_results(database: Database | Connection, ended: Sequence[Ended]) -> list[State | None]:
    """Write results; for each, the state it led to, or None where its fence was no longer valid.

    It takes several statements. Outside a transaction some of them may be written when one fails: their commit is unknown then.
    """
    try:
        return await _write_all(database, ended)
    except errors.StoreUnavailable as error:
        if isinstance(database, Connection):
            raise
        raise errors.CommitUnknown(str(error)) from error


async def _write_all(database: Database | Connection, ended: Sequence[Ended]) -> list[State | None]:
    awaited = [(place, each, each.awaits) for place, each in enumerate(ended) if each.awaits is not None]
    if not awaited:
        return await _write(database, ended)
    states: list[State | None] = [None] * len(ended)
    others = [(place, each) for place, each in enumerate(ended) if each.awaits is None]
    parked = await _park(database, [(each, waits) for _, each, waits in awaited])
    written = await _write(database, [each for _, each in others]) if others else []
    for (place, _, _), state in zip(awaited, parked, strict=True):
        states[place] = state
    for (place, _), state in zip(others, written, strict=True):
        states[place] = state
    return states


def called_off(tenant_id: int, key: ExecutionKey, fence: int, worker: UUID, now: datetime) -> Ended:
    """The end of an execution that is cancelled while it waits for its callback."""
    return Ended(
        tenant_id=tenant_id,
        key=key,
        fence=fence,
        worker=worker,
        state=State.CANCELLED,
        result=Result.CANCELLED,
        started_at=None,
        finished_at=now,
        error_kind="cancelled",
        error="cancelled while it waited for its callback",
    )


async def _park(
    database: Database | Connection, awaited: Sequence[tuple[Ended, Awaited]]
) -> list[State | None]:
    rows = await database.fetch(
        _CALLBACKS["park"],
        *columns(
            (
                (
                    e.tenant_id,
                    e.key.job_id,
                    e.key.kind,
                    e.key.slot,
                    e.fence,
                    e.worker,
                    e.started_at,
                    e.finished_at,
                    waits.deadline,
                    waits.heartbeat,
                )
                for e, waits in awaited
            ),
            10,
        ),
    )
    found = {place: STATES[state] for place, state in rows}
    return [found.get(place) for place in range(1, len(awaited) + 1)]


async def _write(database: Database | Connection, ended: Sequence[Ended]) -> list[State | None]:
    states = await _record(database, ended, min((e.key.slot for e in ended), default=EVER))
    if missing := [place for place, state in enumerate(states) if state is None]:
        # Nearly always their fence is old. But a search of some days only may also have missed them: see `complete`.
        again = await _record(database, [ended[place] for place in missing], EVER)
        for place, state in zip(missing, again, strict=True):
            states[place] = state
    if None in states:
        # Where a result came twice, the database answers for one of the two; it is the other's answer as well.
        known = {_identity(e): state for e, state in zip(ended, states, strict=True) if state is not None}
        return [known.get(_identity(e)) for e in ended]
    return states


async def _record(
    database: Database | Connection, ended: Sequence[Ended], slots_since: datetime
) -> list[State | None]:
    """Record results of executions with slots from then on; for each, the state it led to, or None where it was not found."""
    states: list[State | None] = [None] * len(ended)
    if all(e.state is State.SUCCEEDED and e.output is None and e.started_at is not None for e in ended):
        for place in await _succeed(database, ended, slots_since):
            states[place] = State.SUCCEEDED
        return states
    rows = await database.fetch(
        _SQL["complete"],
        *columns(
            (
                (
                    e.tenant_id,
                    e.key.job_id,
                    e.key.kind,
                    e.key.slot,
                    e.fence,
                    e.worker,
                    e.state,
                    e.result,
                    e.started_at,
                    e.finished_at,
                    e.ready_at,
                    e.error_kind,
                    e.error,
                    e.output,
                    e.output_truncated,
                )
                for e in ended
            ),
            15,
        ),
        slots_since,
    )
    for place, state in rows:
        states[place - 1] = STATES[state]
    return states


async def _succeed(
    database: Database | Connection, ended: Sequence[Ended], slots_since: datetime
) -> list[int]:
    """Record successes; the places of those that were recorded."""
    alike: defaultdict[tuple[UUID, Kind], list[int]] = defaultdict(list)
    for place, each in enumerate(ended):
        alike[each.worker, each.key.kind].append(place)
    recorded: list[int] = []
    for (worker, kind), places in alike.items():
        those = [ended[place] for place in places]
        starts = [micros(e.started_at) for e in those if e.started_at is not None]
        assert len(starts) == len(those), "what succeeded has started"
        found = await database.fetchval(
            _SQL["succeed"],
            _shared([e.tenant_id for e in those]),
            _shared([e.key.job_id for e in those]),
            kind,
            [micros(e.key.slot) for e in those],
            _shared([e.fence for e in those]),
            starts,
            [micros(e.finished_at) for e in those],
            worker,
            slots_since,
        )
        recorded += [places[number - 1] for number in found or ()]
    return recorded


def _shared(column: list[T]) -> list[T]:
    """One value for all where all are the same: a client takes 0.3 µs to write each (November 2026)."""
    return column[:1] if column[0] == column[-1] and column.count(column[0]) == len(column) else column


def _identity(ended: Ended) -> tuple[int, ExecutionKey, int, UUID]:
    return ended.tenant_id, ended.key, ended.fence, ended.worker
