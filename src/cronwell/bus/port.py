"""The bus: hints that there is something to look at.

A hint may be lost, doubled, delayed or replayed. Whoever hears one looks into the store, and looks there now and then
anyway, so that a lost hint costs time and nothing else. Publishing never fails for the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol
from uuid import UUID

from cronwell.runtime.service import Service


def work_in(pool: str) -> str:
    """The topic on which work that is ready at once is announced."""
    return f"work:{pool}"


def orders_for(worker: UUID) -> str:
    """The topic on which a worker hears that some of its executions should stop."""
    return f"orders:{worker}"


class Bus(Protocol):
    """Carries hints from whoever changed something to whoever waits for it."""

    async def publish(self, topics: Iterable[str]) -> None:
        """Send a hint on each topic, best effort."""
        ...

    def subscribe(self, topics: Iterable[str], on_hint: Callable[[str], None]) -> Service:
        """The service that calls `on_hint(topic)` for each hint, and for all topics after a gap in hearing."""
        ...
