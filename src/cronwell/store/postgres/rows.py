"""Rows of the database as the store's types, and lists of those types as the columns that statements take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from cronwell.model.execution import ExecutionKey, Kind, Result, State
from cronwell.model.job import Queueing
from cronwell.store.port import (
    Attempt,
    Claimed,
    Cursor,
    Execution,
    Job,
    Move,
    NewExecution,
    Orphan,
    Touched,
    Worker,
)

Row = asyncpg.Record


# A look-up in a dict takes 0.05 µs and a call of the enum 0.7 (November 2026), and rows come by the thousand.
_KINDS = {kind.value: kind for kind in Kind}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
STATES = {state.value: state for state in State}
TIERS = 3
"""How many there are. An execution that has a gate stands so many above its own."""
QUEUEING: dict[Queueing | None, int | None] = {
    None: None,
    "queue_one": 1,
    "queue_all": 2,
    "cancel_running": 3,
}
"""How the table has what becomes of a slot beyond its job's limit."""


def key_of(row: Row) -> ExecutionKey:
    return ExecutionKey(row["job_id"], _KINDS[row["kind"]], row["slot"])


def waiting_of(new: Move | NewExecution) -> tuple[int | None, str | None, int | None, bool]:
    """What executions wait for, or have waiting for them, as the columns queueing, gate, gate_limit and is_followed."""
    group, limit = new.group or (None, None)
    return QUEUEING[new.queueing], group, limit, new.is_followed


def job_of(row: Row) -> Job:
    return Job(
        tenant_id=row["tenant_id"],
        id=row["id"],
        name=row["name"],
        state=row["state"],
        revision=row["revision"],
        pool=row["pool"],
        target_kind=row["target_kind"],
        spec=row["spec"],
        pause_note=row["pause_note"],
        paused_at=row["paused_at"],
        paused_until=row["paused_until"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        deleted_at=row["deleted_at"],
        next_slot=row["next_slot"],
        plan=row["plan"],
        staged_at=row["staged_at"],
        runs_left=row["runs_left"],
        defined_at=row["defined_at"] or row["updated_at"],
        held_until=row["held_until"],
        decided=tuple(zip(row.get("decided_slots") or (), row.get("decided_times") or (), strict=True)),
    )


def cursor_of(row: Row) -> Cursor:
    return Cursor(*row)


def claimed_of(rows: Iterable[Row], worker: UUID) -> list[Claimed]:
    """What was claimed; by place, because there are many thousands a second."""
    return [
        Claimed(
            tenant_id,
            ExecutionKey(job_id, _KINDS[kind], slot),
            slot if ready_at is None else ready_at,
            attempt,
            fence,
            worker,
            revision,
            priority % TIERS,
            payload,
            gate,
            is_awaited,
            checkpoint,
            held_until,
        )
        for (
            tenant_id,
            job_id,
            kind,
            slot,
            ready_at,
            attempt,
            fence,
            revision,
            priority,
            payload,
            gate,
            is_awaited,
            checkpoint,
            held_until,
        ) in rows
    ]


def touched_of(row: Row) -> Touched:
    return Touched(STATES[row["state"]], row["starts_at"], row["worker"])


def execution_of(row: Row) -> Execution:
    return Execution(
        tenant_id=row["tenant_id"],
        key=key_of(row),
        job_name=row["job_name"],
        state=STATES[row["state"]],
        ready_at=row["ready_at"],
        fence=row["fence"],
        attempt=row["attempt"],
        revision=row["revision"],
        priority=row["priority"] % TIERS,
        pool=row["pool"],
        worker=row["worker"],
        claimed_at=row["claimed_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        cancel_requested_at=row["cancel_requested_at"],
        reason=row["reason"],
        error_kind=row["error_kind"],
        error=row["error"],
        output=row["output"],
        output_truncated=row["output_truncated"],
        payload=row["payload"],
        progress=row["progress"],
        running_limit=row["running_limit"],
        checkpoint=row["checkpoint"],
        callback_until=row["callback_until"],
        held_until=row["held_until"],
        held_by=row["held_by"],
    )


def attempt_of(row: Row) -> Attempt:
    return Attempt(
        attempt=row["attempt"],
        fence=row["fence"],
        result=Result(row["result"]),
        worker=row["worker"],
        ready_at=row["ready_at"],
        claimed_at=row["claimed_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        error_kind=row["error_kind"],
        error=row["error"],
        output=row["output"],
        output_truncated=row["output_truncated"],
    )


def orphan_of(row: Row) -> Orphan:
    return Orphan(
        tenant_id=row["tenant_id"],
        key=key_of(row),
        fence=row["fence"],
        attempt=row["attempt"],
        started_at=row["started_at"],
        worker=row["worker"],
        is_cancelled=row["cancel_requested_at"] is not None,
        spec=row["spec"],
    )


def worker_of(row: Row) -> Worker:
    return Worker(
        id=row["id"],
        name=row["name"],
        state=row["state"],
        version=row["version"],
        pools=tuple(row["pools"]),
        handlers=tuple(row["handlers"]),
        concurrency=row["concurrency"],
        running=row["running"],
        started_at=row["started_at"],
        heartbeat_at=row["heartbeat_at"],
        lease_until=row["lease_until"],
        node=row["node"],
    )


def micros(moment: datetime) -> int:
    """A moment as microseconds since 1970: written in a third of the time that a timestamp takes."""
    return (moment - _EPOCH) // _MICROSECOND


def columns(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    """Turn rows into columns; `width` is needed because no rows still have columns."""
    turned = [list(column) for column in zip(*rows, strict=True)]
    return turned or [[] for _ in range(width)]


def changed_by(tag: str) -> int:
    """How many rows a statement changed, by its command tag."""
    return int(tag.rpartition(" ")[2])
