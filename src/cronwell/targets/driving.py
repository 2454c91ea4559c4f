"""Run an async function in the attempt's own task, and stop it when it must stop.

Most functions that a scheduler calls are short, and many never wait: such a one has ended after its first step and costs
neither a task nor a timer of its own. One that waits is driven on from there, watched by a timer for its deadline and by
the attempt's signals. It is asked first (`ctx.cancelled`), then cancelled, and what goes on after that is abandoned: it is
driven on by a task that nobody waits for.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

from cronwell.model.execution import Result
from cronwell.targets.port import END, Outcome, Signals
from cronwell.targets.registry import Context
from cronwell.targets.stopping import Watch, remaining

Function = Coroutine[Any, Any, Outcome]

FORCED_SECONDS = 1.0
"""For a function to clean up once it has been cancelled by force."""


@dataclass(slots=True)  # not frozen: one is made for each attempt
class Ending:
    """How a function came to its end: by itself, or for a reason; without an outcome where it was cancelled."""

    outcome: Outcome | None
    reason: Result | None = None
    is_abandoned: bool = False


async def drive(
    function: Function, context: Context, signals: Signals, lost: set[asyncio.Task[Outcome]]
) -> Ending:
    """Run `function` to its end or until it is given up; what is given up goes into `lost` until it comes back.

    A cancellation of the attempt's own task reaches the function, and leaves here once that has ended. With the message END
    it leaves also when the function has had its time; without, it may be the function's own, from `asyncio.timeout` say.
    """
    try:
        awaited = function.send(None)
    except StopIteration as ended:
        return Ending(ended.value, Result.CANCELLED if context.was_told else None)
    except asyncio.CancelledError:
        return Ending(None)
    except GeneratorExit as error:
        raise RuntimeError("the function raised GeneratorExit") from error
    driver = _Driver(function, context, signals)
    watch = Watch(signals, driver.stop)
    try:
        outcome = await driver.go_on(awaited)
    except asyncio.CancelledError:
        if driver.is_cancelled_from_outside:
            raise
        return Ending(None, driver.reason)
    except _GivenUp as given_up:
        task = asyncio.get_running_loop().create_task(_go_on_alone(function, given_up.awaited))
        lost.add(task)
        task.add_done_callback(lost.discard)
        if driver.is_ending or driver.is_cancelled_from_outside:
            raise asyncio.CancelledError from None
        return Ending(None, driver.reason, is_abandoned=True)
    except GeneratorExit as error:
        if driver.is_dropped:
            raise
        raise RuntimeError("the function raised GeneratorExit") from error
    finally:
        watch.close()
        driver.close()
    return Ending(outcome, driver.reason or (Result.CANCELLED if context.was_told else None))


class _GivenUp(Exception):
    """The function did not end although it was cancelled twice; it waits for `awaited`."""

    def __init__(self, awaited: Any) -> None:
        super().__init__()
        self.awaited = awaited


class _Driver:
    """Drives one function that waits, and decides what becomes of cancellations."""

    __slots__ = (
        "_before", "_cancels", "_context", "_function", "_is_closed", "_is_given_up", "_loop", "_signals", "_task",
        "_timer", "is_dropped", "is_ending", "reason",
    )  # fmt: skip

    def __init__(self, function: Function, context: Context, signals: Signals) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._function = function
        self._context = context
        self._signals = signals
        self._timer: asyncio.TimerHandle | None = None
        self._before = task.cancelling()
        self._cancels = 0
        self._is_given_up = False
        self.is_ending = False
        self.is_dropped = False
        self._is_closed = False
        self.reason: Result | None = None

    @property
    def is_cancelled_from_outside(self) -> bool:
        """Whether somebody else than this driver has cancelled the task, and the function did not take it as its own."""
        return self._task.cancelling() - self._before > self._cancels

    def stop(self, reason: Result) -> None:
        """The time is up, or somebody cancelled the attempt."""
        # One turn later: a loop that was held up may hear of the deadline before what ended long ahead of it.
        self._loop.call_soon(self._stop, reason)

    def close(self) -> None:
        """The function has ended or was given up: nothing more is asked of it."""
        if self._timer is not None:
            self._timer.cancel()
        self._is_closed = True
        for _ in range(self._cancels):
            self._task.uncancel()

    @types.coroutine
    def go_on(self, awaited: Any) -> Generator[Any, Any, Outcome]:
        """Wait for what the function waits for, step by step, to its end."""
        while True:
            try:
                sent = yield from self._wait_for(awaited)
            except asyncio.CancelledError as cancelled:
                self._note_end(cancelled)
                try:
                    awaited = self._function.throw(cancelled)
                except StopIteration as ended:
                    return _outcome(ended)
                if self._is_given_up:
                    raise _GivenUp(awaited) from None
            except GeneratorExit:
                self.is_dropped = True
                self._function.close()
                raise
            except _GivenUp:
                raise
            except BaseException as error:  # noqa: BLE001  # what it waited for failed: that is the function's to handle
                try:
                    awaited = self._function.throw(error)
                except StopIteration as ended:
                    return _outcome(ended)
            else:
                try:
                    awaited = self._function.send(sent)
                except StopIteration as ended:
                    return _outcome(ended)

    def _wait_for(self, awaited: Any) -> Generator[Any, Any, Any]:
        """Wait as the task itself would, but stay able to leave.

        A cancellation ends a plain future at once. A task (or a group of them) may swallow it, and who waits for that task
        would not hear of it: we wait beside it, and pass cancellations on.
        """
        if not isinstance(awaited, asyncio.Future) or type(awaited) is asyncio.Future:
            return (yield awaited)
        awaited._asyncio_future_blocking = False
        while True:
            gate = self._loop.create_future()
            opened = partial(_open, gate)
            awaited.add_done_callback(opened)
            try:
                yield from gate
            except asyncio.CancelledError as cancelled:
                awaited.remove_done_callback(opened)
                if self._is_given_up:
                    awaited.cancel()
                    awaited._asyncio_future_blocking = True
                    raise _GivenUp(awaited) from None
                self._note_end(cancelled)
                if not awaited.cancel(*cancelled.args):
                    raise
            else:
                return None

    def _note_end(self, cancelled: asyncio.CancelledError) -> None:
        if END in cancelled.args and not self.is_ending:
            self.is_ending = True
            self._context.stop()
            self._give_up_after(FORCED_SECONDS)

    def _stop(self, reason: Result) -> None:
        if self._is_closed or self.is_ending:
            return
        self.reason = reason
        self._context.stop()
        grace = self._signals.cancel_grace.total_seconds()
        if reason is Result.CANCELLED:
            self._timer = self._loop.call_later(
                min(grace, remaining(self._signals)), self._force, FORCED_SECONDS
            )
        else:
            self._force(grace)

    def _force(self, grace: float) -> None:
        self._cancel()
        self._give_up_after(grace)

    def _give_up_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        self._is_given_up = True
        self._cancel()

    def _cancel(self) -> None:
        self._cancels += 1
        self._task.cancel()


def _open(gate: asyncio.Future[None], _: object) -> None:
    if not gate.done():
        gate.set_result(None)


def _outcome(ended: StopIteration) -> Outcome:
    outcome: Outcome = ended.value
    return outcome


@types.coroutine
def _going_on(function: Function, awaited: Any) -> Generator[Any, Any, Outcome]:
    while True:
        try:
            sent = yield awaited
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is the function's
            step: Callable[[Any], Any] = function.throw
            given: Any = error
        else:
            step, given = function.send, sent
        try:
            awaited = step(given)
        except StopIteration as ended:
            return _outcome(ended)


async def _go_on_alone(function: Function, awaited: Any) -> Outcome:
    """Let a function that was given up go on; nobody waits for it."""
    return await _going_on(function, awaited)
