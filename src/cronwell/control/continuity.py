"""Notice that another database server answers than before, and how much of what was committed it lacks.

A standby that is promoted may not have received the last commits. Epochs, fences and revisions that were given out in them
are given out again, for something else; so whoever remembers any of them begins anew. The database itself refuses what
was begun in another incarnation; here is what makes a process begin anew without being refused first, and what tells the
operator.

What was lost is bounded by a pulse that each process writes every second. Commits survive in the order in which they
were made: if a pulse is there after the failover, so is all that was committed before it. If the last one that the
process saw committed is not there, commits are lost, no older than the pulse that is, and none younger than the last
word of the old server.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid4

from cronwell import telemetry
from cronwell.runtime.clock import Clock
from cronwell.runtime.postgres import Database
from cronwell.runtime.service import Loop
from cronwell.store.port import Pulse, Store

EVERY = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Loss:
    """What a failover may have cost, as one process can tell."""

    is_certain: bool
    """Something that this process saw committed is not there."""
    window: timedelta
    """Nothing older than this, before the old server's last word, is lost."""


def judge(found: Pulse, *, committed: int, began_at: datetime, ended_at: datetime) -> Loss:
    """Compare what a new server has of a process with what the process saw committed.

    `committed` is its last pulse that was answered, `began_at` when its first was written, and `ended_at` when the old server
    last answered anything.
    """
    proven_at = began_at if found.beat_at is None else found.beat_at
    return Loss((found.number or 0) < committed, max(ended_at - proven_at, timedelta()))


class Continuity:
    """Writes this process's pulse and tells everyone when the database has become another."""

    def __init__(self, database: Database, store: Store, clock: Clock) -> None:
        self._database = database
        self._store = store
        self._clock = clock
        self._process = uuid4()
        self._incarnation: str | None = None
        self._began_at = clock.now()
        self._sent = 0
        self._committed = 0
        self._on_failover: list[Callable[[], None]] = []

    def service(self, measure: Callable[[], Awaitable[None]]) -> Loop:
        """The loop that does it; `measure` asks for the database's time, which may be another as well."""

        async def poll() -> timedelta:
            if await self.beat():
                await measure()
            return EVERY

        loop = Loop("continuity", poll, on_error=telemetry.service_failed)
        self._database.servers.on_change = loop.waker.wake
        return loop

    def on_failover(self, forget: Callable[[], None]) -> None:
        """Call `forget` whenever another incarnation of the database has begun to answer."""
        self._on_failover.append(forget)

    async def beat(self) -> bool:
        """Write a pulse; True if it went to another incarnation than the last one."""
        self._sent += 1
        number = self._sent
        found = await self._store.pulse(self._process, number, self._clock.now())
        is_other = self._incarnation is not None and found.incarnation != self._incarnation
        if is_other:
            self._tell(found)
            self._store.begin_anew()
            for forget in self._on_failover:
                forget()
        self._incarnation = found.incarnation
        self._committed = number
        if is_other:
            await self._database.drop_connections()
        return is_other

    def _tell(self, found: Pulse) -> None:
        servers = self._database.servers
        # Behind a pooler no connection of ours tells the servers apart, and the last answer may be the new one's.
        is_known = servers.incarnation == found.incarnation and servers.replaced_at > 0
        ended = servers.replaced_at if is_known else servers.answered_at
        loss = judge(
            found,
            committed=self._committed,
            began_at=self._began_at,
            ended_at=self._clock.now() - timedelta(seconds=time.monotonic() - ended),
        )
        telemetry.failed_over(found.incarnation, is_lossy=loss.is_certain, window=loss.window)
