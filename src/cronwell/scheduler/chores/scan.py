"""Walk over all jobs and look for what should not be: a job that nobody would fire again, an execution that nobody holds.

Every other part makes sure that such a thing cannot come to be. This one does not believe them. What it finds it counts,
tells, and mends where that is safe; what its last whole walk found is kept for people to see.

It goes by the jobs' keys, a slice each second: ten million of them are walked through in half an hour, and cost the
database two percent of a core meanwhile (a slice takes 20 ms). The place is not kept: who takes up the chore begins from
the first job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from cronwell import telemetry
from cronwell.control import rearming
from cronwell.control.rearming import Rearming, kind_of
from cronwell.runtime.clock import Clock
from cronwell.store.port import Finding, Store, Suspect

SLICE = 5000
STEP = timedelta(seconds=1)
REST = timedelta(seconds=30)
"""From the end of a walk to the beginning of the next."""
EXAMPLES = 10
UNSERVED_AFTER = timedelta(minutes=1)
GONE_FOR = timedelta(seconds=30)
"""A lease that ended longer ago has been swept by the rescue many times."""

ORPHANED = "orphaned"
UNSERVED = "unserved"
KINDS = (
    rearming.NO_CURSOR,
    rearming.NO_SLOT,
    rearming.HELD,
    rearming.STUCK,
    rearming.AWAITING,
    rearming.STRAY,
    ORPHANED,
    UNSERVED,
)

_FIRST = (0, UUID(int=0))
_LAST = ((1 << 31) - 1, UUID(int=(1 << 128) - 1))


@dataclass(slots=True)
class Tally:
    """What one walk has found of one kind so far."""

    found: int = 0
    mended: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, count: int, examples: Sequence[str], *, mended: int = 0) -> None:
        self.found += count
        self.mended += mended
        self.examples += examples[: EXAMPLES - len(self.examples)]


class Scan:
    """Implements `Chore`."""

    name = "scan"

    def __init__(self, store: Store, clock: Clock, rearm: Rearming, *, size: int = SLICE) -> None:
        self.every = STEP
        self._store = store
        self._clock = clock
        self._rearming = rearm
        self._size = size
        self._place = _FIRST
        self._tallies = {kind: Tally() for kind in KINDS}
        self._unknown: set[UUID] = set()
        """Workers that were not known in the walk before."""

    async def run_once(self) -> int:
        """Look through one slice and return how much was found in it; the last one ends the walk."""
        end = await self._store.slice_end(self._place, self._size)
        now = self._clock.now()
        suspects = await self._store.suspects(
            self._place,
            end or _LAST,
            due_before=now - rearming.STUCK_AFTER,
            ended_before=now - rearming.ENDED_FOR,
        )
        lasts = await self._rearming.last_slots([each for each in suspects if each.next_slot is None])
        found = 0
        for suspect in suspects:
            found += await self._examine(suspect, lasts.get(suspect.job_id))
        if end is not None:
            self._place, self.every = end, STEP
            return found
        found += await self._look_at_executions()
        await self._tell()
        self._place, self.every = _FIRST, REST
        return found

    async def _examine(self, suspect: Suspect, last: datetime | None) -> bool:
        is_mended = False
        try:
            kind = kind_of(suspect, last, self._clock.now())
            if kind in rearming.MENDED:
                is_mended = await self._rearming.rearm(suspect, last)
        except Exception as error:  # noqa: BLE001  # one job that cannot be understood must not hide the others
            telemetry.service_failed("scan", error, 0.0)
            kind = rearming.NO_SLOT
        if kind is None:
            return False
        self._tallies[kind].add(1, [str(suspect.job_id)], mended=is_mended)
        return True

    async def _look_at_executions(self) -> int:
        """What runs under workers that are gone, and what waits where no worker is. The rescue does the former."""
        now = self._clock.now()
        abandoned = await self._store.abandoned(now - GONE_FOR, EXAMPLES)
        unknown = {each.worker for each in abandoned if each.is_unknown}
        # Seen in two walks: its row did not just come late. Once it is known to be lost the rescue takes over.
        sure = unknown & self._unknown
        self._unknown = unknown
        if sure:
            await self._store.enter_lost(sorted(sure), now)
        for each in abandoned:
            self._tallies[ORPHANED].add(each.held, each.jobs, mended=each.held if each.worker in sure else 0)
        served = {
            pool
            for worker in await self._store.list_workers(now)
            if worker.state in ("active", "draining")
            for pool in worker.pools
        }
        for pool, waiting in (await self._store.unserved(served, now - UNSERVED_AFTER)).items():
            self._tallies[UNSERVED].add(waiting, [pool])
        return self._tallies[ORPHANED].found + self._tallies[UNSERVED].found

    async def _tell(self) -> None:
        now = self._clock.now()
        tallies, self._tallies = self._tallies, {kind: Tally() for kind in KINDS}
        for kind, tally in tallies.items():
            if tally.found:
                telemetry.findings(kind, found=tally.found, mended=tally.mended, examples=tally.examples)
        await self._store.put_findings(
            [
                Finding(kind, tally.found, tally.mended, tuple(tally.examples), now)
                for kind, tally in tallies.items()
            ]
        )
