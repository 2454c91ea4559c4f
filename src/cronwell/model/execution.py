"""An execution: what one slot became, its states, and the id that is a function of (job, kind, slot)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from uuid import UUID

from cronwell import errors


class Kind(StrEnum):
    """What asked for the execution."""

    SCHEDULED = "scheduled"
    MANUAL = "manual"
    BACKFILL = "backfill"
    DEPENDENCY = "dependency"


class State(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class Result(StrEnum):
    """How one attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    WORKER_LOST = "worker_lost"
    CANCELLED = "cancelled"


CLAIMABLE = frozenset({State.PENDING, State.RETRYING})
OPEN = frozenset({State.PENDING, State.RETRYING, State.RUNNING})
TERMINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SKIPPED})

# Terminal states are final, except that an operator may redrive a dead letter or re-run what was cancelled.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.PENDING: frozenset({State.RUNNING, State.CANCELLED, State.SKIPPED}),
    # Back to pending: a worker hands back what it claimed early but did not start.
    State.RUNNING: frozenset({State.SUCCEEDED, State.FAILED, State.RETRYING, State.CANCELLED, State.PENDING}),
    State.RETRYING: frozenset({State.RUNNING, State.CANCELLED, State.FAILED}),
    State.FAILED: frozenset({State.PENDING}),
    State.CANCELLED: frozenset({State.PENDING}),
    State.SUCCEEDED: frozenset(),
    State.SKIPPED: frozenset(),
}

_LETTERS = {Kind.SCHEDULED: "s", Kind.MANUAL: "m", Kind.BACKFILL: "b", Kind.DEPENDENCY: "d"}
_KINDS = {letter: kind for kind, letter in _LETTERS.items()}
_ID = re.compile(r"([0-9a-f]{32})-([smbd])-(\d{8}T\d{6})(\d{6})?Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class ExecutionKey:
    """The identity of an execution within its tenant."""

    job_id: UUID
    kind: Kind
    slot: datetime

    def __str__(self) -> str:
        """The id that users see. It names the job and the slot, so its row is found without a scan."""
        slot = self.slot.astimezone(UTC)
        fraction = f"{slot.microsecond:06d}" if slot.microsecond else ""
        stamp = (
            f"{slot.year:04d}{slot.month:02d}{slot.day:02d}"
            f"T{slot.hour:02d}{slot.minute:02d}{slot.second:02d}{fraction}Z"
        )
        return f"{self.job_id.hex}-{_LETTERS[self.kind]}-{stamp}"

    @classmethod
    def parse(cls, text: str) -> ExecutionKey:
        """Read an id back; an id that cannot be one of ours is not found."""
        match = _ID.fullmatch(text)
        if match is None:
            raise errors.NotFound(f"no execution has the id {text!r}")
        try:
            slot = datetime.strptime(match[3], "%Y%m%dT%H%M%S").replace(
                tzinfo=UTC, microsecond=int(match[4] or 0)
            )
        except ValueError:
            raise errors.NotFound(f"no execution has the id {text!r}") from None
        return cls(UUID(match[1]), _KINDS[match[2]], slot)
