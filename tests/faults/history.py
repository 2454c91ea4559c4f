"""What the three witnesses say, as plain records. The checker reads these and nothing else.

Moments are seconds of the database's clock (as UNIX time); slots are datetimes in UTC. A *process* is one life of one
node, such as `worker-2#3`: what was killed and started again is another process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

Outcome = Literal["ok", "failed", "unknown"]
Key = tuple[str, str, datetime]
"""Job id (hex), kind, slot."""

TERMINAL = frozenset({"succeeded", "failed", "cancelled", "skipped"})
OPEN = frozenset({"pending", "running", "retrying"})
LETTERS = {"scheduled": "s", "manual": "m", "backfill": "b", "dependency": "d"}


# --- the client


@dataclass(frozen=True, slots=True)
class Try:
    """One HTTP request: when it went out, when the client knew or gave up, and what it knew then."""

    invoked: float
    ended: float
    outcome: Outcome
    status: int = 0
    answer: Mapping[str, Any] = field(default_factory=dict)
    api: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What the client wanted, with every try of it; all tries carry the same Idempotency-Key."""

    verb: str
    job: str
    tries: tuple[Try, ...]
    body: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""

    @property
    def outcome(self) -> Outcome:
        outcomes = {each.outcome for each in self.tries}
        return "ok" if "ok" in outcomes else "unknown" if "unknown" in outcomes else "failed"

    @property
    def invoked(self) -> float:
        return self.tries[0].invoked

    @property
    def ended(self) -> float:
        """When it was acknowledged, or the client gave up."""
        return next((each.ended for each in self.tries if each.outcome == "ok"), self.tries[-1].ended)

    @property
    def answer(self) -> Mapping[str, Any]:
        return next((each.answer for each in self.tries if each.outcome == "ok"), {})


# --- the receiver


@dataclass(frozen=True, slots=True)
class Body:
    """One delivery that came: a body of work, from its arrival to its end."""

    execution: str
    """The webhook-id."""
    job: str
    slot: datetime
    attempt: int
    fence: int
    arrived: float
    ended: float | None = None
    """When the receiver was done, or saw that the caller had gone; None: neither."""
    status: int | None = None
    """What was answered; None: the caller had gone before, or nothing was."""
    is_verified: bool = True
    path: str = "/ok"

    @property
    def is_success(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


# --- the broker


@dataclass(frozen=True, slots=True)
class Message:
    """One message that the broker has taken, as it was written."""

    execution: str
    job: str
    slot: str
    attempt: int
    fence: int
    at: float
    """When the broker took it, cut to a millisecond."""


# --- the database


@dataclass(frozen=True, slots=True)
class Change:
    """What every logged change has. `seq` orders the changes of one row; `committed` orders transactions."""

    seq: int
    xid: int
    at: float
    committed: float
    process: str


@dataclass(frozen=True, slots=True)
class JobChange(Change):
    job: str
    name: str
    state: str
    revision: int
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CursorChange(Change):
    job: str
    shard: int
    op: str
    old_slot: datetime | None
    new_slot: datetime | None
    old_revision: int | None
    revision: int | None
    was_held: bool = False
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class ExecutionChange(Change):
    key: Key
    op: str
    old_state: str | None
    state: str | None
    old_fence: int
    fence: int
    attempt: int = 0
    worker: str | None = None
    reason: str | None = None
    ready_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SkipChange(Change):
    job: str
    reason: str
    from_slot: datetime
    to_slot: datetime


@dataclass(frozen=True, slots=True)
class ShardChange(Change):
    shard: int
    old_epoch: int
    epoch: int
    owner: str | None


@dataclass(frozen=True, slots=True)
class WorkerChange(Change):
    worker: str
    state: str
    lease_until: float


@dataclass(frozen=True, slots=True)
class Row:
    """An execution as the database has it at the end."""

    key: Key
    state: str
    fence: int
    attempt: int
    reason: str | None = None
    worker: str | None = None
    started_at: float | None = None
    finished_at: float | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """An attempt that did not succeed, as the database has it at the end."""

    key: Key
    fence: int
    attempt: int
    result: str
    error_kind: str | None = None
    started_at: float | None = None


@dataclass(frozen=True, slots=True)
class End:
    """What the database says when all is healed and quiet."""

    at: float
    executions: tuple[Row, ...] = ()
    attempts: tuple[Lost, ...] = ()
    workers: Mapping[str, float] = field(default_factory=dict)
    """The end of each living worker's lease."""
    marked: Mapping[int, float] = field(default_factory=dict)
    """When each shard's owner last marked it, which owners do every second, whoever coordinates them; 0: never."""
    cursors: Mapping[str, datetime | None] = field(default_factory=dict)


# --- the rig


@dataclass(frozen=True, slots=True)
class Window:
    """A fault, from its injection to its healing."""

    fault: str
    subject: str
    began: float
    healed: float


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings that promises depend on, and how exact the rig's clocks are."""

    grace: float = 10.0
    worker_lease: float = 30.0
    scheduler_lease: float = 4.0
    clock_error: float = 0.005
    answer_slack: float = 0.05
    """From the instant that a change held to the client's note of its acknowledgement, on one machine."""
    late: float = 5.0
    """A start later than this needs a fault, or a machine that stood still."""
    recovery: float = 15.0
    """How long after a fault has healed lateness may be its consequence."""
    stray: float = 90.0
    """How long after it was sent a request without an answer may still take effect."""
    sweep: float = 5.0


@dataclass(frozen=True, slots=True)
class History:
    """A whole run."""

    terms: Terms
    until: float
    """Slots up to here are judged: all faults have healed before, and all that was due has had its time."""
    end: End
    requests: tuple[Request, ...] = ()
    bodies: tuple[Body, ...] = ()
    messages: tuple[Message, ...] = ()
    jobs: tuple[JobChange, ...] = ()
    cursors: tuple[CursorChange, ...] = ()
    executions: tuple[ExecutionChange, ...] = ()
    skips: tuple[SkipChange, ...] = ()
    shards: tuple[ShardChange, ...] = ()
    workers: tuple[WorkerChange, ...] = ()
    windows: tuple[Window, ...] = ()
    stalls: tuple[tuple[float, float], ...] = ()
    zones: Mapping[str, str] = field(default_factory=dict)
    """Zones that kept rules of the rig's own, as POSIX TZ texts."""


def execution_id(key: Key) -> str:
    """The id that an execution must have, worked out anew: a function of job, kind and slot."""
    job, kind, slot = key
    fraction = f"{slot.microsecond:06d}" if slot.microsecond else ""
    return f"{job}-{LETTERS[kind]}-{slot.astimezone(UTC):%Y%m%dT%H%M%S}{fraction}Z"


def key_of(text: str) -> Key | None:
    """The key that an id names; None for a text that is no id."""
    job, _, rest = text.partition("-")
    letter, _, stamp = rest.partition("-")
    kinds = {letter: kind for kind, letter in LETTERS.items()}
    stamp = stamp.removesuffix("Z")
    try:
        slot = datetime.strptime(stamp[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        slot += timedelta(microseconds=int(stamp[15:] or 0))
        return job, kinds[letter], slot
    except (ValueError, KeyError):
        return None


def process_role(process: str) -> str:
    return process.partition("-")[0]
