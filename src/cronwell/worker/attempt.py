"""One attempt of an execution: what is held until its instant, then run, and what its outcome makes of the execution."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from cronwell.model import checkpoint
from cronwell.model.callback import Token
from cronwell.model.execution import ExecutionKey, Result, State
from cronwell.model.references import MARK, Hidden
from cronwell.model.retry import what_follows
from cronwell.model.valve import Valve
from cronwell.store.port import Awaited, Claimed, Ended, Report
from cronwell.targets.port import Call, Outcome, Signals
from cronwell.worker.catalog import KnownJob

AttemptKey = tuple[ExecutionKey, int]
Claim = tuple[int, ExecutionKey, int]
"""An attempt as the store names it: tenant, execution and fence."""

STOPPED = Outcome(
    Result.WORKER_LOST, error="the worker stopped before the attempt had ended", error_kind="worker_stopped"
)
CALLED_OFF = Outcome(
    Result.CANCELLED, error="cancelled before its callback was waited for", error_kind="cancelled"
)


@dataclass(slots=True)
class Entry:
    """Leave to start, which the valve before its target has given; it is told when the attempt is over."""

    valve: Valve
    is_trial: bool


@dataclass(slots=True, eq=False)
class Attempt:
    """An attempt from claim to result. One task owns it at a time."""

    claimed: Claimed
    job: KnownJob
    start_by: float
    """Monotonic time; later than this it must not start without asking the store anew."""
    times_late: int = 0
    is_held: bool = True
    """Waits for its instant."""
    signals: Signals | None = None
    task: asyncio.Task[None] | None = None
    started_at: datetime | None = None
    progress: Any = None
    has_news: bool = False
    """There is something to report: that it has started, or new progress."""
    is_cancelled: bool = False
    """A user asked for it to be cancelled."""
    is_lost: bool = False
    """Its fence is no longer ours: whatever comes of it is not recorded."""
    entry: Entry | None = None
    hidden: Hidden | None = None
    """The values of secrets that it was given, if it was: nothing that is kept of it may show them."""

    @property
    def key(self) -> AttemptKey:
        return self.claimed.key, self.claimed.fence

    @property
    def token(self) -> Token:
        """By what whoever calls back names it."""
        claimed = self.claimed
        return Token(claimed.tenant_id, claimed.key, claimed.fence, claimed.worker)

    @property
    def names_secrets(self) -> bool:
        """Whether there are secrets to put in their places before it starts."""
        own = self.claimed.payload
        return bool(self.job.named) or (own is not None and MARK in own)

    def call(self) -> Call:
        """The attempt as its target sees it."""
        claimed, terms = self.claimed, self.job.terms
        return Call(
            tenant_id=claimed.tenant_id,
            key=claimed.key,
            job_name=self.job.name,
            attempt=claimed.attempt,
            fence=claimed.fence,
            target=terms.target,
            payload=self.job.payload if claimed.payload is None else orjson.loads(claimed.payload),
            timeout=terms.timeout,
            secret=self.job.secret,
            checkpoint=None if claimed.checkpoint is None else json.loads(claimed.checkpoint),
            callback=None if self.job.callback_key is None else self.token.write(self.job.callback_key),
            worker=claimed.worker,
            upstream=claimed.upstream,
            hidden=Hidden(self.job.unshown) if self.job.unshown else None,
        )

    def take_progress(self, progress: Any) -> None:
        """Keep what the target tells, for the next report."""
        self.progress = progress
        self.has_news = True

    def report(self) -> Report | None:
        """What to write with the next heartbeat, if there is anything new."""
        if not self.has_news or self.started_at is None:
            return None
        self.has_news = False
        return Report(
            tenant_id=self.claimed.tenant_id,
            key=self.claimed.key,
            fence=self.claimed.fence,
            worker=self.claimed.worker,
            started_at=self.started_at,
            progress=_as_json(self.progress, self.hidden),
        )

    def conclude(self, outcome: Outcome, finished_at: datetime) -> Ended:
        """What the execution becomes after this outcome."""
        if outcome.result is Result.CANCELLED and not self.is_cancelled:
            # Nobody cancelled the execution: the worker drains, and asked its targets to stop.
            outcome = dataclasses.replace(
                STOPPED, output=outcome.output, output_truncated=outcome.output_truncated
            )
        if outcome.awaits_callback and self.is_cancelled:
            outcome = CALLED_OFF
        state, delay = State.SUCCEEDED, None
        if outcome.result is not Result.SUCCEEDED:
            state, delay = what_follows(
                self.job.terms.retry,
                outcome.result,
                self.claimed.attempt,
                is_cancelled=self.is_cancelled,
                retry_after=outcome.retry_after,
                is_retryable=outcome.is_retryable,
                random=random.random(),
            )
        return Ended(
            tenant_id=self.claimed.tenant_id,
            key=self.claimed.key,
            fence=self.claimed.fence,
            worker=self.claimed.worker,
            state=state,
            result=outcome.result,
            started_at=self.started_at,
            finished_at=finished_at,
            ready_at=None if delay is None else finished_at + delay,
            error_kind=outcome.error_kind,
            error=_storable(outcome.error),
            output=_storable(outcome.output),
            output_truncated=outcome.output_truncated,
            awaits=self._awaited() if outcome.awaits_callback else None,
        )

    def _awaited(self) -> Awaited:
        target = self.job.terms.target.http
        assert target is not None
        assert target.callback is not None
        assert self.started_at is not None
        return Awaited(self.started_at + target.callback.deadline, target.callback.heartbeat)


def _as_json(progress: Any, hidden: Hidden | None) -> str | None:
    if progress is None:
        return None
    try:
        text = orjson.dumps(progress, default=str).decode()
    except (TypeError, ValueError):
        return None
    if hidden is not None:
        text = hidden.mask_json(text)
    return text if len(text) <= checkpoint.LIMIT and "\\u0000" not in text else None


def _storable(text: str | None) -> str | None:
    """Text without what PostgreSQL cannot keep: the null character and halves of surrogate pairs."""
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return text.replace("\0", "").encode("utf-8", "replace").decode()
