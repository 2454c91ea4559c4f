"""Have what was staged while its tenant got a quota wait for it like what is staged since."""

from __future__ import annotations

from datetime import timedelta

from cronwell.store.port import Store


class Gating:
    """Implements `Chore`."""

    name = "gating"
    every = timedelta(seconds=30)

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self) -> int:
        return await self._store.gate_waiting()
