"""Make room for the days to come, and drop the days of history that are past their time, whole."""

from __future__ import annotations

from datetime import timedelta

from cronwell import telemetry
from cronwell.config import RetentionSettings
from cronwell.model.backfill import oldest_kept
from cronwell.runtime.clock import Clock
from cronwell.store.port import Store

DAYS_AHEAD = 3
WORKERS_REMEMBERED = timedelta(days=1)
NODES_REMEMBERED = timedelta(days=1)


class Retention:
    """Implements `Chore`."""

    name = "retention"
    every = timedelta(minutes=10)

    def __init__(self, store: Store, clock: Clock, settings: RetentionSettings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings

    async def run_once(self) -> int:
        now = self._clock.now()
        today = now.date()
        for ahead in range(-1, DAYS_AHEAD):
            day = today + timedelta(days=ahead)
            if await self._store.ensure_day(day):
                telemetry.day_made(str(day))
        # A backfill stages nothing of a day before this one, so none of them is made anew.
        oldest = oldest_kept(now, self._settings.executions).date()
        dropped = 0
        for day in await self._store.days():
            if day >= oldest:
                continue
            if await self._store.drop_day(day):
                telemetry.day_dropped(str(day))
                dropped += 1
            else:
                telemetry.day_kept(str(day))
        await self._store.forget(
            keys_before=now - self._settings.idempotency, workers_before=now - WORKERS_REMEMBERED
        )
        await self._store.forget_nodes(now - NODES_REMEMBERED)
        return dropped
