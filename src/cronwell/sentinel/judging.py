"""What the sentinel makes of what it has read. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

DATABASE = "database"
WATERMARK = "watermark"
SHARDS = "shards"
OVERDUE = "overdue"
WORKERS = "workers"
SCHEDULERS = "schedulers"
_SHOWN = 8


class Level(IntEnum):
    """How bad it is; also the exit code of a single look."""

    FINE = 0
    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """When to say something."""

    warn_at: timedelta
    page_at: timedelta
    """A watermark that is less than this ahead of the clock."""
    unmarked: timedelta
    overdue: timedelta
    unanswered: timedelta


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is overdue in one pool, or before one gate."""

    pool: str
    count: int
    oldest: datetime


@dataclass(frozen=True, slots=True)
class Reading:
    """How things stood, by the database's clock."""

    now: datetime
    watermark: datetime | None
    """The oldest of all shards; None where none was ever marked."""
    unmarked: tuple[int, ...]
    schedulers: int
    workers: int
    overdue: tuple[Waiting, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    kind: str
    level: Level
    words: str


@dataclass(frozen=True, slots=True)
class Verdict:
    problems: tuple[Problem, ...]
    unknown: frozenset[str] = frozenset()
    """Kinds of which nothing can be said at present: neither that they are over nor that they have begun."""

    @property
    def level(self) -> Level:
        return max((each.level for each in self.problems), default=Level.FINE)


def judge(reading: Reading | None, silence: timedelta, why: str, limits: Limits) -> Verdict:
    """What is wrong, going by the latest reading and for how long there was none since; `why` says why not.

    A watermark goes on being used up while the database is silent, so it is held against the time that it must be by now.
    """
    problems: list[Problem] = []
    if silence:
        level = Level.CRITICAL if silence >= limits.unanswered else Level.WARNING
        problems.append(Problem(DATABASE, level, f"the database does not answer: {why}"))
    if reading is None:
        return Verdict(tuple(problems), frozenset({WATERMARK, SHARDS, OVERDUE, WORKERS, SCHEDULERS}))
    problems += _watermark(reading, reading.now + silence, limits)
    if silence:
        return Verdict(tuple(problems), frozenset({SHARDS, OVERDUE, WORKERS, SCHEDULERS}))
    return Verdict((*problems, *_present(reading, limits)))


def in_words(reading: Reading) -> str:
    """How things stand, on one line."""
    ahead = "no watermark" if reading.watermark is None else f"{_ahead(reading.watermark - reading.now)}"
    late = sum(each.count for each in reading.overdue)
    return (
        f"slots are accounted for up to {ahead}; {_count(reading.schedulers, 'scheduler')}, "
        f"{_count(reading.workers, 'worker')}, {late or 'nothing'} overdue"
    )


def _watermark(reading: Reading, now: datetime, limits: Limits) -> Iterable[Problem]:
    if reading.watermark is None:
        return
    ahead = reading.watermark - now
    if ahead < limits.warn_at:
        level = Level.CRITICAL if ahead < limits.page_at else Level.WARNING
        when = "slots are late" if ahead < timedelta() else "slots will be late after that"
        yield Problem(WATERMARK, level, f"slots are accounted for up to {_ahead(ahead)} only; {when}")


def _present(reading: Reading, limits: Limits) -> Iterable[Problem]:
    if reading.unmarked:
        shown = ", ".join(map(str, reading.unmarked[:_SHOWN]))
        more = f" and {len(reading.unmarked) - _SHOWN} more" if len(reading.unmarked) > _SHOWN else ""
        yield Problem(
            SHARDS,
            Level.CRITICAL,
            f"nobody has staged shards {shown}{more} for {_seconds(limits.unmarked)}",
        )
    if reading.overdue:
        worst = min(reading.overdue, key=lambda each: each.oldest)
        count = sum(each.count for each in reading.overdue)
        yield Problem(
            OVERDUE,
            Level.CRITICAL,
            f"{count} executions are overdue, the oldest for {_seconds(reading.now - worst.oldest)} "
            f"in the pool {worst.pool!r}",
        )
    if not reading.workers:
        yield Problem(WORKERS, Level.CRITICAL, "no worker lives: nothing that is due will start")
    if not reading.schedulers:
        yield Problem(SCHEDULERS, Level.WARNING, "no scheduler lives: nothing more is staged")


def _ahead(length: timedelta) -> str:
    return f"{_seconds(abs(length))} {'from now' if length >= timedelta() else 'ago'}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _seconds(length: timedelta) -> str:
    seconds = length.total_seconds()
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
