"""An execution: what one slot became, its states, and the id that is a function of (job, kind, slot)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
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

# Terminal states are final, except that an operator may have an execution run again, and what follows it after it: that is
# skipped until it is judged anew, as what was skipped for the sake of others is when these end otherwise.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.PENDING: frozenset({State.RUNNING, State.CANCELLED, State.SKIPPED}),
    # Back to pending: a worker hands back what it claimed early but did not start.
    State.RUNNING: frozenset({State.SUCCEEDED, State.FAILED, State.RETRYING, State.CANCELLED, State.PENDING}),
    State.RETRYING: frozenset({State.RUNNING, State.CANCELLED, State.FAILED}),
    State.FAILED: frozenset({State.PENDING, State.SKIPPED}),
    State.CANCELLED: frozenset({State.PENDING, State.SKIPPED}),
    State.SUCCEEDED: frozenset({State.PENDING, State.SKIPPED}),
    State.SKIPPED: frozenset({State.PENDING}),
}

_LETTERS = {Kind.SCHEDULED: "s", Kind.MANUAL: "m", Kind.BACKFILL: "b", Kind.DEPENDENCY: "d"}
_KINDS = {letter: kind for kind, letter in _LETTERS.items()}
_ID = re.compile(r"([0-9a-f]{32})-([smbd])-(\d{8}T\d{6})(\d{6})?Z", re.ASCII)


@lru_cache(maxsize=4096)
def _stamp(slot: datetime) -> str:
    """A slot in an id; a herd shares it."""
    utc = slot.astimezone(UTC)
    fraction = f"{utc.microsecond:06d}" if utc.microsecond else ""
    return f"{utc.year:04d}{utc.month:02d}{utc.day:02d}T{utc.hour:02d}{utc.minute:02d}{utc.second:02d}{fraction}Z"


@dataclass(slots=True)  # not frozen, as that makes making one several times as long; nothing changes it
class ExecutionKey:
    """The identity of an execution within its tenant."""

    job_id: UUID
    kind: Kind
    slot: datetime

    def __str__(self) -> str:
        """The id that users see. It names the job and the slot, so its row is found without a scan."""
        return f"{self.job_id.hex}-{_LETTERS[self.kind]}-{_stamp(self.slot)}"

    def __hash__(self) -> int:
        # Without the kind, whose hash is computed in Python: it hardly ever tells two keys apart.
        return hash((self.job_id.int, self.slot))

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
