"""How a process lives: services that start together, report their health, and stop in order.

A service promises to return from `run` soon after `stop`, with its work in a good state. Nobody is cancelled as long
as they keep that promise; a service that overruns its `stop_deadline` is. `run_services` stops in the reverse of
the order given, so a list reads from what others lean on to what leans on them: the listener before the loop that it
wakes, the worker's completions before the worker.

`Loop` is the service that most are: `poll()` does one round of work and says how long nothing will be due. It is the
one place where `Exception` is caught: a round that fails is reported and tried again, later and later.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 5.0
CANCEL_DEADLINE = timedelta(seconds=5)
LEFT_DEADLINE = timedelta(seconds=2)
# Longer than the same order takes to come by two ways, shorter than it takes to mean it twice.
SAME_SIGNAL = timedelta(milliseconds=250)
T = TypeVar("T")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

ErrorReport = Callable[[str, Exception, float], None]
"""Told of a failed round: the service's name, the error, and the seconds until the next try."""


def run_loop(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Run a coroutine to its end on a new loop, and close the loop.

    As `asyncio.run` does, but tasks that are left and do not end when they are cancelled are left behind: a user's
    function that swallows its cancellation cannot keep the process from ending.
    """
    try:
        return loop.run_until_complete(coroutine)
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=LEFT_DEADLINE.total_seconds()))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()


class Service(ABC):
    """Something that runs until it is told to stop."""

    def __init__(self, name: str, *, stop_deadline: timedelta = timedelta(seconds=10)) -> None:
        self.name = name
        self.stop_deadline = stop_deadline
        """How long `run` may go on after `stop` before it is cancelled."""
        self._succeeded_at: float | None = None

    @abstractmethod
    async def run(self) -> None:
        """Do the service's work until `stop`. An exception that leaves it ends the process."""

    @abstractmethod
    def stop(self) -> None:
        """Ask `run` to return. May be called before `run`, and more than once; from the event loop's thread."""

    @property
    def last_success_age(self) -> timedelta | None:
        """How long ago the service last did what it is for; None where it never did."""
        if self._succeeded_at is None:
            return None
        return timedelta(seconds=time.monotonic() - self._succeeded_at)

    def _succeeded(self) -> None:
        self._succeeded_at = time.monotonic()


class Waker:
    """Ends one waiter's sleep, from any thread. Wakes that arrive before it looks are one wake."""

    def __init__(self) -> None:
        self._is_woken = False
        self._event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None

    def wake(self) -> None:
        """Let `wait` return now, or at once when it is next called."""
        if self._is_woken:
            return
        self._is_woken = True
        # Read after the flag is set, as `wait` sets it before it reads the flag: one of the two sees the other.
        loop = self._loop
        if loop is None:
            return
        if threading.get_ident() == self._thread:
            self._event.set()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to wake
                loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout: float) -> bool:
        """Sleep until woken (True) or for `timeout` seconds (False). One waiter at a time."""
        self._thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self._is_woken:
                    await self._event.wait()
                    self._event.clear()
        # Cleared only where it was seen: a wake that comes between the two belongs to this return.
        if self._is_woken:
            self._is_woken = False
            return True
        return False


class Loop(Service):
    """Calls `poll` again and again; each call says how long to wait before the next.

    A delay of zero or less polls again at once. `waker.wake()` cuts a wait short, but not the back-off after an error:
    a stream of hints must not become a stream of failures.
    """

    def __init__(
        self,
        name: str,
        poll: Callable[[], Awaitable[timedelta | float]],
        *,
        on_error: ErrorReport,
        waker: Waker | None = None,
        stop_deadline: timedelta = timedelta(seconds=10),
    ) -> None:
        super().__init__(name, stop_deadline=stop_deadline)
        self.waker = Waker() if waker is None else waker
        self._poll = poll
        self._on_error = on_error
        self._stopping = asyncio.Event()
        self._failures = 0

    async def run(self) -> None:
        """Poll until stopped. A poll that is under way when `stop` comes is finished first."""
        while not self._stopping.is_set():
            try:
                delay = await self._poll()
            except Exception as error:  # noqa: BLE001  # the one place: a failed round must not end the service
                await self._back_off(error)
                continue
            self._failures = 0
            self._succeeded()
            await self._pause(delay.total_seconds() if isinstance(delay, timedelta) else delay)

    def stop(self) -> None:
        """End the loop after the poll that is under way."""
        self._stopping.set()
        self.waker.wake()

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            await self.waker.wait(seconds)
        else:
            # A loop that always has work still lets the others run.
            await asyncio.sleep(0)

    async def _back_off(self, error: Exception) -> None:
        """Report the error and wait: twice as long with each failure in a row, spread over its upper half."""
        longest = min(FIRST_BACKOFF * 2.0 ** min(self._failures, 30), LONGEST_BACKOFF)
        delay = longest * (1 - random.random() / 2)
        self._failures += 1
        self._on_error(self.name, error, delay)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._stopping.wait()


class Idle(Service):
    """Does nothing until it is stopped: it stands where another service would, had it been possible."""

    def __init__(self, name: str) -> None:
        super().__init__(name, stop_deadline=timedelta(seconds=1))
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        await self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()


async def run_services(
    services: Sequence[Service],
    *,
    stop: asyncio.Event | None = None,
    on_stop: Callable[[str], None] | None = None,
    on_abort: Callable[[], None] | None = None,
) -> None:
    """Run the services until a signal, `stop`, or the end of one of them; then stop them, last first.

    SIGTERM and SIGINT stop gracefully; `on_stop` is told why. A second signal calls `on_abort` and exits at once.
    A service that fails, or returns without being asked, stops the others and its error leaves here: one error as
    it is, several as an ExceptionGroup.
    """
    stop = asyncio.Event() if stop is None else stop
    reasons: list[str] = []
    failures: list[Exception] = []

    def ask_to_stop(reason: str) -> None:
        if not reasons:
            reasons.append(reason)
            if on_stop is not None:
                on_stop(reason)
        stop.set()

    async def guard(service: Service) -> None:
        try:
            await service.run()
            if not stop.is_set():
                raise RuntimeError(f"{service.name} ended although nobody asked it to")
        except Exception as error:  # noqa: BLE001  # kept, and raised once the others have stopped in order
            failures.append(error)
            ask_to_stop(f"{service.name} failed")

    with _signals(ask_to_stop, on_abort):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(guard(service), name=service.name) for service in services]
            await stop.wait()
            for service, task in reversed(list(zip(services, tasks, strict=True))):
                await _stop_one(service, task)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup("several services failed", failures)


async def _stop_one(service: Service, task: asyncio.Task[None]) -> None:
    service.stop()
    _, late = await asyncio.wait({task}, timeout=service.stop_deadline.total_seconds())
    if late:
        task.cancel(f"{service.name} did not stop within {service.stop_deadline}")
        # One that also ignores its cancellation must not keep the others from stopping.
        await asyncio.wait({task}, timeout=CANCEL_DEADLINE.total_seconds())


@contextlib.contextmanager
def _signals(ask_to_stop: Callable[[str], None], on_abort: Callable[[], None] | None) -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into a stop and the second into an exit.

    What comes with the first is one with it: `timeout`, and others who end a whole group, signal a process by itself too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    asked_at: float | None = None

    def receive(number: signal.Signals) -> None:
        nonlocal asked_at
        now = time.monotonic()
        if asked_at is None:
            asked_at = now
            ask_to_stop(number.name)
        elif now - asked_at > SAME_SIGNAL.total_seconds():
            _abort(number, on_abort)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        loop.add_signal_handler(number, receive, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _abort(number: signal.Signals, on_abort: Callable[[], None] | None) -> NoReturn:
    try:
        if on_abort is not None:
            on_abort()
    finally:
        os._exit(128 + number)
