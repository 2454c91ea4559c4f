"""A share for those who have waited for too long: no priority waits for ever behind a higher one.

Whoever has waited for a certain age counts as one tier higher, and for twice that age as two tiers. If those went first, a
long backlog of low priority would stand before everything that is high; so they get a tenth of the places between them, as
long as there are more of the higher tier than there are places for. Where there is room for all nobody needs it.
"""

from __future__ import annotations

from collections.abc import Sequence

SHARE = 0.1


class Ageing:
    """How much of the share is due."""

    __slots__ = ("_due", "_turn")

    def __init__(self) -> None:
        self._due = 0.0
        self._turn = 0

    def allot(self, places: int) -> int:
        """How many of so many places those who are old enough may have; fractions add up."""
        self._due += places * SHARE
        given = int(self._due + 1e-9)
        self._due -= given
        return min(given, places)

    def order(self, tiers: Sequence[int]) -> list[int]:
        """In which order to ask tiers: each time another one is the first, so that none takes the whole share."""
        if not tiers:
            return []
        start = self._turn % len(tiers)
        self._turn += 1
        return [*tiers[start:], *tiers[:start]]
