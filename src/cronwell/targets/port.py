"""What a target is: something that carries out one attempt and says how it ended.

A target honours the call's deadline and its cancellation itself, because only it knows how to stop what it
started: a request is dropped, a process group is signalled, a function is asked first. The worker's own
limit, a little later, is a backstop. Whatever happens inside a target becomes an `Outcome`; the only
exception that leaves `run` is `CancelledError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from cronwell.model.execution import Kind, Result
from cronwell.model.job import Target

END = "the worker ends this attempt"
"""The message with which a worker cancels the task of an attempt for good: nobody waits for it for long."""


@dataclass(slots=True)
class Call:
    """One attempt of one execution, as a target sees it. Nothing changes it; frozen, it would take longer to make."""

    tenant_id: int
    job_id: UUID
    job_name: str
    execution_id: str
    kind: Kind
    slot: datetime
    attempt: int
    fence: int
    target: Target
    payload: Any
    timeout: timedelta
    secret: str
    """The tenant's signing secret, in the `whsec_…` form of Standard Webhooks."""


@dataclass(slots=True)
class Signals:
    """How the worker and a running target speak while the attempt lasts."""

    deadline: float
    """On the monotonic clock (`time.monotonic`): the attempt is `timed_out` from then on."""
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the attempt should stop: a user cancelled it, the worker drains, or its lease ended."""
    report: Callable[[Any], None] = lambda progress: None
    """Keep the latest progress; it is written with the next heartbeat. Safe to call from any thread."""
    cancel_grace: timedelta = timedelta(seconds=10)
    """How long a target may take to stop by itself after `cancelled`, before it is stopped by force."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended."""

    result: Result
    output: str | None = None
    output_truncated: bool = False
    error: str | None = None
    error_kind: str | None = None
    """A short stable word for the error, e.g. `http_status`, `connect`, `exit_code`, `exception`."""
    is_retryable: bool = True
    """False where trying again cannot help, e.g. an address that is refused."""
    retry_after: timedelta | None = None
    """What the target asked us to wait (already capped)."""
    pauses_job: bool = False
    """The target said it is gone for good (HTTP 410)."""


class TargetRunner(Protocol):
    """One kind of target. One instance serves all attempts of that kind in a worker process."""

    async def run(self, call: Call, signals: Signals) -> Outcome:
        """Carry out one attempt and say how it ended."""
        ...

    async def close(self) -> None:
        """Give back connections and threads; no `run` is under way."""
        ...
