"""Keep a long outage from becoming a storm: what is caught up starts at a rate, behind what is on time.

Missed slots are found all at once. They become ready one after another, `catch_up_rate` of them a second from each
scheduler, and stand one priority below their job's, so that slots on time go before them. A slot on time of the same job
is not held up by one that is not ready yet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import datetime, timedelta

from cronwell.store.port import Move

# A claim that began before the slot was written has ended by then: see `claim` in claims.sql.
HEAD_START = timedelta(seconds=2)


class Pace:
    """Deals out times at a rate. One instance serves a scheduler; one of its own serves a job that is resumed."""

    def __init__(self, rate: int) -> None:
        self._gap = timedelta(seconds=1 / rate)
        self._free_at: datetime | None = None

    def spread(self, moves: Iterable[Move], now: datetime) -> list[Move]:
        """The same moves, with what they catch up ready at its turn; the oldest of a job goes first."""
        return [self._spread(move, now) for move in moves]

    def _spread(self, move: Move, now: datetime) -> Move:
        if not any(each.is_caught_up for each in move.planned):
            return move
        planned = [
            dataclasses.replace(each, ready_at=self._turn(now)) if each.is_caught_up else each
            for each in move.planned
        ]
        return dataclasses.replace(move, planned=planned)

    def _turn(self, now: datetime) -> datetime:
        first = now + HEAD_START
        turn = first if self._free_at is None else max(first, self._free_at)
        self._free_at = turn + self._gap
        return turn
