"""How members share duties: evenly, by their weights, and with no more movement than that needs.

Each member works it out for itself from what all of them see. Nobody has to agree: two who want the same duty are
settled by whoever keeps the duties, and a view that was out of date is mended by the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Wish:
    """What a member should do about duties of one kind."""

    take: Mapping[str, UUID | None]
    """Duties to take, each with the owner that it was seen with."""
    give: frozenset[str]


def quotas(count: int, weights: Mapping[UUID, float], held: Mapping[UUID, int]) -> dict[UUID, int]:
    """How many of `count` duties each member should have.

    What cannot be shared evenly goes first to those that have it already, so that it does not move.
    """
    total = sum(weights.values())
    shares = {member: count * weight / total for member, weight in weights.items()}
    found = {member: int(share) for member, share in shares.items()}
    left = count - sum(found.values())
    order = sorted(
        shares,
        key=lambda member: (held.get(member, 0) <= found[member], found[member] - shares[member], member),
    )
    for member in order[:left]:
        found[member] += 1
    return found


def wish(
    duties: Collection[str],
    owners: Mapping[str, UUID],
    weights: Mapping[UUID, float],
    me: UUID,
    *,
    stubborn: Collection[UUID] = (),
) -> Wish:
    """What member `me` should take and give back. `weights` are of all members that live, `me` among them.

    Duties of `stubborn` members, which have had too many for long and do not give them back, may be taken from them.
    """
    held = Counter(owners[name] for name in duties if owners.get(name) in weights)
    quota = quotas(len(duties), weights, held)
    mine = [name for name in duties if owners.get(name) == me]
    spare = len(mine) - quota[me]
    if spare > 0:
        return Wish({}, frozenset(sorted(mine, key=lambda name: preference(name, me))[:spare]))
    free = [name for name in duties if owners.get(name) not in weights]
    for member in sorted(stubborn):
        excess = held[member] - quota.get(member, 0)
        theirs = sorted(
            (name for name in duties if owners.get(name) == member),
            key=lambda name: preference(name, member),
        )
        free += theirs[: max(0, excess)]
    free.sort(key=lambda name: preference(name, me), reverse=True)
    return Wish({name: owners.get(name) for name in free[:-spare]} if spare else {}, frozenset())


def over_quota(
    duties: Collection[str], owners: Mapping[str, UUID], weights: Mapping[UUID, float]
) -> set[UUID]:
    """The members that have more than they should."""
    held = Counter(owners[name] for name in duties if owners.get(name) in weights)
    quota = quotas(len(duties), weights, held)
    return {member for member, count in held.items() if count > quota[member]}


def preference(name: str, member: UUID) -> bytes:
    """How much a member is the one for a duty: of many, the highest (rendezvous hashing)."""
    return blake2b(name.encode(), key=member.bytes, digest_size=8).digest()
