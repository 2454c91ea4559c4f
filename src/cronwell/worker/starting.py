"""Attempts take their first step one after the other in one task, which becomes the task of the first that has to wait.

Most attempts of short handlers end with their first step: a task for each would be a fifth of what they cost. Each runs in a
context of its own, as in a task of its own: what it sets there no other sees.
"""

from __future__ import annotations

import asyncio
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

Run = Coroutine[Any, Any, None]


class Startable(Protocol):
    is_lost: bool
    task: asyncio.Task[None] | None
    """Its own from when it has to wait."""


StartableT = TypeVar("StartableT", bound=Startable)


class Starting(Generic[StartableT]):
    """Those that are about to start."""

    def __init__(self, run: Callable[[StartableT], Run]) -> None:
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[StartableT] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, attempt: StartableT) -> None:
        """Start an attempt with the loop's next turn."""
        self._waiting.append(attempt)
        if self._task is None:
            self._task = self._loop.create_task(self._start())

    async def _start(self) -> None:
        task = self._task
        try:
            while self._waiting:
                attempt = self._waiting.popleft()
                if attempt.is_lost:
                    continue
                attempt.task = task
                run, context = self._run(attempt), copy_context()
                try:
                    awaited = context.run(run.send, None)
                except StopIteration:
                    continue
                self._hand_over()
                await _go_on(run, context, awaited)
                return
        finally:
            if self._task is task:
                self._hand_over()

    def _hand_over(self) -> None:
        """Those that are left get another task."""
        self._task = self._loop.create_task(self._start()) if self._waiting else None


@types.coroutine
def _go_on(run: Run, context: Context, awaited: Any) -> Generator[Any, Any, None]:
    """Drive an attempt that waits, step by step, to its end."""
    while True:
        step: Callable[[], Any]
        try:
            sent = yield awaited
        except GeneratorExit:
            run.close()
            raise
        except BaseException as error:  # noqa: BLE001  # what it waited for failed, or it is cancelled
            step = partial(run.throw, error)
        else:
            step = partial(run.send, sent)
        try:
            awaited = context.run(step)
        except StopIteration:
            return
