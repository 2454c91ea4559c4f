"""Keep the worker's lease from a thread of its own, and end the process rather than outlive the lease.

A handler that blocks the event loop, or keeps the processor busy in Python, holds up everything that runs on the loop. The
lease is not among that: it is lengthened here, by a thread with an event loop and connections of its own. (Code in C that
does not let go of the interpreter's lock stops this thread as well; nothing but another process could help there.)

Where the lease cannot be lengthened, the event loop is told to stop all attempts a margin before it ends. A loop that is
blocked at that moment cannot: then the process is ended, at once and with all its shell commands, before the database
lets another worker have the work. A loop that does not turn for `worker.stall_limit` is given up in the same way.

Time is counted by looking at the clock again and again, so that a process that was stopped for a while (SIGSTOP, a laptop's
lid) is not blamed for what it slept through: its loop gets its chance when it wakes.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import timedelta

from cronwell import telemetry
from cronwell.config import WorkerSettings
from cronwell.runtime.service import Loop, Service, run_loop
from cronwell.store.port import Store
from cronwell.worker.heartbeat import Heartbeat
from cronwell.worker.lease import Lease
from cronwell.worker.slots import Slots

GAVE_UP = 75
"""The exit code of a worker that ended itself: not at fault by its settings, so its supervisor starts it again."""
LONGEST_LOOK = 0.1
TELLING_SECONDS = 0.5
SWITCH_SECONDS = 0.0002
"""After how long the thread asks a busy one for the interpreter's lock.

Whoever waits for the lock asks only when this has passed without anybody letting go of it, and who lets go of it for the
microseconds of a system call mostly has it back before the waiter is awake. With Python's own 5 ms a handler that computes
in stretches of 2 ms with a look at a file between them starves every other thread, for as long as it runs.
"""

OpenStore = Callable[[], AbstractAsyncContextManager[Store]]


class Keeper(Service):
    """The thread that keeps the lease, from when it is run until it is stopped."""

    def __init__(
        self,
        open_store: OpenStore,
        settings: WorkerSettings,
        lease: Lease,
        slots: Slots,
        *,
        heartbeat: Heartbeat,
        on_news: Callable[[], None],
        end_process: Callable[[str], None],
    ) -> None:
        """`open_store` connects, on the thread's loop. `on_news` is told, from the thread, that the lease was given up or is
        another database's."""
        super().__init__("heartbeat")
        self._open_store = open_store
        self._settings = settings
        self._lease = lease
        self._slots = slots
        self._heartbeat = heartbeat
        self._on_news = on_news
        self._end_process = end_process
        self._stop_limit = (lease.margin * 2 / 3).total_seconds()
        self._look_seconds = min(self._stop_limit / 7, LONGEST_LOOK)
        self._looked_at = 0.0
        self._doubted_seconds = 0.0
        self._silent_seconds = 0.0
        self._is_asked = False
        self._loops: list[Loop] = []
        self._thread_loop: asyncio.AbstractEventLoop | None = None
        self._is_stopping = False

    async def run(self) -> None:
        """Start the thread and wait for its end."""
        self._main_loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = self._main_loop.create_future()

        def work() -> None:
            error: Exception | None = None
            try:
                run_loop(self._keep(), asyncio.new_event_loop())
            except Exception as raised:  # noqa: BLE001  # it ends the process by way of the service
                error = raised
            with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits
                self._main_loop.call_soon_threadsafe(_settle, ended, error)

        sys.setswitchinterval(SWITCH_SECONDS)
        # With the context of who asked, so that its events carry the role.
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(work,), name="heartbeat", daemon=True).start()
        await ended

    def stop(self) -> None:
        self._is_stopping = True
        if self._thread_loop is not None:
            with contextlib.suppress(RuntimeError):
                self._thread_loop.call_soon_threadsafe(self._stop_loops)

    def look_again(self) -> None:
        """Lengthen the lease now: the database may be another, and have another opinion of it."""
        if self._thread_loop is not None:
            with contextlib.suppress(RuntimeError):
                self._thread_loop.call_soon_threadsafe(self._loops[0].waker.wake)

    async def _keep(self) -> None:
        failed = telemetry.service_failed
        self._looked_at = time.monotonic()
        async with AsyncExitStack() as stack:
            store: list[Store] = []

            async def renew() -> timedelta:
                if not store:
                    store.append(await stack.enter_async_context(self._open_store()))
                return await self._renew(store[0])

            self._loops = [
                Loop("heartbeat", renew, on_error=failed),
                Loop("look at the event loop", self._look, on_error=failed),
            ]
            self._thread_loop = asyncio.get_running_loop()
            if self._is_stopping:
                return
            async with asyncio.TaskGroup() as group:
                for loop in self._loops:
                    group.create_task(loop.run(), name=loop.name)

    def _stop_loops(self) -> None:
        for loop in self._loops:
            loop.stop()

    async def _renew(self, store: Store) -> timedelta:
        await self._lease.renew(store, running=len(self._slots), is_draining=self._heartbeat.is_draining)
        self._succeeded()
        if self._lease.is_given_up or self._lease.is_elsewhere:
            self._on_news()
        return self._settings.heartbeat

    async def _look(self) -> float:
        now = time.monotonic()
        passed, self._looked_at = now - self._looked_at, now
        self._watch_lease(min(passed, self._stop_limit / 2))
        self._watch_loop(min(passed, 1.0))
        return self._look_seconds

    def _watch_lease(self, passed: float) -> None:
        if self._lease.is_trusted or not len(self._slots):
            self._doubted_seconds = 0.0
            return
        if self._doubted_seconds == 0.0:
            self._main_loop.call_soon_threadsafe(self._heartbeat.stop_untrusted)
        self._doubted_seconds += passed
        if self._doubted_seconds >= self._stop_limit:
            self._end_process(
                "the lease is about to end, and the event loop is blocked: nothing else stops its attempts"
            )

    def _watch_loop(self, passed: float) -> None:
        self._silent_seconds += passed
        if self._silent_seconds >= self._settings.stall_limit.total_seconds():
            self._end_process("the event loop has been blocked for longer than worker.stall_limit")
        if not self._is_asked:
            self._is_asked = True
            self._main_loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        """The event loop turns."""
        self._is_asked = False
        self._silent_seconds = 0.0


def end_process(kill_commands: Callable[[], None], reason: str) -> None:
    """End this process now, and with it every command that it runs."""
    kill_commands()
    # Not on this thread: whoever blocks the loop may also have the log.
    telling = threading.Thread(target=telemetry.gave_up, args=(reason, GAVE_UP), daemon=True)
    telling.start()
    telling.join(TELLING_SECONDS)
    os._exit(GAVE_UP)


def _settle(ended: asyncio.Future[None], error: Exception | None) -> None:
    if ended.done():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)
