"""A token bucket: so many a second in the long run, and a few more at once."""

from __future__ import annotations

BURST_SECONDS = 2.0
"""A bucket that nobody drew from holds what this many seconds bring, but one token at least."""


class Bucket:
    """Tokens that come back at a rate. Every time is an argument, in seconds, and never runs back."""

    __slots__ = ("_at", "_tokens", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._tokens = self.size
        self._at = now

    @property
    def size(self) -> float:
        return max(1.0, self.rate * BURST_SECONDS)

    def take(self, now: float) -> float:
        """Take a token: 0, or where there is none, in how many seconds there will be one."""
        self._tokens = min(self.size, self._tokens + max(0.0, now - self._at) * self.rate)
        self._at = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self.rate

    @property
    def left(self) -> int:
        """Whole tokens that are left."""
        return int(self._tokens)

    @property
    def full_in(self) -> float:
        """In how many seconds it is full again, if nobody draws from it."""
        return (self.size - self._tokens) / self.rate
