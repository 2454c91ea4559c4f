"""Threads that may be given up on.

The standard executor waits for its threads when the interpreter ends, and has no way to say that one of them
is stuck. Here a thread that does not come back is abandoned: it is counted, another takes its place, and
neither `close` nor the end of the process waits for it. All methods are called from the event loop's thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, Literal, TypeVar

T = TypeVar("T")
State = Literal["waiting", "withdrawn", "running", "done", "abandoned"]

_JOIN_SECONDS = 1.0


class Ticket(Generic[T]):
    """One function on its way through the pool; `future` is done when the function is."""

    __slots__ = ("_context", "_function", "_lock", "_state", "future", "thread")

    def __init__(self, function: Callable[[], T], future: asyncio.Future[T]) -> None:
        self.future = future
        self.thread: threading.Thread | None = None
        self._function = function
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._state: State = "waiting"

    def move(self, origin: State, to: State) -> bool:
        """Change the state from `origin`, if it still is that: the thread and the loop may both try."""
        with self._lock:
            if self._state != origin:
                return False
            self._state = to
            return True

    def call(self) -> T:
        """Run the function in the context of who asked for it."""
        return self._context.run(self._function)


class ThreadPool:
    """At most `size` threads in service, started when needed, and at most as many again that are stuck."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._queue: SimpleQueue[Ticket[Any] | None] = SimpleQueue()
        self._in_service: set[threading.Thread] = set()
        self._in_flight = 0
        self._started = 0
        self.abandoned = 0
        """Threads whose function was given up on and has not returned yet."""

    def submit(self, function: Callable[[], T]) -> Ticket[T]:
        """Run `function` on a thread as soon as one is free."""
        ticket = Ticket(function, asyncio.get_running_loop().create_future())
        self._in_flight += 1
        self._queue.put(ticket)
        self._staff()
        return ticket

    def withdraw(self, ticket: Ticket[Any]) -> bool:
        """Take back a function that has not begun, so that it never does; return whether that was so."""
        if not ticket.move("waiting", "withdrawn"):
            return False
        self._in_flight -= 1
        ticket.future.cancel()
        return True

    def give_up(self, ticket: Ticket[Any]) -> None:
        """Stop waiting for a function: it never begins or, if it has begun, its thread is abandoned."""
        if self.withdraw(ticket):
            return
        if ticket.move("running", "abandoned"):
            self._in_flight -= 1
            self.abandoned += 1
            if ticket.thread is not None:
                self._in_service.discard(ticket.thread)
            self._staff()
        ticket.future.cancel()

    async def close(self) -> None:
        """End the threads that are in service; leave the abandoned ones to themselves."""
        threads, self._in_service = self._in_service, set()
        for _ in threads:
            self._queue.put(None)
        join_deadline = time.monotonic() + _JOIN_SECONDS
        for thread in threads:
            # An idle thread ends within microseconds; that is cheaper than waiting for it in another thread.
            thread.join(max(0.0, join_deadline - time.monotonic()))

    def _staff(self) -> None:
        """Start a thread if there is work for one more and the limits allow it."""
        serving = len(self._in_service)
        if self._in_flight <= serving or serving >= self._size or serving + self.abandoned >= 2 * self._size:
            return
        self._started += 1
        thread = threading.Thread(
            target=self._serve,
            args=(asyncio.get_running_loop(),),
            name=f"{self._name}-{self._started}",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError:
            return  # the system has no thread to give: those in service carry on, and others wait
        self._in_service.add(thread)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call what is queued, on a thread, until told to end or given up on."""
        while (ticket := self._queue.get()) is not None:
            ticket.thread = threading.current_thread()
            if not ticket.move("waiting", "running"):
                continue
            value: Any = None
            error: BaseException | None = None
            try:
                value = ticket.call()
            except BaseException as raised:  # noqa: BLE001  whatever it is, it belongs to who asked
                error = raised
            is_awaited = ticket.move("running", "done")
            try:
                if is_awaited:
                    loop.call_soon_threadsafe(self._finish, ticket, value, error)
                else:
                    loop.call_soon_threadsafe(self._count_return)
            except RuntimeError:
                return  # the loop has closed: nobody is waiting
            if not is_awaited:
                return

    def _finish(self, ticket: Ticket[Any], value: object, error: BaseException | None) -> None:
        self._in_flight -= 1
        if ticket.future.cancelled():
            return
        if error is None:
            ticket.future.set_result(value)
        else:
            ticket.future.set_exception(error)

    def _count_return(self) -> None:
        self.abandoned -= 1
        self._staff()
