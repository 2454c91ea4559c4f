"""Chain the changes that somebody made, so that none can be altered or taken away unseen."""

from __future__ import annotations

from datetime import timedelta

from cronwell.store.port import Store

BATCH = 100
"""Few at a time: an entry may be as long as two definitions."""


class Sealing:
    """Implements `Chore`."""

    name = "sealing"
    every = timedelta(seconds=1)

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self) -> int:
        total = 0
        while True:
            sealed = await self._store.seal_audit(BATCH)
            total += sealed
            if sealed < BATCH:
                return total
