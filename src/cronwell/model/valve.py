"""Whether an execution may start now, as far as its target is concerned; and when to come again if it may not.

A valve stands before one target, in one worker. It keeps that worker's share of the target's limit, the breaker of a host,
and a bound on how much of the worker a host that is slow to answer takes up.

Who may not start waits elsewhere: it is written back with a later time to be ready, and takes no place, no connection and no
attempt. When that is follows from the *line*: each gets a time of its own, as far apart as the target can take them, so
that they come back one by one and in order instead of all at once and in vain. Whoever comes back goes before those who
come for the first time; these join the end of the line while there is one.

Several workers write into lines of their own, and any worker may take up what comes back. If each spread its own as far
apart as its share of a rate allows, a herd that one of them claimed would take as long as if the others had no share. So
a worker spreads at the whole rate, and slower (down to its share) when what comes back is turned away again.

A rate is kept by the generic cell rate algorithm: `due` is when the next start would be on time, and a few may be early.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from cronwell.model.breaker import Breaker
from cronwell.model.throttle import NO_LIMIT, Limit

Cause = Literal["rate", "concurrency", "breaker", "crowd"]

PATIENCE = 1.0
"""Seconds that one may wait in the worker itself, in its place."""
LONGEST_PATIENCE = 5.0
"""Where the next start of a slow rate is so near, it is waited for."""
WAITING = 50
"""And so many at the most for one rate."""
BURST = 0.1
"""What this many seconds bring may start at once."""
SOONEST = 0.25
"""Seconds; to come back earlier is not worth the writing."""
CROWD_PATIENCE = 1.0
"""Seconds within which a host should have taken up all that waits for it in the worker."""
ASK_AGAIN = 0.05
HELD_PACE = 100.0
"""So many a second come back of those who wait for no rate."""
SLOWEST_PACE = 20.0
"""And of those who wait for a host that hardly answers."""
FIRST_GUESS = 0.1
"""How many seconds one takes, as long as none has ended."""
_SLOWER, _FASTER = 0.9, 1.01
_SMOOTHING = 0.2


@dataclass(frozen=True, slots=True)
class Room:
    """How much of a worker one host may take up before it must have shown that it answers."""

    places: int
    """The worker's."""
    per_host: int
    """Requests that are under way to one host at once: more than that wait for each other."""

    @property
    def free(self) -> int:
        return max(self.per_host, self.places // 2)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with one that wants to start: start it (`wait` 0), let it wait in its place, or hold it back."""

    wait: float = 0.0
    """Seconds."""
    is_held: bool = False
    cause: Cause | None = None
    asks_again: bool = False
    """It waits without having been let in."""


GO = Verdict()


class Valve:
    """Before one target. Times are seconds on one clock that never runs back."""

    __slots__ = (
        "_again", "_answered", "_answers_from", "_crowded_at", "_due", "_limit", "_line", "_own_breaker", "_room", "_seconds", "_share", "_speed",
        "_workers", "breaker", "running",
    )  # fmt: skip

    def __init__(self, breaker: Breaker | None = None, room: Room | None = None) -> None:
        self._own_breaker = breaker
        self.breaker = breaker
        """None where the target's health is not looked at."""
        self._room = room
        self.running = 0
        """Let in, and not out again."""
        self._limit = self._share = NO_LIMIT
        self._workers = 1
        self._due = 0.0
        self._line = self._again = 0.0
        self._speed = 1.0
        self._seconds: float | None = None
        """How long one takes, as far as is known."""
        self._answered = [0, 0]
        """How many answers came in this second, and in the one before."""
        self._answers_from = 0.0
        self._crowded_at = math.inf
        """Since when the host does not keep up."""

    @property
    def is_idle(self) -> bool:
        """Whether a new one would do as well."""
        is_healthy = self._own_breaker is None or self._own_breaker.is_idle
        return not self.running and is_healthy and self._limit is NO_LIMIT

    def limit(self, whole: Limit | None, workers: int, rank: int) -> None:
        """Keep a share of a limit, of so many workers; None: there is none any more."""
        if whole != self._limit:
            # What waits was placed for another limit.
            self._line = self._again = self._due = 0.0
            self._speed = 1.0
        self._limit = NO_LIMIT if whole is None else whole
        self.breaker = self._own_breaker if self._limit.breaker else None
        self._workers = workers
        self._share = self._limit.share(workers, rank) if self._limit.is_any else NO_LIMIT

    def ask(self, now: float, *, is_back: bool = False) -> Verdict:
        """One wants to start. `is_back`: it was held before."""
        breaker = self.breaker
        if breaker is not None and breaker.state != "closed" and (wait := breaker.wait(now)) > 0:
            return self._hold(now, wait, "breaker", HELD_PACE, is_back=False)
        if self._room is not None and self.running >= self._room.free and self._is_crowded(now, self._room):
            if now < self._crowded_at + PATIENCE:
                return Verdict(ASK_AGAIN, asks_again=True)
            return self._hold(now, PATIENCE, "crowd", max(self._answers(now), SLOWEST_PACE), is_back=False)
        if self._share is NO_LIMIT:
            return GO
        return self._by_limit(now, is_back=is_back)

    def enter(self) -> bool:
        """One is let in; whether it is a trial of the breaker."""
        self.running += 1
        breaker = self.breaker
        return breaker is not None and breaker.state != "closed" and breaker.enter()

    def leave(self, now: float, took: float | None) -> None:
        """One is out again, after so many seconds; None: it never began."""
        self.running -= 1
        if took is not None:
            took = max(took, 0.001)
            self._seconds = (
                took if self._seconds is None else self._seconds + _SMOOTHING * (took - self._seconds)
            )
            self._turn(now)
            self._answered[0] += 1

    def _by_limit(self, now: float, *, is_back: bool) -> Verdict:
        rate, places = self._share.rate, self._share.concurrency
        if places is not None and self.running >= places:
            return self._turned_away(now, 0.0, "concurrency", is_back=is_back)
        if not is_back and self._line > now:
            return self._hold(
                now, 0.0, "rate" if rate is not None else "concurrency", self._pace(), is_back=False
            )
        if rate is None:
            return self._let_in(0.0, is_back=is_back)
        tolerance = max(rate * BURST - 1.0, 0.0) / rate
        wait = max(0.0, self._due - tolerance - now)
        if wait > min(max(PATIENCE, 1.0 / rate), LONGEST_PATIENCE, WAITING / rate):
            return self._turned_away(now, wait, "rate", is_back=is_back)
        self._due = max(self._due, now) + 1.0 / rate
        return self._let_in(wait, is_back=is_back)

    def _let_in(self, wait: float, *, is_back: bool) -> Verdict:
        if is_back:
            self._speed = min(1.0, self._speed * _FASTER)
        return GO if wait <= 0.0 else Verdict(wait)

    def _turned_away(self, now: float, wait: float, cause: Cause, *, is_back: bool) -> Verdict:
        if is_back:
            self._speed = max(1.0 / self._workers, self._speed * _SLOWER)
        return self._hold(now, wait, cause, self._pace(), is_back=is_back)

    def _pace(self) -> float:
        """How many a second the target can take, of what this worker sends back to the line."""
        rate, places = self._limit.rate, self._limit.concurrency
        paces = [] if rate is None else [rate]
        if places is not None:
            paces.append(places / (FIRST_GUESS if self._seconds is None else self._seconds))
        return min(paces, default=HELD_PACE) * self._speed

    def _hold(self, now: float, wait: float, cause: Cause, pace: float, *, is_back: bool) -> Verdict:
        earliest = now + max(wait, SOONEST)
        if is_back:
            at = max(self._again, earliest)
            self._again = at + 1.0 / pace
        else:
            at = max(self._line, earliest)
            self._line = at + 1.0 / pace
        return Verdict(at - now, is_held=True, cause=cause)

    def _is_crowded(self, now: float, room: Room) -> bool:
        """Whether one more would only take up a place: the host does not keep up with what is here for it."""
        is_crowded = self.running - room.per_host > CROWD_PATIENCE * self._answers(now)
        if not is_crowded:
            self._crowded_at = math.inf
        elif self._crowded_at == math.inf:
            self._crowded_at = now
        return is_crowded

    def _answers(self, now: float) -> float:
        """Answers a second, lately."""
        self._turn(now)
        return float(max(self._answered))

    def _turn(self, now: float) -> None:
        passed = now - self._answers_from
        if passed >= 1.0:
            self._answered = [0, self._answered[0] if passed < 2.0 else 0]
            self._answers_from = now
