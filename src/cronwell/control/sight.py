"""What has become of upstreams at a slot, as those that follow them see it.

An upstream that has executions there (of its schedule, a trigger, a backfill) stands as the one that ended last, or is
unfinished as long as any of them is. One that has none is asked for further: its schedule may not have passed the slot yet; or
it follows others itself, and gets an execution there once it is judged by them. Where neither can be it has no such slot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cronwell.model.dependencies import RERUN, UNSEEN, On, Seen
from cronwell.model.execution import OPEN, Kind, State
from cronwell.store.port import AtSlot, Edge, JobPlace, Prospect, SlotPlace, Transaction

_COMING = Seen(State.PENDING)


@dataclass(slots=True)
class Sight:
    """What was read of some places: executions, prospects of those that have none, and what they follow."""

    executions: defaultdict[SlotPlace, list[AtSlot]] = field(default_factory=lambda: defaultdict(list))
    prospects: dict[SlotPlace, Prospect] = field(default_factory=dict)
    upstreams: dict[JobPlace, list[Edge]] = field(default_factory=dict)
    _coming: set[SlotPlace] = field(default_factory=set)

    def of(self, place: SlotPlace) -> list[tuple[On, Seen]]:
        """What has become of the upstreams of a dependent at a slot, in the order of its list."""
        tenant_id, job_id, slot = place
        return [
            (edge.condition, self.at((tenant_id, edge.upstream_id, slot)))
            for edge in self.upstreams.get((tenant_id, job_id), ())
        ]

    def at(self, place: SlotPlace) -> Seen:
        """What has become of a job at a slot."""
        if found := self.executions.get(place):
            return _standing(found)
        if place in self._coming:
            return _COMING
        prospect = self.prospects.get(place)
        return Seen(State.SKIPPED) if prospect is not None and prospect.is_skipped else UNSEEN

    def own(self, place: SlotPlace) -> AtSlot | None:
        """The execution that a dependent has at a slot because it follows others."""
        return next(
            (each for each in self.executions.get(place, ()) if each.key.kind is Kind.DEPENDENCY), None
        )

    def _find_coming(self) -> None:
        """Those that have no execution yet and get one, or a skip: by their schedule, or by one that they follow."""
        followers: defaultdict[SlotPlace, list[SlotPlace]] = defaultdict(list)
        ahead: list[SlotPlace] = []
        for place, prospect in self.prospects.items():
            tenant_id, job_id, slot = place
            above = [
                (tenant_id, edge.upstream_id, slot) for edge in self.upstreams.get((tenant_id, job_id), ())
            ]
            for each in above:
                followers[each].append(place)
            is_judged = any(found.is_followed for each in above for found in self.executions.get(each, ()))
            if prospect.is_ahead or prospect.is_waiting or is_judged:
                ahead.append(place)
        while ahead:
            place = ahead.pop()
            if place not in self._coming:
                self._coming.add(place)
                ahead += followers[place]


async def look(transaction: Transaction, places: Collection[SlotPlace]) -> Sight:
    """Look at dependents at slots, and at all above them that has a part in whether they run."""
    sight = Sight()
    await _read_upstreams(transaction, sight, places)
    await _read(transaction, sight, places)
    ahead = _above(sight.upstreams, places)
    while ahead := [
        place for place in ahead if place not in sight.executions and place not in sight.prospects
    ]:
        await _read(transaction, sight, ahead)
        bare = [place for place in ahead if place not in sight.executions]
        if not bare:
            break
        sight.prospects |= await transaction.prospects_at(bare)
        await _read_upstreams(transaction, sight, bare)
        ahead = _above(sight.upstreams, bare)
    sight._find_coming()
    return sight


async def _read(transaction: Transaction, sight: Sight, places: Iterable[SlotPlace]) -> None:
    for each in await transaction.executions_at(list(places)):
        sight.executions[each.tenant_id, each.key.job_id, each.key.slot].append(each)


async def _read_upstreams(transaction: Transaction, sight: Sight, places: Iterable[SlotPlace]) -> None:
    unread = {(tenant_id, job_id) for tenant_id, job_id, _ in places} - sight.upstreams.keys()
    sight.upstreams |= {each: [] for each in unread}
    for tenant_id, edge in await transaction.upstreams_of(sorted(unread)):
        sight.upstreams[tenant_id, edge.dependent_id].append(edge)


def _above(upstreams: Mapping[JobPlace, Sequence[Edge]], places: Iterable[SlotPlace]) -> list[SlotPlace]:
    found = {
        (tenant_id, edge.upstream_id, slot)
        for tenant_id, job_id, slot in places
        for edge in upstreams.get((tenant_id, job_id), ())
    }
    return sorted(found)


def _standing(executions: Sequence[AtSlot]) -> Seen:
    if any(each.state in OPEN or each.reason == RERUN for each in executions):
        return _COMING
    last = max(executions, key=lambda each: (each.finished_at is not None, each.finished_at))
    return Seen(last.state, last.finished_at)
