"""What this scheduler may do: its share of the shards and of the chores, for as long as it is a member.

Ownership is a promise of the coordinator's and ends by our own clock: at (monotonic time before the request) + ttl -
margin, unless a later request was answered. A shard's epoch is the store's: we begin one when a shard becomes ours, and
whatever we stage is written in that epoch or not at all. So a scheduler that slept through its lease, or believes a
coordinator that lied, is told by the store, and all that is lost is time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from uuid import UUID, uuid4

from cronwell import errors, telemetry
from cronwell.config import SchedulerSettings
from cronwell.coordination.port import Coordination, Member, View
from cronwell.model.shards import SHARDS
from cronwell.model.spreading import over_quota, wish
from cronwell.runtime.clock import Clock
from cronwell.runtime.service import Loop, Waker
from cronwell.store.port import Store

# A member is asked to carry less while it falls behind, down to this, and more again when it keeps up.
LEAST_WEIGHT = 1 / 8
LESS, MORE = 0.7, 1.1


def shard_duty(shard: int) -> str:
    return f"shard:{shard:02d}"


def chore_duty(name: str) -> str:
    return f"chore:{name}"


class Duties:
    """Keeps this scheduler a member and its duties a fair share."""

    def __init__(
        self,
        coordination: Coordination,
        store: Store,
        clock: Clock,
        settings: SchedulerSettings,
        chores: Iterable[str] = (),
        member: UUID | None = None,
    ) -> None:
        self._coordination = coordination
        self._store = store
        self._clock = clock
        self._ttl = settings.lease
        self._kinds = (
            [shard_duty(shard) for shard in range(SHARDS)],
            [chore_duty(name) for name in chores],
        )
        self._weight = 1.0
        self._held: set[str] = set()
        self._epochs: dict[int, int] = {}
        self._trust_deadline = 0.0
        self._over_since: dict[tuple[int, UUID], float] = {}
        self.member: UUID = uuid4() if member is None else member
        self.is_behind = False
        """Set by who stages: it does not keep up with what is due."""
        self.waker = Waker()
        self.on_gain = Waker()
        """Woken when shards have become ours."""

    @property
    def is_trusted(self) -> bool:
        return time.monotonic() < self._trust_deadline

    @property
    def epochs(self) -> Mapping[int, int]:
        """The shards that are ours to stage, each with its epoch; none when our membership is in doubt."""
        return self._epochs if self.is_trusted else {}

    def has_chore(self, name: str) -> bool:
        return self.is_trusted and chore_duty(name) in self._held

    def drop(self, shards: Iterable[int]) -> None:
        """Forget the epochs of shards: they are not, or may not be, ours. They are asked for anew at once."""
        for shard in shards:
            self._epochs.pop(shard, None)
        self.waker.wake()

    def begin_anew(self) -> None:
        """Forget every duty and epoch: the database is another, and may never have given them to us."""
        self._trust_deadline = 0.0
        self._held, self._epochs = set(), {}
        self.waker.wake()

    async def beat(self) -> timedelta:
        """Stay a member, and take or give back what makes the shares even."""
        self._weigh()
        asked = time.monotonic()
        view = await self._coordination.beat(Member(self.member, self._weight), self._ttl)
        self._trust_deadline = asked + (self._ttl * 0.8).total_seconds()
        self._held = view.held_by(self.member)
        try:
            for kind, duties in enumerate(self._kinds):
                await self._share(kind, duties, view)
        finally:
            # Also where a request failed half-way: what was asked for is not held until it is seen to be.
            await self._enter()
        telemetry.duties(shards=len(self._epochs), members=len(view.members))
        return self._ttl / 4

    async def leave(self) -> None:
        """Give everything back at once."""
        self._trust_deadline = 0.0
        self._held, self._epochs = set(), {}
        try:
            await self._coordination.leave(self.member)
        except errors.CoordinationUnavailable as error:
            # The others take it when our membership has run out.
            telemetry.service_failed("leave", error, 0.0)

    async def _share(self, kind: int, duties: list[str], view: View) -> None:
        weights = {member.id: member.weight for member in view.members.values()}
        if self.member not in weights:
            return
        stubborn = self._stubborn(kind, over_quota(duties, view.owners, weights))
        wanted = wish(duties, view.owners, weights, self.member, stubborn=stubborn)
        if wanted.give:
            self._held -= wanted.give
            self._forget_lost()
            await self._coordination.give(wanted.give, self.member)
        if wanted.take:
            had = await self._coordination.take(wanted.take, self.member)
            self._held |= had
            if had < wanted.take.keys():
                # Somebody was faster. There may be others that neither of us wanted first.
                self.waker.wake()

    async def _enter(self) -> None:
        """Begin an epoch of each shard that has become ours."""
        self._forget_lost()
        gained = [
            shard for shard in range(SHARDS) if shard_duty(shard) in self._held and shard not in self._epochs
        ]
        if gained:
            entered = await self._store.enter_shards(self.member, gained, self._clock.now())
            # Others may have dropped some meanwhile.
            self._epochs = {**self._epochs, **entered}
            self.on_gain.wake()

    def _forget_lost(self) -> None:
        self._epochs = {
            shard: epoch for shard, epoch in self._epochs.items() if shard_duty(shard) in self._held
        }

    def _stubborn(self, kind: int, over: set[UUID]) -> set[UUID]:
        """Members that have had too much for as long as a dead one would have been believed to live."""
        now = time.monotonic()
        since = {
            (kind, member): self._over_since.get((kind, member), now)
            for member in over
            if member != self.member
        }
        self._over_since = {key: at for key, at in self._over_since.items() if key[0] != kind} | since
        return {member for (_, member), at in since.items() if now - at > self._ttl.total_seconds()}

    def _weigh(self) -> None:
        self._weight = (
            max(LEAST_WEIGHT, self._weight * LESS) if self.is_behind else min(1.0, self._weight * MORE)
        )


class DutyLoop(Loop):
    """Beats as long as the scheduler runs, and leaves when it stops."""

    def __init__(self, duties: Duties) -> None:
        super().__init__("duties", duties.beat, on_error=telemetry.service_failed, waker=duties.waker)
        self._duties = duties

    async def run(self) -> None:
        await super().run()
        await self._duties.leave()
