"""What a target is: something that carries out one attempt and says how it ended.

A target honours the call's deadline and its cancellation itself, because only it knows how to stop what it
started: a request is dropped, a process group is signalled, a function is asked first. The worker's own
limit, a little later, is a backstop. Whatever happens inside a target becomes an `Outcome`; the only
exception that leaves `run` is `CancelledError`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from cronwell.model.execution import ExecutionKey, Kind, Result
from cronwell.model.job import Target
from cronwell.model.references import Hidden
from cronwell.runtime.deadlines import Deadlines

END = "the worker ends this attempt"
"""The message with which a worker cancels the task of an attempt for good: nobody waits for it for long."""


@dataclass(slots=True, repr=False)
class Call:
    """One attempt of one execution, as a target sees it. Nothing changes it; frozen, it would take longer to make.

    It holds the values of secrets: it is not to be shown anywhere.
    """

    tenant_id: int
    key: ExecutionKey
    job_name: str
    attempt: int
    fence: int
    target: Target
    payload: Any
    timeout: timedelta
    secret: str
    """The tenant's signing secret, in the `whsec_…` form of Standard Webhooks."""
    checkpoint: Any = None
    """What an attempt before this one left; None where there is nothing."""
    callback: str | None = None
    """The token by which whoever is called may end the attempt later."""
    worker: UUID | None = None
    """Under which name the worker claimed it."""
    hidden: Hidden | None = None
    """The values of secrets that the target and the payload hold, if they hold any."""
    upstream: dict[str, Any] | None = None
    """What the jobs that it follows ended with, by their names; None for an execution that follows none."""

    @property
    def execution_id(self) -> str:
        """The id that users see. Written when it is asked for: most handlers never do."""
        return str(self.key)

    @property
    def job_id(self) -> UUID:
        return self.key.job_id

    @property
    def kind(self) -> Kind:
        return self.key.kind

    @property
    def slot(self) -> datetime:
        return self.key.slot


class Stop:
    """Whether an attempt should stop. Set and listened to on the event loop; asked about from any thread.

    What `asyncio.Event` does, in a tenth of its memory (the queue of its waiters alone takes 760 bytes), because there is
    one for each of the hundred thousand attempts that a worker may run at once.
    """

    __slots__ = ("_is_set", "_listeners")

    def __init__(self) -> None:
        self._is_set = False
        self._listeners: tuple[Callable[[], object], ...] = ()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Say that it should stop, and tell those who listen, in the loop's next turn."""
        if not self._is_set:
            self._is_set = True
            listeners, self._listeners = self._listeners, ()
            for tell in listeners:
                asyncio.get_running_loop().call_soon(tell)

    def listen(self, tell: Callable[[], object]) -> None:
        """Call `tell` once when it is set; in the loop's next turn if it is already."""
        if self._is_set:
            asyncio.get_running_loop().call_soon(tell)
        else:
            self._listeners += (tell,)

    def ignore(self, tell: Callable[[], object]) -> None:
        """Do not call `tell` any more; once it is set, the call may be on its way."""
        if self._listeners == (tell,):
            self._listeners = ()
        elif self._listeners:
            self._listeners = tuple(each for each in self._listeners if each != tell)

    @property
    def listeners(self) -> int:
        """How many would be told."""
        return len(self._listeners)

    async def wait(self) -> None:
        """Wait until it is set."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell() -> None:
            if not told.done():
                told.set_result(None)

        self.listen(tell)
        try:
            await told
        finally:
            self.ignore(tell)


class Done:
    """Something to await that has happened already."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


@dataclass(slots=True)
class Signals:
    """How the worker and a running target speak while the attempt lasts."""

    deadline: float
    """On the monotonic clock (`time.monotonic`): the attempt is `timed_out` from then on."""
    cancelled: Stop = field(default_factory=Stop)
    """Set when the attempt should stop: a user cancelled it, the worker drains, or its lease ended."""
    report: Callable[[Any], None] = lambda progress: None
    """Keep the latest progress; it is written with the next heartbeat. Safe to call from any thread."""
    save: Callable[[Call, str], Awaitable[None]] = lambda call, checkpoint: Done()
    """Write a checkpoint, as JSON, down. On the event loop it is awaited; on any other thread the call itself waits until it
    is written. Raises FenceRejected where the attempt has been given up."""
    cancel_grace: timedelta = timedelta(seconds=10)
    """How long a target may take to stop by itself after `cancelled`, before it is stopped by force."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    """Where to be told that the deadline has passed; a worker has one for all its attempts."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended."""

    result: Result
    output: str | None = None
    output_truncated: bool = False
    error: str | None = None
    error_kind: str | None = None
    """A short stable word for the error, e.g. `http_status`, `connect`, `exit_code`, `exception`."""
    is_retryable: bool = True
    """False where trying again cannot help, e.g. an address that is refused."""
    retry_after: timedelta | None = None
    """What the target asked us to wait (already capped)."""
    pauses_job: bool = False
    """The target said it is gone for good (HTTP 410)."""
    awaits_callback: bool = False
    """The target has only taken it up (HTTP 202), and will say later how it ended."""
    is_host_ill: bool = False
    """There was no answer, or one that says that the host is not well: others would fare alike."""

    def concealed(self, hidden: Hidden) -> Outcome:
        """The same outcome, with names in place of the values of secrets that it tells."""
        output, error = self.output, self.error
        return dataclasses.replace(
            self,
            output=None if output is None else hidden.mask(output, was_cut=self.output_truncated),
            error=None if error is None else hidden.mask_error(error),
        )


class TargetRunner(Protocol):
    """One kind of target. One instance serves all attempts of that kind in a worker process."""

    async def run(self, call: Call, signals: Signals) -> Outcome:
        """Carry out one attempt and say how it ended."""
        ...

    async def close(self) -> None:
        """Give back connections and threads; no `run` is under way."""
        ...
