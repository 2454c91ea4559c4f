"""How a target notices that its attempt must stop: the deadline has passed, or it was cancelled.

A worker runs thousands of short attempts a second, so watching one costs neither a task nor a timer of its own.
`Interrupt` stops code that awaits in the attempt's own task; `ended_or_stopped` waits for something that runs
elsewhere: a task, a thread, a process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from cronwell import durations
from cronwell.model.execution import Result
from cronwell.targets.port import Call, Outcome, Signals


class Watch:
    """Call `on_stop` once, from the event loop, when the attempt must stop; never after `close`."""

    __slots__ = ("_on_stop", "_signals", "_strikes_at")

    def __init__(self, signals: Signals, on_stop: Callable[[Result], object]) -> None:
        self._on_stop: Callable[[Result], object] | None = on_stop
        self._signals = signals
        signals.cancelled.listen(self)
        self._strikes_at = signals.deadlines.add(signals.deadline, self)

    def close(self) -> None:
        """Stop watching."""
        self._on_stop = None
        self._signals.deadlines.remove(self._strikes_at, self)
        self._signals.cancelled.ignore(self)

    def __call__(self) -> None:
        """The attempt was cancelled."""
        self._stop(Result.CANCELLED)

    def expire(self) -> None:
        """Its time is up."""
        self._stop(Result.TIMED_OUT)

    def _stop(self, reason: Result) -> None:
        on_stop, self._on_stop = self._on_stop, None
        if on_stop is not None:
            on_stop(reason)


class Interrupt:
    """Stop the code in a `with` block, by cancelling its task, when the attempt must stop.

    The block then ends quietly and `reason` says why. A cancellation that comes from outside passes through,
    also when both come at once.
    """

    __slots__ = ("_cancelling", "_is_over", "_signals", "_strikes_at", "_task", "reason")

    _strikes_at: int
    _task: asyncio.Task[Any]

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._is_over = False
        self.reason: Result | None = None

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        signals = self._signals
        signals.cancelled.listen(self)
        self._strikes_at = signals.deadlines.add(signals.deadline, self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._is_over = True
        signals = self._signals
        signals.deadlines.remove(self._strikes_at, self)
        signals.cancelled.ignore(self)
        if self.reason is None:
            return False
        is_ours_alone = self._task.uncancel() <= self._cancelling
        return is_ours_alone and kind is asyncio.CancelledError

    def __call__(self) -> None:
        """The attempt was cancelled."""
        self._stop(Result.CANCELLED)

    def expire(self) -> None:
        """Its time is up."""
        self._stop(Result.TIMED_OUT)

    def _stop(self, reason: Result) -> None:
        # One turn later: a loop that was held up may hear of the deadline before what ended long ahead of it.
        asyncio.get_running_loop().call_soon(self._strike, reason)

    def _strike(self, reason: Result) -> None:
        if not self._is_over and self.reason is None:
            self.reason = reason
            self._task.cancel()


def settled(interrupt: Interrupt, outcome: Outcome | None, call: Call) -> Outcome:
    """What came of code that ran under an interrupt, which has an outcome unless it was stopped.

    A success that was complete when the deadline struck still counts; an error then is the stop's.
    """
    if interrupt.reason is not None and (outcome is None or outcome.result is not Result.SUCCEEDED):
        return stopped_outcome(interrupt.reason, call)
    assert outcome is not None
    return outcome


async def ended_or_stopped(ending: asyncio.Future[Any], signals: Signals) -> Result | None:
    """Wait for `ending` to be done (None) or for the attempt to have to stop (why), whichever is first."""
    if ending.done():
        return None
    loop = asyncio.get_running_loop()
    first: asyncio.Future[Result | None] = loop.create_future()

    def stopped(reason: Result) -> None:
        # One turn later: a loop that was held up may hear of the deadline before what ended long ahead of it.
        loop.call_soon(settle, reason)

    def settle(reason: Result) -> None:
        if not first.done():
            first.set_result(None if ending.done() else reason)

    def ended(_: asyncio.Future[Any]) -> None:
        if not first.done():
            first.set_result(None)

    watch = Watch(signals, stopped)
    ending.add_done_callback(ended)
    try:
        return await first
    finally:
        ending.remove_done_callback(ended)
        watch.close()


def stopped_before_start(call: Call, signals: Signals) -> Outcome | None:
    """The outcome of an attempt that must not even begin; None if it may."""
    if signals.cancelled.is_set():
        return Outcome(Result.CANCELLED, error="cancelled before it began", error_kind="cancelled")
    if remaining(signals) <= 0:
        return stopped_outcome(Result.TIMED_OUT, call)
    return None


def stopped_outcome(
    reason: Result,
    call: Call,
    *,
    detail: str = "",
    output: str | None = None,
    output_truncated: bool = False,
) -> Outcome:
    """The outcome of an attempt that was stopped."""
    if reason is Result.TIMED_OUT:
        error, kind = f"did not finish within its timeout of {durations.write(call.timeout)}", "timeout"
    else:
        error, kind = "cancelled while it was running", "cancelled"
    return Outcome(
        reason,
        output=output,
        output_truncated=output_truncated,
        error=error + detail,
        error_kind=kind,
    )


def remaining(signals: Signals) -> float:
    """Seconds until the deadline, never negative."""
    return max(0.0, signals.deadline - time.monotonic())
