"""A circuit breaker: whether a host that keeps failing is called, and how it is let come back.

While it is closed everything goes through, and failures in a row are counted. When there are too many it opens: nothing
goes through but, after a wait, a single trial. A trial that fails makes the next wait twice as long. One that succeeds
begins the recovery: two at once, then as many more as have succeeded, so that the number doubles with each round; with
`FULL` at once it is closed again. A failure on the way there opens it anew, with a longer wait than before.

What began before it opened says nothing about whether the host is back, so only trials count until it is closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["closed", "open", "recovering"]

FULL = 32
"""So many at once without a failure are proof enough."""
LONGEST_GROWTH = 30
"""Doublings of the wait that are counted; there is a longest wait anyhow."""
JITTER = 0.2
"""Waits are shorter or longer by up to this share: workers do not try all at once."""
TRIAL_PATIENCE = 1.0
"""Seconds after which to ask again while trials are under way."""


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """When to open, and how long to wait."""

    failures: int
    """In a row; 0: never."""
    first_wait: float
    """Seconds."""
    longest_wait: float


class Breaker:
    """Of one host. Times are seconds on one clock that never runs back; `random` lies in [0, 1)."""

    __slots__ = ("_allowance", "_rules", "_trials", "failures", "probe_at", "since", "state", "waits")

    def __init__(self, rules: BreakerRules) -> None:
        self._rules = rules
        self._allowance = 1
        self._trials = 0
        self.state: State = "closed"
        self.since = 0.0
        """When it left `closed`."""
        self.failures = 0
        """In a row, up to now."""
        self.waits = 0
        """How many trials in a row have failed."""
        self.probe_at = 0.0
        """While it is open: from when on one may try."""

    @property
    def is_idle(self) -> bool:
        """Whether a new one would do as well."""
        return self.state == "closed" and not self.failures

    def wait(self, now: float) -> float:
        """In how many seconds to ask again; 0: one may go through, as a trial unless it is closed."""
        if self.state == "closed":
            return 0.0
        if self.state == "open" and now < self.probe_at:
            return self.probe_at - now
        allowed = 1 if self.state == "open" else self._allowance
        return 0.0 if self._trials < allowed else TRIAL_PATIENCE

    def enter(self) -> bool:
        """One goes through; whether it is a trial, which `leave`, `succeed` or `fail` must be told."""
        if self.state == "closed":
            return False
        self._trials += 1
        return True

    def leave(self, *, is_trial: bool) -> None:
        """One ended without saying anything about the host."""
        if is_trial:
            self._trials = max(0, self._trials - 1)

    def succeed(self, *, is_trial: bool) -> None:
        """The host has answered."""
        self.leave(is_trial=is_trial)
        if self.state == "closed":
            self.failures = 0
        elif is_trial:
            self._allowance = 2 if self.state == "open" else self._allowance + 1
            self.failures = 0
            self.state = "closed" if self._allowance >= FULL else "recovering"
            if self.state == "closed":
                self.waits = self._trials = 0

    def fail(self, now: float, random: float, *, is_trial: bool) -> None:
        """The host is ill."""
        self.leave(is_trial=is_trial)
        self.failures += 1
        if self.state == "closed":
            if 0 < self._rules.failures <= self.failures:
                self.since = now
                self._open(now, random)
        elif is_trial:
            self._open(now, random)

    def adopt(self, state: State, *, since: float, failures: int, waits: int, probe_at: float) -> None:
        """Believe what somebody else has found out later than we have."""
        if state == "closed":
            self.failures = self.waits = self._trials = 0
        elif self.state == "closed" or state == "open":
            self.since, self.failures, self.waits, self.probe_at = since, failures, waits, probe_at
        if state == "recovering" and self.state != "recovering":
            self._allowance = 2
        self.state = state

    def _open(self, now: float, random: float) -> None:
        wait = min(self._rules.first_wait * 2.0 ** min(self.waits, LONGEST_GROWTH), self._rules.longest_wait)
        self.state = "open"
        self.waits += 1
        self.probe_at = now + wait * (1 - JITTER + 2 * JITTER * random)
