"""New jobs that come one by one, added together while others are being added.

A transaction takes PostgreSQL 0.8 ms however few jobs it adds, and 0.04 for each of a thousand. So while one is under way those
that come wait for it to end, and share the next one: the more come, the less each costs, and a single one waits for nobody.
Each keeps its own answer, and its own request in the audit log. Only plain jobs are gathered, of which none can be in the way
of another: no calendars, upstreams or secrets.

Somebody else can be in the way of one of them, or it cannot be written at all. So those in line wait for a lock only for a
moment; then each goes on alone, a few at once, beside those that come after it, and waits as long as it must. Where something
else takes long, such as a connection that has fallen silent, the next transaction begins beside it. Whoever has waited too long
for one to begin is refused: nothing was written, and it may be sent again.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections import deque
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import orjson

from cronwell import errors
from cronwell.config import SchedulerSettings
from cronwell.control.adding import MOST_BYTES, Placed, add
from cronwell.control.calendars import NONE_KNOWN
from cronwell.control.definitions import Definition
from cronwell.runtime.acting import Actor, act_as, act_for, actor
from cronwell.runtime.clock import Clock
from cronwell.store.port import Store

MOST = 100
"""So many share a transaction, or fewer that are large: about MOST_BYTES."""

LOCK_TIMEOUT = timedelta(milliseconds=100)
"""So long those in line wait for a lock. Shorter than PostgreSQL's deadlock_timeout: of a circle with somebody else, these give way."""

PATIENCE = timedelta(milliseconds=500)
"""So long those in line wait for the transaction before theirs: a hundred times as long as one takes when all is well, and however
slow all are, a sender begins but two a second."""

LONGEST_WAIT = timedelta(seconds=10)
"""So long a job waits for its transaction to begin, in line and before it goes alone: as long as one waits for a connection."""

ALONE = 4
"""So many go alone at once, of all senders: half of the connections that a process keeps by default. Each may wait for a lock."""

_NOTHING_WRITTEN = "nothing was written, and it may be sent again"


@dataclass(frozen=True, slots=True, eq=False)
class _Newcomer:
    definition: Definition
    size: int
    request_id: str
    start_deadline: float
    added: asyncio.Future[tuple[datetime, Placed]]

    def refuse(self) -> None:
        """Tell whoever waits that it did not begin in time: what was sent for it, if anything, was rolled back."""
        if not self.added.done():
            self.added.set_exception(errors.StoreUnavailable(f"the job waited too long: {_NOTHING_WRITTEN}"))


@dataclass(frozen=True, slots=True)
class _Sender:
    """Those whose jobs may share a transaction: they differ in nothing that it is told but in their requests."""

    tenant_id: int
    actor: Actor | None


class Gathering:
    """The jobs that wait to be added. One instance serves a process."""

    def __init__(self, store: Store, clock: Clock, settings: SchedulerSettings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._lines: dict[_Sender, deque[_Newcomer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._alone = asyncio.Semaphore(ALONE)
        self._is_closed = False

    async def add(self, tenant_id: int, definition: Definition) -> tuple[datetime, Placed]:
        """Add a job of which `is_plain` holds; when it was, and what came of it."""
        if self._is_closed:
            raise errors.StoreUnavailable(f"this process ends: {_NOTHING_WRITTEN}")
        somebody = actor()
        sender = _Sender(tenant_id, somebody and replace(somebody, request_id=""))
        loop = asyncio.get_running_loop()
        newcomer = _Newcomer(
            definition,
            len(definition.text),
            somebody.request_id if somebody else "",
            loop.time() + LONGEST_WAIT.total_seconds(),
            loop.create_future(),
        )
        if (line := self._lines.get(sender)) is not None:
            line.append(newcomer)
        else:
            line = self._lines[sender] = deque([newcomer])
            self._begin(self._serve(sender, line), line)
        return await newcomer.added

    async def close(self) -> None:
        """End what is under way, and whoever waits for it with it; whoever comes later is refused."""
        self._is_closed = True
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    def _begin(
        self, work: Coroutine[object, object, None], newcomers: Iterable[_Newcomer]
    ) -> asyncio.Task[None]:
        """Do work on which newcomers depend: those that are left among them when it ends, end with it."""

        def end(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            for newcomer in newcomers:
                newcomer.added.cancel()

        # In a context of its own: it outlives the request that began it, and acts for whom it says itself.
        task = asyncio.create_task(work, name="gathered jobs", context=contextvars.Context())
        self._tasks.add(task)
        # Not within the work itself: of a task that is ended before its first step nothing is run.
        task.add_done_callback(end)
        return task

    async def _serve(self, sender: _Sender, line: deque[_Newcomer]) -> None:
        try:
            while line:
                if group := _taken(line):
                    adding = self._begin(self._add(sender, group, LOCK_TIMEOUT), group)
                    await asyncio.wait({adding}, timeout=PATIENCE.total_seconds())
        finally:
            del self._lines[sender]

    async def _add_alone(self, sender: _Sender, newcomer: _Newcomer) -> None:
        try:
            async with asyncio.timeout_at(newcomer.start_deadline) as waiting, self._alone:
                waiting.reschedule(None)
                if not newcomer.added.done():
                    await self._add(sender, [newcomer], None)
        except TimeoutError:
            newcomer.refuse()

    async def _add(self, sender: _Sender, group: list[_Newcomer], lock_timeout: timedelta | None) -> None:
        try:
            act_for(sender.tenant_id)
            if sender.actor is not None:
                act_as(_in_the_name_of(sender.actor, group))
            now, made = await add(
                functools.partial(self._store.transaction, is_frequent=True, lock_timeout=lock_timeout),
                self._clock,
                self._settings,
                sender.tenant_id,
                [newcomer.definition for newcomer in group],
                NONE_KNOWN,
            )
        except Exception as error:  # noqa: BLE001 - whoever waits for it is told
            if lock_timeout is not None and _may_fare_better_alone(group, error):
                for newcomer in group:
                    self._begin(self._add_alone(sender, newcomer), [newcomer])
                # They end with those tasks from here on, not with this one.
                group.clear()
                return
            for newcomer in group:
                if not newcomer.added.done():
                    newcomer.added.set_exception(error)
            return
        for newcomer, placed in zip(group, made, strict=True):
            if not newcomer.added.done():
                newcomer.added.set_result((now, placed))


def is_plain(definition: Definition) -> bool:
    """Tell whether a job may be added together with any others."""
    schedule = definition.plan and definition.plan.schedule
    return (
        definition.spec.after is None and not definition.named and (not schedule or schedule.filter is None)
    )


def _taken(line: deque[_Newcomer]) -> list[_Newcomer]:
    """Take those out of a line who share the next transaction, and those who are not waited for, or waited too long."""
    now = asyncio.get_running_loop().time()
    group: list[_Newcomer] = []
    size = 0
    while line and len(group) < MOST and (not group or size + line[0].size <= MOST_BYTES):
        newcomer = line.popleft()
        if newcomer.start_deadline <= now:
            newcomer.refuse()
        elif not newcomer.added.done():
            group.append(newcomer)
            size += newcomer.size
    return group


def _may_fare_better_alone(group: list[_Newcomer], error: Exception) -> bool:
    """Tell whether nothing was written, and perhaps one of them is to blame, or was in the way of another."""
    if isinstance(error, errors.LockedOut):
        return True
    # An outage is all the same to each.
    return len(group) > 1 and not isinstance(error, errors.StoreUnavailable)


def _in_the_name_of(somebody: Actor, group: list[_Newcomer]) -> Actor:
    if len(group) == 1:
        return replace(somebody, request_id=group[0].request_id)
    # Of several with the same name the first is added.
    requests = {newcomer.definition.spec.name: newcomer.request_id for newcomer in reversed(group)}
    return replace(somebody, requests=orjson.dumps(requests).decode())
