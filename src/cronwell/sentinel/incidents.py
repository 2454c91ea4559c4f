"""What goes on since when, so that each thing is told when it begins, now and then while it lasts, and when it is over."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from cronwell.sentinel.judging import SCHEDULERS, WORKERS, Level, Problem, Verdict

CALM_LOOKS = 2
"""A thing is over when it was not seen in so many looks."""
# A restart leaves nobody for a moment.
PATIENT = frozenset({WORKERS, SCHEDULERS})


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell."""

    event: str
    """`page`, `repeat` or `resolve`."""
    incident: str
    kind: str
    words: str
    lasted: timedelta


@dataclass(frozen=True, slots=True)
class _Open:
    id: str
    began: float
    told: float
    words: str
    calm: int = 0


class Incidents:
    """Turns verdicts into notices. Times are of the monotonic clock, in seconds."""

    def __init__(self, *, patience: timedelta, repeat: timedelta, tell: Callable[[Notice], None]) -> None:
        self._patience = patience.total_seconds()
        self._repeat = repeat.total_seconds()
        self._tell = tell
        self._open: dict[str, _Open] = {}
        self._first_seen: dict[str, float] = {}

    def take(self, verdict: Verdict, now: float) -> list[Problem]:
        """Tell what has begun, lasts, or is over; the problems that have lasted long enough to be believed come back."""
        seen = {each.kind: each for each in verdict.problems}
        self._first_seen = {
            kind: self._first_seen.get(kind, now)
            for kind in seen.keys() | (self._first_seen.keys() & verdict.unknown)
        }
        believed = [each for each in verdict.problems if self._is_believed(each, now)]
        critical = {each.kind: each for each in believed if each.level is Level.CRITICAL}
        for problem in critical.values():
            self._go_on(problem, now)
        for kind in self._open.keys() - critical.keys() - verdict.unknown:
            self._calm_down(kind, now)
        return believed

    def _is_believed(self, problem: Problem, now: float) -> bool:
        return problem.kind not in PATIENT or now - self._first_seen[problem.kind] >= self._patience

    def _go_on(self, problem: Problem, now: float) -> None:
        known = self._open.get(problem.kind)
        if known is None:
            known = _Open(uuid4().hex, now, now, problem.words)
            self._say("page", problem.kind, known, now)
        elif now - known.told >= self._repeat:
            known = dataclasses.replace(known, told=now, words=problem.words)
            self._say("repeat", problem.kind, known, now)
        self._open[problem.kind] = dataclasses.replace(known, words=problem.words, calm=0)

    def _calm_down(self, kind: str, now: float) -> None:
        known = dataclasses.replace(self._open[kind], calm=self._open[kind].calm + 1)
        self._open[kind] = known
        if known.calm >= CALM_LOOKS:
            del self._open[kind]
            self._say("resolve", kind, known, now)

    def _say(self, event: str, kind: str, known: _Open, now: float) -> None:
        self._tell(Notice(event, known.id, kind, known.words, timedelta(seconds=now - known.began)))
