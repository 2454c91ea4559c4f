"""Attempts take their first step one after the other in one task, which becomes the task of the first that has to wait.

Most attempts of short handlers end with their first step, and need no task of their own. Each runs in a context of its own,
as in a task of its own: what it sets there no other sees.
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

AT_A_TIME = 50
"""First steps in one turn of the loop, of attempts that are late anyway. In between, the next claim and what has ended are sent
off, so that the database works while attempts are run: one worker drained 24.9 and 24.8 k executions/s, and 23.4 k twice with all
of a claim in one turn (November 2026). Those whose instant it is start before anything else is done."""


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
        self._next: deque[StartableT] = deque()
        self._are_late = True

    def add(self, attempt: StartableT, *, is_late: bool = False) -> None:
        """Start an attempt with the loop's next turn; in one of the next, where those that start with it are late as well."""
        if not self._next:
            self._loop.create_task(self._start_next())
        self._next.append(attempt)
        self._are_late = self._are_late and is_late

    async def _start_next(self) -> None:
        attempts, self._next = self._next, deque()
        at_a_time = AT_A_TIME if self._are_late else len(attempts)
        self._are_late = True
        task = asyncio.current_task()
        assert task is not None
        steps = 0
        try:
            while attempts:
                if steps == at_a_time:
                    steps = 0
                    await asyncio.sleep(0)
                steps += 1
                attempt = attempts.popleft()
                if attempt.is_lost:
                    continue
                attempt.task = task
                run, context = self._run(attempt), copy_context()
                try:
                    awaited = context.run(run.send, None)
                except StopIteration:
                    if task.cancelling():
                        # It has cancelled itself, and nobody else.
                        return
                    continue
                self._spread(attempts)
                await _go_on(run, context, awaited)
        finally:
            self._spread(attempts)

    def _spread(self, attempts: deque[StartableT]) -> None:
        """A task for each that is left: where one waits others will, and none should wait for the other's first step."""
        while attempts:
            self._loop.create_task(self._start_alone(attempts.popleft()))

    async def _start_alone(self, attempt: StartableT) -> None:
        # A task has a context of its own. What waits here is kept small: with a queue and a
        # context beside it a delivery to a slow receiver took the worker 72 µs, and 66 without (November 2026).
        if not attempt.is_lost:
            attempt.task = asyncio.current_task()
            await self._run(attempt)


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
