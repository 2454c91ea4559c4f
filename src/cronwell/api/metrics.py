"""The text that Prometheus scrapes.

What processes count by themselves is there at once. How much waits is asked of the store, at most once in a while (the longer it
takes the more seldom: behind an old transaction it is a long way), and a store that does not answer makes those figures old, never the scrape fail.
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from cronwell import telemetry
from cronwell.runtime.clock import Clock
from cronwell.runtime.resting import rest_after
from cronwell.store.port import Store

CONTENT_TYPE = CONTENT_TYPE_LATEST
FRESH = timedelta(seconds=5)
STORE_TIMEOUT = timedelta(seconds=2)


class Scrapes:
    """Answers scrapes; one instance serves a process."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._ask_at = float("-inf")
        self._pools: set[str] = set()
        self._asking = asyncio.Lock()

    async def text(self) -> bytes:
        """The metrics of this process, or of all processes that share PROMETHEUS_MULTIPROC_DIR."""
        async with self._asking:
            began = self._clock.monotonic()
            if began >= self._ask_at:
                await self._ask()
                ended = self._clock.monotonic()
                self._ask_at = ended + rest_after(ended - began, FRESH.total_seconds())
        return generate_latest(_registry())

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(STORE_TIMEOUT.total_seconds()):
                now = self._clock.now()
                backlog = await self._store.backlog(now)
                workers = await self._store.list_workers(now)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the store, the scrape goes on without it
            telemetry.service_failed("metrics", error, FRESH.total_seconds())
            return
        living = [each for each in workers if each.state in ("active", "draining")]
        waiting = {each.pool: each for each in backlog}
        # A pool that was seen once is told from then on: a gauge that vanished would keep its last value.
        self._pools |= waiting.keys() | {pool for worker in living for pool in worker.pools}
        for pool in self._pools:
            found = waiting.get(pool)
            telemetry.queue(
                pool,
                depth=0 if found is None else found.depth,
                oldest=timedelta() if found is None else now - found.oldest,
            )
        telemetry.heartbeat_age(max((now - each.heartbeat_at for each in living), default=timedelta()))


def _registry() -> CollectorRegistry:
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # the client leaves it without types
    return registry
