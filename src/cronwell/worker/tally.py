"""Counts attempts, and tells telemetry once per turn of the event loop: one by one, counting a short attempt's start and
end takes a tenth of the whole time that the worker spends on it (November 2026)."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from cronwell import telemetry
from cronwell.model.execution import Result


class Tally:
    """All methods are called from the event loop's thread."""

    def __init__(self) -> None:
        self._latenesses: defaultdict[int, list[float]] = defaultdict(list)
        self._durations: defaultdict[tuple[str, Result], list[float]] = defaultdict(list)
        self._is_told = True

    def started(self, priority: int, lateness: float) -> None:
        """An attempt has started, so many seconds after its instant."""
        self._latenesses[priority].append(lateness)
        self._tell_soon()

    def ended(self, target: str, result: Result, took: float) -> None:
        """An attempt has ended after so many seconds."""
        self._durations[target, result].append(took)
        self._tell_soon()

    def _tell_soon(self) -> None:
        if self._is_told:
            self._is_told = False
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._is_told = True
        for priority, latenesses in self._latenesses.items():
            telemetry.attempts_started(priority, latenesses)
        for (target, result), durations in self._durations.items():
            telemetry.attempts_ended(target, result.value, durations)
        self._latenesses.clear()
        self._durations.clear()
