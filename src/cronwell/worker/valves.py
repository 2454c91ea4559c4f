"""The valves before the targets that this worker calls: asked before each start, told of each end.

What nobody limits and has no host goes by no valve. A host has one from its first call on, for its health and for how much of
the worker it takes up; it is forgotten again when it says nothing that a new one would not.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from cronwell import telemetry
from cronwell.config import WorkerSettings
from cronwell.model.breaker import Breaker, BreakerRules
from cronwell.model.execution import Result
from cronwell.model.throttle import HOST_PREFIX, Limit
from cronwell.model.valve import GO, Room, Valve, Verdict
from cronwell.runtime.clock import Clock
from cronwell.store.port import HostState
from cronwell.targets.port import Outcome
from cronwell.worker.attempt import Attempt, Entry

ERROR_LIMIT = 300
_ANSWERS = frozenset({"http_status", "redirect", "gone"})
"""Kinds of errors with which a host has answered, and so shown that it lives."""

Subject = tuple[int, str]
"""A tenant, and the name of a target."""


class Valves:
    """All methods are called from the event loop's thread. `on_news` is called when a host has begun or ceased to be ill."""

    def __init__(
        self, settings: WorkerSettings, per_host: int, clock: Clock, on_news: Callable[[], None]
    ) -> None:
        self._rules = BreakerRules(
            settings.breaker, settings.breaker_wait.total_seconds(), settings.breaker_longest.total_seconds()
        )
        self._room = Room(settings.concurrency, per_host)
        self._clock = clock
        self._on_news = on_news
        self._valves: dict[Subject, Valve] = {}
        self._limits: Mapping[Subject, Limit] = {}
        self._news: dict[Subject, HostState] = {}
        self._heard_at: dict[Subject, datetime] = {}
        """When what is known of a host was found out, by us or by others."""
        self._well: set[Subject] = set()

    def ask(self, attempt: Attempt, now: float) -> Verdict:
        """Whether an attempt may start, at a monotonic time. One that may, or may later, has its entry."""
        claimed, target = attempt.claimed, attempt.job.target_name
        valve = self._valves.get((claimed.tenant_id, target))
        if valve is None:
            if not target.startswith(HOST_PREFIX):
                return GO
            valve = self._valves[claimed.tenant_id, target] = self._make(target)
        verdict = valve.ask(now, is_back=claimed.is_back)
        if verdict.cause is not None:
            telemetry.held_back(verdict.cause)
        elif not verdict.asks_again:
            is_trial = valve.enter()
            attempt.entry = Entry(valve, is_trial)
            if is_trial and valve.breaker is not None and valve.breaker.state == "open":
                telemetry.host_probed(target.removeprefix(HOST_PREFIX), tenant=claimed.tenant_id)
        return verdict

    def ended(self, attempt: Attempt, outcome: Outcome | None, took: float | None = None) -> None:
        """An attempt that had its entry is over, after so many seconds; without an outcome it says nothing."""
        entry, attempt.entry = attempt.entry, None
        if entry is None:
            return
        now = time.monotonic()
        entry.valve.leave(now, took)
        breaker = entry.valve.breaker
        if breaker is None:
            return
        if breaker.is_idle and outcome is not None and outcome.result is Result.SUCCEEDED:
            return  # as nearly always
        before = breaker.state, breaker.probe_at
        is_well = None if outcome is None else _is_well(outcome)
        if is_well is None:
            breaker.leave(is_trial=entry.is_trial)
        elif is_well:
            breaker.succeed(is_trial=entry.is_trial)
        else:
            breaker.fail(now, random.random(), is_trial=entry.is_trial)
        if (breaker.state, breaker.probe_at) != before:
            self._tell(attempt, breaker, outcome, was=before[0])

    def take_news(self) -> list[HostState]:
        """What the others do not know yet."""
        news, self._news = self._news, {}
        return list(news.values())

    def take_well(self) -> list[Subject]:
        """Targets that are well again: what waits for them need not wait any longer."""
        well, self._well = self._well, set()
        return list(well)

    def give_news_back(self, news: Iterable[HostState]) -> None:
        """They could not be told; whatever has been found out since stands."""
        for each in news:
            self._news.setdefault((each.tenant_id, HOST_PREFIX + each.host), each)

    def hear(self, found: HostState) -> None:
        """Believe what another worker, or a user, has found out later than we have."""
        subject = found.tenant_id, HOST_PREFIX + found.host
        known = self._heard_at.get(subject)
        valve = self._valves.get(subject)
        if (known is not None and known >= found.changed_at) or (valve is None and found.state == "closed"):
            return
        valve = valve or self._valves.setdefault(subject, self._make(subject[1]))
        if valve.breaker is None:
            return
        self._heard_at[subject] = found.changed_at
        if found.state == "closed" and valve.breaker.state != "closed":
            self._well.add(subject)
        valve.breaker.adopt(
            found.state,
            since=self._clock.monotonic_at(found.since),
            failures=found.failures,
            waits=found.waits,
            probe_at=self._clock.monotonic_at(found.next_probe_at),
        )

    def limit(self, limits: Mapping[Subject, Limit], workers: int, rank: int) -> None:
        """Keep a share of what targets bear, as one of so many workers."""
        for subject in self._limits.keys() - limits.keys():
            self._valves[subject].limit(None, workers, rank)
        for subject, limit in limits.items():
            valve = self._valves.get(subject)
            if valve is None:
                valve = self._valves[subject] = self._make(subject[1])
            valve.limit(limit, workers, rank)
        self._limits = limits

    def tidy(self) -> None:
        """Forget valves that say nothing, and tell how many hosts are ill."""
        for subject in [subject for subject, valve in self._valves.items() if valve.is_idle]:
            del self._valves[subject]
            self._heard_at.pop(subject, None)
        states = [valve.breaker.state for valve in self._valves.values() if valve.breaker is not None]
        telemetry.hosts(is_open=states.count("open"), recovering=states.count("recovering"))

    def _make(self, target: str) -> Valve:
        if not target.startswith(HOST_PREFIX):
            return Valve()
        return Valve(Breaker(self._rules) if self._rules.failures else None, self._room)

    def _tell(self, attempt: Attempt, breaker: Breaker, outcome: Outcome | None, *, was: str) -> None:
        tenant, target = attempt.claimed.tenant_id, attempt.job.target_name
        now, monotonic = self._clock.now(), time.monotonic()
        error = None if outcome is None or outcome.error is None else outcome.error[:ERROR_LIMIT]
        state = HostState(
            tenant_id=tenant,
            host=target.removeprefix(HOST_PREFIX),
            state=breaker.state,
            since=now - timedelta(seconds=monotonic - breaker.since),
            failures=breaker.failures,
            waits=breaker.waits,
            next_probe_at=now + timedelta(seconds=breaker.probe_at - monotonic),
            error=None if error is None else error.replace("\0", ""),
            changed_at=now,
        )
        subject = tenant, target
        self._news[subject] = state
        self._heard_at[subject] = now
        if breaker.state == "open":
            telemetry.host_opened(
                state.host, tenant=tenant, failures=breaker.failures, probe_in=breaker.probe_at - monotonic,
                error=error,
            )  # fmt: skip
        elif breaker.state == "closed":
            self._well.add(subject)
            telemetry.host_closed(state.host, tenant=tenant, ill_for=monotonic - breaker.since)
        elif was == "open":
            telemetry.host_recovering(state.host, tenant=tenant)
        self._on_news()


def _is_well(outcome: Outcome) -> bool | None:
    """What an outcome says of the host: well, ill, or nothing."""
    if outcome.result is Result.TIMED_OUT or outcome.is_host_ill:
        return False
    if outcome.result is Result.SUCCEEDED:
        return True
    return True if outcome.result is Result.FAILED and outcome.error_kind in _ANSWERS else None
