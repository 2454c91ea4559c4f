"""A graph of jobs made at random, how each execution ends, and what should become of every slot.

Nothing here is the product's: the rule is written down a second time, from what the guide says of it. Workers import this
module too, for the handler that ends each attempt as `outcome` says.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cronwell import Context, handler

ATTEMPTS = 2
SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Job:
    """A job of the graph: one with a period in seconds, or one that follows others."""

    name: str
    period: int = 0
    mode: str = "all"
    upstreams: tuple[tuple[str, str], ...] = ()
    delay: timedelta = timedelta()

    def definition(self, first: datetime, last: datetime) -> dict[str, Any]:
        how: dict[str, Any] = {}
        if self.period:
            how["schedule"] = {
                "every": f"{self.period}s",
                "anchor": first.isoformat(),
                "start": first.isoformat(),
                "end": last.isoformat(),
            }
        else:
            listed = [{"job": name, "on": on} for name, on in self.upstreams]
            delay = f"{self.delay // timedelta(milliseconds=1)}ms"
            how["after"] = {self.mode: listed, "delay": delay} if self.delay or self.mode == "any" else listed
        return {
            "name": self.name,
            "target": {"handler": {"name": "dag.work"}},
            "overlap": "allow",
            "catch_up": "all",
            "retry": {"max_attempts": ATTEMPTS, "initial_delay": "100ms", "jitter": 0},
            **how,
        }


@dataclass(frozen=True)
class Fate:
    """What should become of a slot of a job."""

    state: str
    reason: str | None = None
    attempts: int = 0


def make(seed: int, count: int) -> list[Job]:
    """So many jobs, each after those that it follows."""
    chance = random.Random(seed)
    jobs: list[Job] = []
    for number in range(count):
        name = f"job-{number:03d}"
        if number < max(3, count // 10):
            jobs.append(Job(name, period=chance.choice((1, 1, 2, 3))))
            continue
        several = chance.sample(jobs, k=min(len(jobs), chance.choice((1, 1, 2, 2, 3, 5))))
        upstreams = tuple(
            (each.name, chance.choice(("succeeded", "succeeded", "succeeded", "finished", "failed")))
            for each in several
        )
        delay = timedelta(milliseconds=chance.choice((0, 0, 0, 250)))
        jobs.append(Job(name, mode=chance.choice(("all", "any")), upstreams=upstreams, delay=delay))
    return jobs


def fails(job: str, slot: datetime, attempt: int) -> bool:
    """Whether an attempt fails: a fifth of them, and half of the retries."""
    text = f"{job}/{slot.astimezone(UTC).isoformat()}/{attempt}"
    return hashlib.sha256(text.encode()).digest()[0] < (51 if attempt == 1 else 128)


def slots(first: datetime, last: datetime) -> list[datetime]:
    return [first + number * SECOND for number in range(int((last - first) / SECOND) + 1)]


def fates(
    jobs: Sequence[Job],
    first: datetime,
    last: datetime,
    *,
    skipped: frozenset[tuple[str, datetime]],
    cancelled: frozenset[tuple[str, datetime]],
) -> dict[tuple[str, datetime], Fate]:
    """What should become of every slot of every job; those that have no such slot are left out."""
    told: dict[tuple[str, datetime], Fate] = {}
    for slot in slots(first, last):
        for job in jobs:
            fate = _fate(job, slot, first, told, skipped, cancelled)
            if fate is not None:
                told[job.name, slot] = fate
    return told


def _fate(
    job: Job,
    slot: datetime,
    first: datetime,
    told: Mapping[tuple[str, datetime], Fate],
    skipped: frozenset[tuple[str, datetime]],
    cancelled: frozenset[tuple[str, datetime]],
) -> Fate | None:
    if job.period:
        if (slot - first) % (job.period * SECOND):
            return None
        if (job.name, slot) in skipped:
            return Fate("skipped", "override")
        if (job.name, slot) in cancelled:
            return Fate("cancelled", "cancelled")
        return _run(job.name, slot)
    ended = [(on, told.get((name, slot))) for name, on in job.upstreams]
    if all(fate is None for _, fate in ended):
        return None
    wanted = {"succeeded": ("succeeded",), "failed": ("failed",), "finished": ("succeeded", "failed")}
    good = [fate is not None and fate.state in wanted[on] for on, fate in ended]
    if any(good) if job.mode == "any" else all(good):
        return _run(job.name, slot)
    _, bad = ended[good.index(False)]
    return Fate("skipped", "upstream_" + ("missing" if bad is None else bad.state))


def _run(job: str, slot: datetime) -> Fate:
    for attempt in range(1, ATTEMPTS + 1):
        if not fails(job, slot, attempt):
            return Fate("succeeded", attempts=attempt)
    return Fate("failed", attempts=ATTEMPTS)


@handler("dag.work")
async def work(ctx: Context) -> str:
    """End as it should, and leave a line for each attempt with what it was told of its upstreams."""
    told = {name: each["state"] for name, each in ctx.upstream.items()}
    line = {"job": ctx.job, "slot": ctx.slot.isoformat(), "attempt": ctx.attempt, "upstream": told}
    # One write to a file that is only added to: lines of several workers do not mix.
    file = os.open(os.environ["DAG_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, json.dumps(line).encode() + b"\n")
    os.close(file)
    if fails(ctx.job, ctx.slot, ctx.attempt):
        raise RuntimeError("as it should")
    return f"{ctx.job} at {ctx.slot.isoformat()}"
