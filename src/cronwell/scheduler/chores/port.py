"""A chore: a small duty that one scheduler of the fleet does now and then."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol


class Chore(Protocol):
    """`run_once` may be run by two schedulers at once; that costs work and does no harm."""

    name: str
    every: timedelta

    async def run_once(self) -> int:
        """Do the duty and return how much there was to do."""
        ...
