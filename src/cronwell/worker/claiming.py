"""Claim what is due soon, a little early, and hold it for its instant."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from datetime import datetime, timedelta
from uuid import UUID

from cronwell import telemetry
from cronwell.config import WorkerSettings
from cronwell.model.ageing import Ageing
from cronwell.runtime.clock import Clock
from cronwell.store.port import EVER, Claimed, Store, Tier
from cronwell.worker.behind import Behind, Tail
from cronwell.worker.blocked import Blocked
from cronwell.worker.catalog import Catalog, KnownJob, Unreadable
from cronwell.worker.elders import Elders
from cronwell.worker.gated import GATED_TIERS, PRIORITIES, Gated
from cronwell.worker.lease import Lease
from cronwell.worker.queue import Queue
from cronwell.worker.reach import Reach
from cronwell.worker.returning import Strays, ended_before_start
from cronwell.worker.slots import Slots
from cronwell.worker.upstreams import tell_upstreams

GATHER = timedelta(milliseconds=20)
"""How long after a claim a worker waits for more than a few places to fall free, before it claims for those."""
CALM = timedelta(milliseconds=100)
"""The same, for a worker that holds enough for longer than that."""


class Claiming:
    """Fills free places with work, the highest priority first."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: WorkerSettings,
        lease: Lease,
        catalog: Catalog,
        slots: Slots,
        *,
        tell: Callable[[Collection[UUID]], Awaitable[None]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._lease = lease
        self._catalog = catalog
        self._slots = slots
        self._reach = Reach()
        self._gated = Gated(store, settings.pools, settings.ageing)
        self._gated_share = Ageing()
        self._is_crowded = False
        """The last round ended before it came to what waits at gates."""
        self._pools = deque(
            (
                Elders(store, pool, len(PRIORITIES), settings.ageing),
                [Queue(store, pool, priority, self._reach) for priority in PRIORITIES],
            )
            for pool in settings.pools
        )
        """Each comes first in its turn: one with more than there are places for would leave none to the others."""
        self._queues = [queue for _, queues in self._pools for queue in queues]
        self._blocked = Blocked(store, clock, settings.pools, self._reach, tell)
        self.behind = Behind(
            store, clock, lease, self._reach, self._queues, self._blocked, ahead=settings.pre_claim
        )
        self._has_more = False
        """The last round was filled to the last place."""
        self._tiers: set[Tier] = set()
        self._seen_at = 0.0
        self._has_seen_farthest = False
        """These were looked for by a round than which no other looks back further."""
        self._strays = Strays(store, clock, lease, slots)
        self._claimed_at = 0.0
        self._is_behind = False
        """What was claimed last should have started already."""
        self._claimed_to: datetime | None = None
        """When the last of what was claimed last is due."""
        self._herd_at: datetime | None = None
        """The one instant of all that was claimed last, if it was one."""
        self.wants_room = False
        """There may be more than there were places for: whoever frees one should say so."""

    async def poll(self) -> timedelta:
        """Claim once through all pools and priorities; come back at once where there may be more."""
        self.wants_room = self._slots.free <= 0
        if not self._lease.may_claim:
            return self._settings.poll
        await self._strays.look()
        if self.wants_room:
            return self._settings.poll
        if (early := self._early()) > 0:
            return timedelta(seconds=early)
        self._claimed_at = time.monotonic()
        self._reach.begin_round()
        tiers = await self._due()
        if not tiers and not self._reach.is_short:
            # Whoever wakes it now means what has come since.
            self._has_more = False
            return self._settings.poll
        try:
            self._has_more = await self._claim(tiers)
        except BaseException:
            # The claim may have been committed although its answer is lost, or of no use.
            self._strays.doubt()
            raise
        if self._has_more:
            self.wants_room = self._slots.free <= 0
            return self._settings.poll if self.wants_room else self._left_to_others
        await self._blocked.settle()
        return min(self._gated.retry_in or self._settings.poll, self._settings.poll)

    def hasten(self) -> None:
        """Something has ended that others may have been waiting for."""
        self._gated.hasten()
        self._reach.look_back()

    def _early(self) -> float:
        """Seconds to wait for more free places: a busy worker that claims each place as it falls free claims one by one."""
        if self._slots.free >= min(self._settings.claim_batch, self._settings.concurrency // 4):
            return 0.0
        has_enough = self._claimed_to is not None and self._claimed_to - self._clock.now() > CALM
        gather = CALM if has_enough else GATHER
        return self._claimed_at + gather.total_seconds() - time.monotonic()

    async def _due(self) -> set[Tier]:
        """Where something is due: a worker asks one thing, and not each queue, of which most have nothing.

        While there is more than it can take it asks no more often than GATHER: an empty queue takes 0.25 ms of PostgreSQL's time to
        be claimed from, and half a millisecond in all (November 2026). But where a round looks back as far as any does, it does not
        go by what others found, which would keep it from a tier that has old slots alone. What waits at gates is not asked for
        where that would be a long way: it is looked for as often as that pays.
        """
        asked = time.monotonic()
        is_farthest = self._reach.is_farthest
        is_recent = asked < self._seen_at + GATHER.total_seconds()
        if self._has_more and is_recent and (self._has_seen_farthest or not is_farthest):
            return self._tiers
        now = self._clock.now()
        since = {queue.tier: queue.frontier.since(now) for queue in self._queues}
        if not self._reach.is_short:
            since |= {(pool, tier): EVER for pool in self._settings.pools for tier in GATED_TIERS}
        began = time.perf_counter()
        self._tiers = await self._store.due_tiers(
            since, now + self._settings.pre_claim, self._reach.slots_since(now)
        )
        self._seen_at, self._has_seen_farthest = asked, is_farthest
        if not self._has_more:
            # A worker that is busy waits for everything, and says nothing of the way that this one went.
            self._reach.note(time.perf_counter() - began)
        return self._tiers

    async def _claim(self, tiers: Collection[Tier]) -> bool:
        """Claim from these tiers, and tell whether there may be more."""
        has_more, ahead = False, self._settings.pre_claim
        if self._is_crowded and (share := self._gated_share.allot(self._room)):
            # What waits at gates comes last, and would not come at all.
            await self._claim_from(self._gated, share, ahead)
        self._pools.rotate(-1)
        for elders, queues in self._pools:
            if self._room > 0:
                await elders.claim(self._room, self._claim_aged)
            for priority, queue in enumerate(queues):
                tail = self.behind.tails[queue.tier]
                if queue.tier not in tiers and not tail.found:
                    continue
                if tail.found and self._room > 0:
                    await self._claim_from(tail, self._room, ahead)
                wanted = self._room
                if wanted <= 0:
                    elders.filled = max(priority - 1, 0)
                    self._is_crowded = True
                    return True
                claims = await self._claim_from(queue, wanted, ahead)
                has_more = has_more or len(claims) == wanted
            elders.filled = None
        wanted = self._room
        self._is_crowded = wanted <= 0
        if wanted <= 0:
            return True
        if not self._reach.is_short and all(tier in PRIORITIES for _, tier in tiers):
            return has_more
        return len(await self._claim_from(self._gated, wanted, ahead)) == wanted or has_more

    @property
    def _room(self) -> int:
        """How many to claim: of what is yet to come only half as many, for others to have some of it."""
        most = self._settings.claim_batch
        return min(self._slots.free, most if self._is_behind else max(most // 2, 1))

    @property
    def _left_to_others(self) -> timedelta:
        """How long to let other workers, on other cores, claim of a herd whose instant is yet to come: until each has looked for
        work, and while there is time left for as long again. Whoever has all of it starts it in twice the time."""
        if self._herd_at is None:
            return timedelta()
        ahead = self._herd_at - self._clock.now()
        return max(min(self._settings.poll, ahead - self._settings.poll), timedelta())

    async def _claim_aged(self, queue: Queue, wanted: int, age: timedelta) -> int:
        return len(await self._claim_from(queue, wanted, -age))

    async def _claim_from(self, queue: Queue | Gated | Tail, wanted: int, ahead: timedelta) -> list[Claimed]:
        """Claim what is ready by so long from now; before now, where that is negative."""
        asked, began = time.monotonic(), time.perf_counter()
        now = self._clock.now()
        worker = self._lease.worker
        claims = await queue.claim(worker, wanted, ready_by=now + ahead, now=now)
        took = time.perf_counter() - began
        if isinstance(queue, Queue):
            self._reach.note(took, queue.tier, claimed=len(claims))
        if claims:
            self._reach.meet(min(claim.key.slot for claim in claims), now)
            last = claims[-1].ready_at
            self._is_behind = last <= now
            self._claimed_to = last
            self._herd_at = last if last == claims[0].ready_at else None
            telemetry.claimed(count=len(claims), took=timedelta(seconds=took))
            jobs = await self._catalog.look_up(claims)
            await tell_upstreams(self._store, claims)
            if self._lease.worker == worker and self._lease.may_claim:
                self._slots.hold(_known(claims, jobs), asked)
            else:
                # The answer came when the lease was in doubt. If it is kept after all, these are ours and unknown to us.
                self._strays.doubt()
            await self._give_up(
                [
                    (claim, job)
                    for claim, job in zip(claims, jobs, strict=True)
                    if not isinstance(job, KnownJob)
                ]
            )
        return claims

    async def _give_up(self, hopeless: list[tuple[Claimed, Unreadable | None]]) -> None:
        """Executions cannot run whose job has no definition any more, or one that only another release can read."""
        if hopeless:
            now = self._clock.now()
            await self._store.complete(
                [
                    ended_before_start(
                        (claim.tenant_id, claim.key, claim.fence),
                        claim.worker,
                        now,
                        "no_job",
                        "the job's definition is gone",
                    )
                    if job is None
                    else job.end(claim, now)
                    for claim, job in hopeless
                ]
            )


def _known(claims: list[Claimed], jobs: list[KnownJob | Unreadable | None]) -> list[tuple[Claimed, KnownJob]]:
    return [(claim, job) for claim, job in zip(claims, jobs, strict=True) if isinstance(job, KnownJob)]
