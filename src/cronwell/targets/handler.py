"""Call a registered Python function, in the attempt's task or on a thread, and stop it when it must stop.

A function is asked first: `ctx.cancelled` turns true. An async function that has not ended when its time is up
or its grace is over is cancelled; a sync one cannot be. What goes on after that is abandoned: the attempt ends
without it, it is counted, and nothing waits for it any more. Its fence keeps it from doing harm in a store
that looks at fences.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import orjson

from cronwell.model.execution import Result
from cronwell.targets import registry, stopping
from cronwell.targets.driving import FORCED_SECONDS, drive
from cronwell.targets.output import clip, tail
from cronwell.targets.port import Call, Outcome, Signals
from cronwell.targets.registry import (
    REGISTRY,
    Context,
    Handler,
    PermanentFailure,
    Registry,
    RetryAfter,
    handler,
    load,
)
from cronwell.targets.threads import ThreadPool

__all__ = [
    "REGISTRY",
    "Context",
    "HandlerRunner",
    "PermanentFailure",
    "Registry",
    "RetryAfter",
    "handler",
    "load",
]

RETRY_AFTER_CAP = timedelta(days=7)  # as long as the longest `max_delay` of a retry policy
_TRACEBACK_LIMIT = 8192


class HandlerRunner:
    """Carry out handler attempts: async functions in the attempt's task, sync ones on at most `threads` threads."""

    def __init__(self, output_limit: int, *, threads: int = 32, registry: Registry = REGISTRY) -> None:
        self._output_limit = output_limit
        self._registry = registry
        self._threads = ThreadPool(threads, "cronwell-handler")
        self._lost: set[asyncio.Task[Outcome]] = set()

    @property
    def abandoned(self) -> int:
        """Functions that were given up on and have not come back yet."""
        return self._threads.abandoned + len(self._lost)

    async def run(self, call: Call, signals: Signals) -> Outcome:
        """Call the function and say how it ended."""
        target = call.target.handler
        assert target is not None
        found = self._registry.get(target.name)
        if found is None:
            # Retryable: another worker of the pool, or this one after a deploy, may have it.
            said = self._registry.describe_missing(target.name)
            return Outcome(Result.FAILED, error=said, error_kind="unknown_handler")
        if (stopped := stopping.stopped_before_start(call, signals)) is not None:
            return stopped
        context = Context(call, signals)
        if found.is_async:
            ending = await drive(self._await(found, context), context, signals, self._lost)
            return _judge(call, ending.reason, ending.outcome, is_abandoned=ending.is_abandoned)
        return await self._run_thread(found, context, call, signals)

    async def close(self) -> None:
        """End the threads; ask abandoned tasks once more, then leave them."""
        if self._lost:
            for task in self._lost:
                task.cancel()
            await asyncio.wait(set(self._lost), timeout=FORCED_SECONDS)
        await self._threads.close()

    async def _run_thread(self, found: Handler, context: Context, call: Call, signals: Signals) -> Outcome:
        ticket = self._threads.submit(partial(self._call, found, context))
        reason: Result | None = None
        ended: Outcome | None = None
        try:
            reason = await _ended_or_stopped(ticket.future, signals, context)
            if reason is not None:
                context.stop()
                if self._threads.withdraw(ticket):
                    return stopping.stopped_outcome(reason, call, detail=" (no thread was free to begin it)")
                await asyncio.wait({ticket.future}, timeout=signals.cancel_grace.total_seconds())
            if ticket.future.done():
                ended = ticket.future.result()
        finally:
            if ended is None:
                context.stop()
                self._threads.give_up(ticket)
        return _judge(call, reason, ended, is_abandoned=ended is None)

    async def _await(self, found: Handler, context: Context) -> Outcome:
        try:
            value = await found(context)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        # SystemExit and KeyboardInterrupt too: it is the function that wants to end, not the worker.
        except BaseException as error:  # noqa: BLE001  a handler may raise anything
            return _failed(error)
        return self._succeeded(value)

    def _call(self, found: Handler, context: Context) -> Outcome:
        """Runs on a thread."""
        try:
            value = found(context)
            if inspect.iscoroutine(value):
                value.close()
                raise TypeError(f"{found.place} returned a coroutine; declare it with `async def`")
        except BaseException as error:  # noqa: BLE001  a handler may raise anything
            return _failed(error)
        return self._succeeded(value)

    def _succeeded(self, value: Any) -> Outcome:
        if value is None:
            return _NOTHING
        text, was_cut = clip(value if isinstance(value, (str, bytes)) else _write(value), self._output_limit)
        return Outcome(Result.SUCCEEDED, output=text, output_truncated=was_cut)


_NOTHING = Outcome(Result.SUCCEEDED)


async def _ended_or_stopped(ending: asyncio.Future[Any], signals: Signals, context: Context) -> Result | None:
    """Why the function must stop; also where it saw that before we did, and has ended already."""
    reason = await stopping.ended_or_stopped(ending, signals)
    return Result.CANCELLED if reason is None and context.was_told else reason


def _judge(call: Call, reason: Result | None, ended: Outcome | None, *, is_abandoned: bool) -> Outcome:
    """Say how an attempt ended that was stopped for `reason`, or that ended by itself."""
    if reason is None:
        return ended or _CANCELLED_ITSELF
    if ended is None:
        detail = (
            "; it did not stop when asked, was abandoned and may still be running" if is_abandoned else ""
        )
        return stopping.stopped_outcome(reason, call, detail=detail)
    return stopping.stopped_outcome(
        reason,
        call,
        detail=f"; then it raised {ended.error.partition(chr(10))[0]}" if ended.error else "",
        output=ended.output,
        output_truncated=ended.output_truncated,
    )


_CANCELLED_ITSELF = Outcome(
    Result.FAILED,
    error="CancelledError: the function was cancelled from within, not by the worker",
    error_kind="exception",
)


def _failed(error: BaseException) -> Outcome:
    """The outcome of a function that raised."""
    name = type(error).__name__
    message = clip(_text(error), 2000)[0]
    said = f"{name}: {message}" if message else name
    if isinstance(error, PermanentFailure):
        return Outcome(Result.FAILED, error=said, error_kind="permanent", is_retryable=False)
    if isinstance(error, RetryAfter):
        wait = min(error.delay, RETRY_AFTER_CAP)
        return Outcome(Result.FAILED, error=message, error_kind="retry_after", retry_after=wait)
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in _OWN_FILES:
        frames = frames.tb_next
    trace = "".join(traceback.format_exception(type(error), error, frames))
    room = _TRACEBACK_LIMIT - len(said.encode())
    return Outcome(Result.FAILED, error=f"{said}\n\n{tail(trace, room)}", error_kind="exception")


_OWN_FILES = frozenset({__file__, registry.__file__})


def _write(value: Any) -> bytes | str:
    """Write what a function returned: as JSON, or, where that cannot be, as Python shows it."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        return _text(value, repr)


def _text(value: Any, write: Callable[[Any], str] = str) -> str:
    try:
        return write(value)
    except Exception:  # noqa: BLE001  a user's own __str__ or __repr__
        return f"<{type(value).__name__} that cannot be shown>"
