"""Who lives, by what one observer has seen of them and by its own monotonic clock.

A member writes its key anew at each beat, and the key's revision changes with it. Who sees a revision for the first time
knows that the beat was carried out before that, and so believes in the member for its ttl from there: never less than was
promised, and no longer than ttl after the first look. No two clocks are ever compared. When the time has passed, a key that
a later question still finds unchanged belongs to the dead.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class _Sighting:
    revision: int
    ttl: float
    first_seen: float


class Sightings:
    """When each member's present revision was first seen. Times are this process's monotonic seconds."""

    def __init__(self) -> None:
        self._known: dict[UUID, _Sighting] = {}

    def see(self, member: UUID, revision: int, ttl: float, at: float) -> None:
        """Note what an answer that came at `at` shows. Any other revision is news, also a lower one (a restore)."""
        known = self._known.get(member)
        if known is None or known.revision != revision:
            self._known[member] = _Sighting(revision, ttl, at)

    def hear(self, member: UUID, revision: int, ttl: float, at: float) -> None:
        """Note what a watch tells, which may come after an answer that is newer."""
        known = self._known.get(member)
        if known is None or known.revision < revision:
            self._known[member] = _Sighting(revision, ttl, at)

    def keep(self, members: Container[UUID]) -> None:
        """Forget all others: they have no key any more."""
        self._known = {member: seen for member, seen in self._known.items() if member in members}

    def is_dead(self, member: UUID, asked: float) -> bool:
        """Whether a member whose key was unchanged in the answer to a question of `asked` is believed no more."""
        seen = self._known[member]
        return asked >= seen.first_seen + seen.ttl

    def next_death(self, after: float) -> float | None:
        """When the next of them dies, if nothing more is seen of it."""
        ends = [seen.first_seen + seen.ttl for seen in self._known.values()]
        return min((end for end in ends if end > after), default=None)
