"""Coordination: which scheduler does what, so that they keep out of each other's way.

A duty is anything that one scheduler at a time should do: stage a shard, rescue what lost workers held. Members share the
duties; a duty belongs to its owner for as long as that is a living member. It saves work and never makes anything
correct: whatever is done under a duty is also safe when two hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from cronwell.runtime.service import Service


@dataclass(frozen=True, slots=True)
class Member:
    """One scheduler process. Its id is random, made anew at each start; never a host's name."""

    id: UUID
    weight: float = 1.0
    """The share of the duties that it can carry, next to the others'."""
    reaches: bool = True
    """Whether it reaches the coordinator that all of them would go by if they could."""


@dataclass(frozen=True, slots=True)
class View:
    """The members that live, and who was last given each duty. An owner that is not among the members has it no more."""

    members: Mapping[UUID, Member]
    owners: Mapping[str, UUID]

    def held_by(self, member: UUID) -> set[str]:
        return {name for name, owner in self.owners.items() if owner == member}


class Coordination(Protocol):
    """Keeps members and duties. Every method raises CoordinationUnavailable where nothing is known to have happened.

    Whoever asks trusts an answer until (its own monotonic time before the request) + ttl - margin; an error is never
    ownership. Others count a member as living for at least `ttl` after the last request of it that was carried out.
    """

    async def beat(self, member: Member, ttl: timedelta) -> View:
        """Enter or stay a member for `ttl` from now, and see how things stand after that."""
        ...

    async def take(self, wanted: Mapping[str, UUID | None], member: UUID) -> set[str]:
        """Take duties, each from the owner that it was seen with (None: it had none yet); those that were had.

        One that has changed hands meanwhile is not had. Only a member may ask.
        """
        ...

    async def give(self, names: Iterable[str], member: UUID) -> None:
        """Give duties back, so that others may take them at once. What belongs to another stays with it."""
        ...

    async def leave(self, member: UUID) -> None:
        """Give everything back and be a member no more."""
        ...

    def watch(self, on_change: Callable[[], None]) -> Service:
        """A service that tells when duties were given back or members came or went: a hint to look at once."""
        ...

    async def close(self) -> None:
        """Hang up."""
        ...
