"""The figures, computed from start times in the same way for everybody."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bench.peers.protocol import Report, Task

SHARES = {"p50": 0.5, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, slots=True)
class Figures:
    """What one system did with one kind of work."""

    expected: int
    started: int
    """Of the expected ones, those that started, each counted once."""
    again: int = 0
    """Starts of what had started before."""
    per_second: float | None = None
    lateness_ms: dict[str, float] = field(default_factory=dict)
    note: str = ""
    rounds: Sequence[float] = ()
    """Of a drain that was run several times: the rate of each, of which `per_second` is the middle one."""

    @property
    def missed(self) -> int:
        return self.expected - self.started

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "missed": self.missed}


def figures_of(
    task: Task,
    report: Report,
    ended_at: float | None = None,
    note: str = "",
) -> Figures:
    """The figures of any work; a drain has ended when the store has recorded its last job."""
    if task.work == "drain":
        return drained(task, report, ended_at, note)
    if task.work == "steady":
        return kept_up(task, report, note)
    return recurred(task, report, note)


def drained(task: Task, report: Report, ended_at: float | None, note: str = "") -> Figures:
    """Jobs a second, from the first start until the store has recorded the last, or at least until the last start."""
    if not report.starts:
        return Figures(task.jobs, 0, per_second=0.0, note=note)
    first, last = min(report.starts), max(report.starts)
    took = max(last, ended_at or last) - first
    started = min(len(report.starts), task.jobs)
    return Figures(
        task.jobs,
        started,
        again=len(report.starts) - started,
        per_second=started / took if took > 0 else None,
        note=note,
    )


def middle_of(rounds: Sequence[Figures]) -> Figures:
    """The drain with the middle rate of several, and the rates of all; what any of them missed or ran again counts."""
    ordered = sorted(rounds, key=lambda each: each.per_second or 0.0)
    return replace(
        ordered[(len(ordered) - 1) // 2],
        started=min(each.started for each in rounds),
        again=max(each.again for each in rounds),
        note="; ".join(dict.fromkeys(each.note for each in rounds if each.note)),
        rounds=[each.per_second or 0.0 for each in rounds] if len(rounds) > 1 else (),
    )


def kept_up(task: Task, report: Report, note: str = "") -> Figures:
    """Lateness of every job of a steady rate against the moment that it was due."""
    if report.dues is None and report.starts:
        raise ValueError("a steady rate needs the moment that each job was due")
    late = [start - due for start, due in zip(report.starts, report.dues or (), strict=True)]
    # More starts than jobs: what ran twice must not make up for what did not run.
    distinct = len(set(report.keys)) if report.keys is not None else min(len(late), task.jobs)
    return Figures(task.jobs, distinct, again=len(late) - distinct, lateness_ms=lateness(late), note=note)


def recurred(task: Task, report: Report, note: str = "") -> Figures:
    """Fires of the slots from the start of the task on; lateness against the slot.

    Who is not told the slot is measured against the nearest point of a grid that each schedule's first start begins:
    kindly, that start counts as punctual.
    """
    slots = math.ceil(task.seconds / task.period - 1e-9)
    expected = task.schedules * slots
    end = task.start + slots * task.period
    if report.dues is None:
        return _recurred_unnamed(task, report, slots, note)
    first: dict[tuple[int, float], float] = {}
    again = 0
    keys = report.keys if report.keys is not None else [0] * len(report.starts)
    for key, due, start in zip(keys, report.dues, report.starts, strict=True):
        if not task.start - 1e-6 <= due < end - 1e-6:
            continue
        slot = (key, round(due, 3))
        again += slot in first
        first[slot] = min(start, first.get(slot, start))
    late = [start - due for (_, due), start in first.items()]
    return Figures(expected, len(first), again=again, lateness_ms=lateness(late), note=note)


def _recurred_unnamed(task: Task, report: Report, slots: int, note: str) -> Figures:
    by_key: dict[int, list[float]] = defaultdict(list)
    end = task.start + slots * task.period
    for key, start in zip(report.keys or (), report.starts, strict=True):
        if task.start <= start < end:
            by_key[key].append(start)
    late: list[float] = []
    started = again = 0
    for starts in by_key.values():
        anchor = min(starts)
        nearest = [round((start - anchor) / task.period) for start in starts]
        late += [start - anchor - slot * task.period for start, slot in zip(starts, nearest, strict=True)]
        started += len(set(nearest))
        again += len(nearest) - len(set(nearest))
    expected = task.schedules * slots
    return Figures(expected, min(started, expected), again=again, lateness_ms=lateness(late), note=note)


def lateness(seconds: Sequence[float]) -> dict[str, float]:
    """How late in milliseconds, at each share. Early by the difference of two clocks is punctual."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {
        name: round(1000 * max(ordered[max(math.ceil(share * len(ordered)) - 1, 0)], 0.0), 1)
        for name, share in SHARES.items()
    }


def multiple(own: Figures, other: Figures) -> float | None:
    """How many times as well Cronwell does: by its rate, or by its lateness at p99."""
    if own.per_second and other.per_second:
        return own.per_second / other.per_second
    if own.lateness_ms and other.lateness_ms:
        return other.lateness_ms["p99"] / max(own.lateness_ms["p99"], 0.1)
    return None
