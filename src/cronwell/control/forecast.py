"""How many fires each minute of the next day has, over all jobs.

Jobs that share a plan are worked out once. Of more jobs than some 20,000 a random sample is taken and scaled up; and what
cannot be worked out in a few seconds is taken to fire like the rest of what is no herd. The answer is kept for a minute.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import ConfigDict, Field

from cronwell import errors
from cronwell.control.views import Moment, View
from cronwell.model.load import MINUTE, fires
from cronwell.model.planning import load_plan
from cronwell.runtime.clock import Clock
from cronwell.store.port import Herd, Store

MINUTES = 1440
MOST_JOBS = 20_000
"""More jobs than this are sampled."""
BUDGET = timedelta(seconds=3)
"""Longest that plans are worked out for one answer."""
KEPT = timedelta(minutes=1)

_HERD_SHARE = 0.01


class Peak(View):
    at: Moment
    """The minute with the most fires."""
    count: int


class ForecastView(View):
    """Fires in each minute of the next day."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, serialize_by_alias=True)

    from_: Moment = Field(serialization_alias="from")
    """The minute that is under way; the first of `minutes`."""
    to: Moment
    jobs: int
    """Scheduled jobs that are not paused; an estimate where they were sampled."""
    total: int
    """Fires in all minutes."""
    peak: Peak
    is_sampled: bool
    """Whether the numbers are estimates from a part of the jobs."""
    share: float
    """The part of the jobs that was worked out, from 0 to 1."""
    minutes: list[int]
    """1,440 numbers, one for each minute."""


@dataclass(frozen=True, slots=True)
class _Kept:
    view: ForecastView
    deadline: float


class Forecast:
    """The verb. One instance serves a process."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._kept: dict[int, _Kept] = {}
        self._lock = asyncio.Lock()

    async def forecast(self, tenant_id: int) -> ForecastView:
        """Fires per minute for the next 24 hours."""
        # One at a time: who asks meanwhile gets the answer that is being made.
        async with self._lock:
            kept = self._kept.get(tenant_id)
            if kept is not None and time.monotonic() < kept.deadline:
                return kept.view
            herds, share = await self._store.herds(tenant_id, MOST_JOBS)
            # Seconds of arithmetic in the worst case, too long to keep the event loop from others.
            view = await asyncio.to_thread(_work_out, herds, share, self._clock.now())
            self._kept[tenant_id] = _Kept(view, time.monotonic() + KEPT.total_seconds())
            return view


def _work_out(herds: Sequence[Herd], share: float, now: datetime) -> ForecastView:
    start = now.replace(second=0, microsecond=0)
    jobs = sum(herd.jobs for herd in herds)
    large, small = [0.0] * MINUTES, [0.0] * MINUTES
    done_small = done = 0
    deadline = time.monotonic() + BUDGET.total_seconds()
    # Herds first: they are most of the fires for the least of the work. The rest in no order that means anything.
    for herd in sorted(herds, key=lambda herd: (-herd.jobs, hash(herd.plan))):
        if time.monotonic() > deadline:
            break
        is_large = herd.jobs >= max(2, jobs * _HERD_SHARE)
        _add(large if is_large else small, herd, now, start)
        done += herd.jobs
        done_small += 0 if is_large else herd.jobs
    left = jobs - done
    scale = (done_small + left) / done_small if done_small else 1.0
    minutes = [round((one + other * scale) / share) for one, other in zip(large, small, strict=True)]
    count = max(minutes)
    return ForecastView(
        from_=start,
        to=start + MINUTES * MINUTE,
        jobs=round(jobs / share),
        total=sum(minutes),
        peak=Peak(at=start + minutes.index(count) * MINUTE, count=count),
        is_sampled=share < 1 or left > 0,
        share=round(share * done / jobs, 6) if jobs else 1.0,
        minutes=minutes,
    )


def _add(counts: list[float], herd: Herd, now: datetime, start: datetime) -> None:
    try:
        found = fires(load_plan(herd.plan).schedule, now, start, MINUTES, herd.runs_left)
    except (errors.Invalid, ValueError, KeyError, TypeError):
        return  # a plan that cannot be read fires nothing: staging pauses its job
    for minute, count in enumerate(found):
        if count:
            counts[minute] += count * herd.jobs
