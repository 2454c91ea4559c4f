"""What time it is. Due-ness is judged by the database's clock, and each node knows its offset to it.

A node's own wall clock may be an hour wrong or jump; it is never asked. `DatabaseClock` ties the node's monotonic
clock to the database's. One question, sent at monotonic time `a` and answered at `b` with the database's time `t`,
proves that the offset (database time - monotonic time) lies between `t - b` and `t - a`: the answer was read no
later than `b` and no earlier than `a`. Answers are intersected, so the quickest round trip decides, and between
measurements the interval widens by the rate at which two clocks may drift apart. `now()` is the interval's lower end:
it may be late by `uncertainty`, but it never claims a time that the database has not reached, so nothing fires early.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from cronwell.runtime.postgres import Database
from cronwell.runtime.service import ErrorReport, Loop

ROUNDS = 5
REFRESH_EVERY = timedelta(seconds=10)

# Crystals differ by up to some 50 parts per million, and a clock that is being corrected is slewed by as much again.
DRIFT = 100e-6

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    """The present time, and the monotonic time on which waits are timed."""

    def now(self) -> datetime:
        """The time by which due-ness is judged: the database's, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps; the event loop's."""
        ...

    def monotonic_at(self, at: datetime) -> float:
        """The monotonic time at which `now()` reaches `at`, as far as is known now."""
        ...


class SystemClock:
    """The machine's own clock, for what has no database."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def monotonic_at(self, at: datetime) -> float:
        return time.monotonic() + (at - self.now()).total_seconds()


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = now.astimezone(UTC)
        self._monotonic = 1000.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def monotonic_at(self, at: datetime) -> float:
        return self._monotonic + (at - self._now).total_seconds()

    def advance(self, length: timedelta) -> None:
        """Let time pass on both clocks."""
        if length < timedelta():
            raise ValueError("time does not run backwards; use set() for a clock that is put back")
        self._now += length
        self._monotonic += length.total_seconds()

    def set(self, now: datetime) -> None:
        """Put the wall clock to `now`, as an operator would; the monotonic clock does not move."""
        self._now = now.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Offset:
    """Database time minus monotonic time, in seconds: between `lowest` and `highest`, as known at `measured_at`."""

    lowest: float
    highest: float
    measured_at: float

    @classmethod
    def of(cls, asked_at: float, answer: datetime, answered_at: float) -> Offset:
        """What one answer of the database proves."""
        told = (answer - _EPOCH) / timedelta(seconds=1)
        return cls(told - answered_at, told - asked_at, answered_at)

    def at(self, monotonic: float) -> Offset:
        """The same knowledge at another time, widened by what the clocks may have drifted since."""
        drift = abs(monotonic - self.measured_at) * DRIFT
        return Offset(self.lowest - drift, self.highest + drift, monotonic)

    def narrowed_by(self, newer: Offset) -> Offset:
        """Both measurements at once; where they contradict each other, the database's clock was set: the newer."""
        older = self.at(newer.measured_at)
        lowest, highest = max(older.lowest, newer.lowest), min(older.highest, newer.highest)
        return Offset(lowest, highest, newer.measured_at) if lowest <= highest else newer


class DatabaseClock:
    """The database's time, told from this node's monotonic clock; late by `uncertainty` at most, never early."""

    def __init__(self, offset: Offset) -> None:
        self._offset = offset

    @classmethod
    async def measured(cls, database: Database) -> DatabaseClock:
        """Make a clock that has just been measured."""
        return cls(await _measure(database))

    async def measure(self, database: Database) -> None:
        """Ask the database for its time in a few rounds and narrow the offset by each answer."""
        self._offset = self._offset.narrowed_by(await _measure(database))

    def keep_measured(
        self, database: Database, *, on_error: ErrorReport, every: timedelta = REFRESH_EVERY
    ) -> Loop:
        """The service that measures again and again."""

        async def poll() -> timedelta:
            await self.measure(database)
            return every

        return Loop("clock", poll, on_error=on_error)

    def now(self) -> datetime:
        monotonic = time.monotonic()
        offset = self._offset
        # What `Offset.at` says of its lower bound, without making one: this is asked twice for each attempt.
        return _at(monotonic + offset.lowest - abs(monotonic - offset.measured_at) * DRIFT)

    def monotonic(self) -> float:
        return time.monotonic()

    def monotonic_at(self, at: datetime) -> float:
        offset = self._offset
        known = offset.measured_at
        ahead = at.timestamp() - (known + offset.lowest)
        # The inverse of now(), whose seconds are DRIFT longer after the measurement and as much shorter before it.
        # The microsecond makes up for rounding: now() has reached `at` by then.
        return known + ahead / (1 - DRIFT if ahead > 0 else 1 + DRIFT) + 1e-6

    @property
    def uncertainty(self) -> timedelta:
        """How far `now()` may be behind the database's clock."""
        offset = self._offset.at(time.monotonic())
        return timedelta(seconds=offset.highest - offset.lowest)


async def _measure(database: Database) -> Offset:
    best: Offset | None = None
    # One connection for all rounds: the first pays for connecting and preparing, the others are quick.
    async with database.transaction() as connection:
        for _ in range(ROUNDS):
            asked_at = time.monotonic()
            answer: datetime = await connection.fetchval("select clock_timestamp()")
            answered_at = time.monotonic()
            offset = Offset.of(asked_at, answer, answered_at)
            best = offset if best is None else best.narrowed_by(offset)
    assert best is not None
    return best


def _at(seconds: float) -> datetime:
    # A float of this size is exact to a quarter of a microsecond; rounding down keeps it from telling the future.
    return _EPOCH + int(seconds * 1_000_000) * _MICROSECOND
