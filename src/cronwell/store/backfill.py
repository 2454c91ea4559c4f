"""A backfill as it goes into the store and comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

BackfillState = Literal["running", "paused", "finished", "cancelled"]
ByDefinition = Literal["then", "current"]
"""Whether a slot runs by the definition of its time or by the present one."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """Past slots that somebody asked to be run, and how far that has come."""

    tenant_id: int
    id: UUID
    job_id: UUID
    state: BackfillState
    from_slot: datetime
    to_slot: datetime
    """The first moment that is no part of it."""
    definition: ByDefinition
    is_newest_first: bool
    rate: float
    """Executions a second, at most."""
    concurrency: int
    spans: str
    """Which slots they are: `model.backfill.load` reads it."""
    slots: int
    reached: datetime | None
    """The last slot that was staged or passed over."""
    next_ready_at: datetime
    """When the next execution may start, by the rate."""
    staged: int
    passed_over: int
    succeeded: int
    failed: int
    unfinished: tuple[datetime, ...]
    """The slots that are staged and have not ended."""
    payload: str | None
    note: str | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    job_name: str
    job_state: str
    job_revision: int
    job_pool: str
    job_group: tuple[str, int] | None = None
    """The name of its group, and how many of it may run."""
