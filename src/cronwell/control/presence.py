"""A process tells the cluster that it is there, and hears when it is asked to drain.

It is for people to look at and nothing relies on it: while the table cannot be written the process works on, is shown as
lost, and enters itself again when it can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from cronwell import __version__, telemetry
from cronwell.runtime.clock import Clock
from cronwell.runtime.node import Identity
from cronwell.runtime.service import Loop
from cronwell.store.port import Node, Store

EVERY = timedelta(seconds=2)
LOST_AFTER = timedelta(seconds=15)
"""A process that was not seen for longer is taken for lost."""
FAREWELL = timedelta(seconds=2)


class Presence(Loop):
    """Enters the process and keeps it seen; the last service to stop, so that what it leaves behind is true."""

    def __init__(
        self, store: Store, clock: Clock, role: str, identity: Identity, on_drain: Callable[[], None]
    ) -> None:
        super().__init__("presence", self.beat, on_error=telemetry.service_failed)
        self._store = store
        self._clock = clock
        self._role = role
        self._identity = identity
        self._started_at = clock.now()
        self._on_drain = on_drain
        self._is_draining = False

    async def beat(self) -> timedelta:
        """Say that the process lives, and stop it where somebody has asked for that."""
        node = Node(
            id=self._identity.id,
            role=self._role,
            name=self._identity.name,
            version=__version__,
            started_at=self._started_at,
            seen_at=self._clock.now(),
        )
        if await self._store.see_node(node) is not None and not self._is_draining:
            self._is_draining = True
            telemetry.drain_requested(str(node.id))
            self._on_drain()
        return EVERY

    async def run(self) -> None:
        await super().run()
        try:
            async with asyncio.timeout(FAREWELL.total_seconds()):
                await self._store.stop_node(self._identity.id, self._clock.now())
        except Exception as error:  # noqa: BLE001  # whatever it is, the work is done; it is taken for lost a little later
            telemetry.service_failed("farewell", error, 0.0)
