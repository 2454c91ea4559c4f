"""What whoever was called can do about an attempt later: end it, tell of it, leave a checkpoint.

An attempt that ends by its callback ends as any other: by the job's retry policy, in the same columns, counted alike. The fence
decides: once it has passed on, or the attempt has been timed out or cancelled, nothing that is told changes anything.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import orjson

from cronwell import errors, telemetry
from cronwell.config import Settings
from cronwell.control.concealing import hidden_from
from cronwell.control.views import Moment, View
from cronwell.model import checkpoint as checkpoints
from cronwell.model.callback import Token
from cronwell.model.clipping import clip
from cronwell.model.execution import Result, State
from cronwell.model.references import Hidden
from cronwell.model.retry import policy_of, what_follows
from cronwell.runtime.clock import Clock
from cronwell.runtime.keyring import Keyring
from cronwell.store.port import Called, Ended, Store, Told
from cronwell.targets.port import Outcome

FAILED = "callback"
"""The short word for the error of an attempt that was ended by `fail`."""
UNSET: Any = object()
_WITHHELD = "[not kept: it may show secrets of the job, which the API cannot read to look for them]"


class CallbackView(View):
    """Where an execution stands after a callback."""

    execution: str
    attempt: int
    state: State
    callback_until: Moment | None = None
    """When it is timed out unless more is heard of it; null where it has ended."""


class Callbacks:
    """The verbs. One instance serves a process."""

    def __init__(self, store: Store, clock: Clock, settings: Settings, keyring: Keyring) -> None:
        self._store = store
        self._clock = clock
        self._keyring = keyring
        self._output_limit = settings.worker.output_limit

    async def complete(self, token: Token, output: Any = None) -> CallbackView:
        """End an attempt with success. Ending it so once more changes nothing."""
        text, was_cut = self._output(output)
        return await self._end(token, Outcome(Result.SUCCEEDED, output=text, output_truncated=was_cut))

    async def fail(self, token: Token, error: str, *, retry: bool = True, output: Any = None) -> CallbackView:
        """End an attempt with failure; without `retry`, the execution too."""
        text, was_cut = self._output(output)
        outcome = Outcome(
            Result.FAILED,
            output=text,
            output_truncated=was_cut,
            error=clip(error, self._output_limit)[0],
            error_kind=FAILED,
            is_retryable=retry,
        )
        return await self._end(token, outcome)

    async def tell(self, token: Token, *, progress: Any = UNSET, checkpoint: Any = UNSET) -> CallbackView:
        """Keep what an attempt under way tells; that it tells anything is its heartbeat."""
        written = None if progress is UNSET else checkpoints.write(progress, "progress")
        left = None if checkpoint is UNSET else checkpoints.write(checkpoint)
        if (written or left) and (hidden := await self._hidden(token)) is not None:
            written, left = (each and hidden.mask_json(each) for each in (written, left))
        told = Told(token.tenant_id, token.key, token.fence, token.worker, progress=written, checkpoint=left)
        [is_kept] = await self._store.hear([told], self._clock.now())
        called = await self._store.get_called(token.tenant_id, token.key)
        if called is None or not is_kept:
            raise await self._refusal(token, called)
        return _view(called, called.state)

    async def _end(self, token: Token, outcome: Outcome) -> CallbackView:
        while True:
            called = await self._store.get_called(token.tenant_id, token.key)
            if called is None or not called.is_held(token.fence, token.worker):
                if called is not None and await self._is_repeated(token, called, outcome):
                    return _view(called, called.state)
                raise await self._refusal(token, called)
            began = time.perf_counter()
            ended = conclude(called, await self._concealed(called, outcome), self._clock.now())
            [state] = await self._store.complete([ended])
            # Where it was refused, somebody has ended it since we looked.
            if state is not None:
                announce([(called, ended)], [state], timedelta(seconds=time.perf_counter() - began))
                return _view(called, state)

    async def _concealed(self, called: Called, outcome: Outcome) -> Outcome:
        """The outcome without values of secrets; an attempt ends although nobody can look for them."""
        if outcome.output is None and outcome.error is None:
            return outcome
        try:
            hidden = await hidden_from(self._store, self._keyring, called)
        except errors.SecretsLocked:
            output, error = (each and _WITHHELD for each in (outcome.output, outcome.error))
            return dataclasses.replace(outcome, output=output, error=error)
        return outcome if hidden is None else outcome.concealed(hidden)

    async def _hidden(self, token: Token) -> Hidden | None:
        """What an attempt under way may not show by what it tells."""
        called = await self._store.get_called(token.tenant_id, token.key)
        try:
            return None if called is None else await hidden_from(self._store, self._keyring, called)
        except errors.SecretsLocked:
            # It can be told again once the API has its keys.
            raise errors.StoreUnavailable("what is told cannot be looked through for secrets") from None

    async def _is_repeated(self, token: Token, called: Called, outcome: Outcome) -> bool:
        """Whether the attempt has ended in just this way already: whoever calls may not have had the answer."""
        if outcome.result is Result.SUCCEEDED:
            return (called.state, called.fence, called.worker) == (State.SUCCEEDED, token.fence, token.worker)
        attempts = await self._store.list_attempts(token.tenant_id, token.key)
        return any(
            (each.fence, each.worker, each.result, each.error_kind)
            == (token.fence, token.worker, Result.FAILED, FAILED)
            for each in attempts
        )

    async def _refusal(self, token: Token, called: Called | None) -> errors.IllegalState:
        telemetry.told_too_late("callback", execution=str(token.key), fence=token.fence)
        said = f"this attempt of execution {token.key} (fence {token.fence}) is over"
        if called is None:
            return errors.IllegalState(f"{said}: its history has been dropped by retention")
        attempts = await self._store.list_attempts(token.tenant_id, token.key)
        how = next((str(each.result) for each in attempts if each.fence == token.fence), None)
        if how is not None:
            said += f": it was recorded as {how}"
        elif called.state is State.SUCCEEDED and called.fence == token.fence:
            said += ": it was recorded as succeeded"
        if called.fence > token.fence:
            return errors.IllegalState(
                f"{said}, and another attempt (fence {called.fence}) has begun; stop working on this one"
            )
        return errors.IllegalState(f"{said}, and the execution is {called.state}; stop working on it")

    def _output(self, output: Any) -> tuple[str | None, bool]:
        if output is None:
            return None, False
        return clip(output if isinstance(output, str) else orjson.dumps(output), self._output_limit)


def conclude(called: Called, outcome: Outcome, now: datetime) -> Ended:
    """What an execution that waits for its callback becomes after this outcome."""
    assert called.worker is not None, "somebody has delivered it"
    state, delay = what_follows(
        policy_of(called.spec),
        outcome.result,
        called.attempt,
        is_cancelled=called.is_cancelled,
        is_retryable=outcome.is_retryable,
        random=random.random(),
    )
    return Ended(
        tenant_id=called.tenant_id,
        key=called.key,
        fence=called.fence,
        worker=called.worker,
        state=state,
        result=outcome.result,
        started_at=called.started_at or now,
        finished_at=now,
        ready_at=None if delay is None else now + delay,
        error_kind=outcome.error_kind,
        error=outcome.error,
        output=outcome.output,
        output_truncated=outcome.output_truncated,
    )


def announce(ends: Sequence[tuple[Called, Ended]], states: Sequence[State | None], took: timedelta) -> None:
    """Tell of attempts that have ended without a worker as workers tell of theirs."""
    kept = [(each, state) for each, state in zip(ends, states, strict=True) if state is not None]
    counts = Counter(state.value for _, state in kept)
    telemetry.completed(states=dict(counts), stale=len(ends) - len(kept), took=took)
    for (called, ended), state in kept:
        ran = ended.finished_at - (ended.started_at or ended.finished_at)
        telemetry.attempts_ended("http", ended.result.value, [ran.total_seconds()])
        if ended.result is not Result.SUCCEEDED:
            telemetry.attempt_failed(
                execution=called.key,
                job=called.job_name,
                result=ended.result.value,
                attempt=called.attempt,
                took=ran,
                error=ended.error,
            )
        if state is State.FAILED:
            telemetry.died(
                execution=str(called.key), job=called.job_name, attempts=called.attempt, error=ended.error
            )


def _view(called: Called, state: State) -> CallbackView:
    return CallbackView(
        execution=str(called.key),
        attempt=called.attempt,
        state=state,
        callback_until=called.until if state is State.RUNNING else None,
    )
