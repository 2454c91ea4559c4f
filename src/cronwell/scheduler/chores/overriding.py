"""Write the overrides that have come near over their slots, and forget those that are as old as forgotten history."""

from __future__ import annotations

from datetime import timedelta

from cronwell.config import RetentionSettings
from cronwell.control.overrides import Overrides
from cronwell.runtime.clock import Clock
from cronwell.store.port import Store


class Overriding:
    """Implements `Chore`."""

    name = "applying overrides"
    every = timedelta(seconds=30)

    def __init__(self, store: Store, clock: Clock, overrides: Overrides, settings: RetentionSettings) -> None:
        self._store = store
        self._clock = clock
        self._overrides = overrides
        self._settings = settings

    async def run_once(self) -> int:
        applied = await self._overrides.apply_waiting()
        await self._store.forget_overrides(self._clock.now() - self._settings.executions)
        return applied
