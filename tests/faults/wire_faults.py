"""Faults of the wire between a node and PostgreSQL."""

from __future__ import annotations

import asyncio
import random

from tests.faults.cluster import Cluster
from tests.faults.fault import Fault, pick
from tests.faults.link import Link, Notices
from tests.faults.pace import lasting


class WireFault(Fault):
    """Hits the wire of one node; healing makes the wire whole."""

    def __init__(self, name: str, role: str, seconds: float = 3.0) -> None:
        super().__init__(f"{name} ({role})", seconds)
        self.role = role
        self._link: Link | None = None

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        node = pick(cluster, self.role, rng)
        self._link = node.link
        self.strike(node.link, cluster, rng)
        return node.name

    def strike(self, link: Link, cluster: Cluster, rng: random.Random) -> None:
        raise NotImplementedError

    async def heal(self, cluster: Cluster) -> None:
        if self._link is not None:
            self._link.heal()
            self._link = None


class Cut(WireFault):
    """Every connection is reset, once."""

    def __init__(self, role: str) -> None:
        super().__init__("connections cut", role, 1.0)

    def strike(self, link: Link, cluster: Cluster, rng: random.Random) -> None:
        link.cut()


# What a transaction of each role that matters has done before its COMMIT.
MATTERS = {"scheduler": b"move_cursors", "worker": b"", "api": b"_job"}


class CommitCut(WireFault):
    """COMMITs reach the server, and their answers never come: the outcome is unknown."""

    def __init__(self, role: str) -> None:
        super().__init__("cut during COMMIT", role, 4.0)

    def strike(self, link: Link, cluster: Cluster, rng: random.Random) -> None:
        link.commit_of = MATTERS[self.role]
        link.commits_to_cut = rng.randint(1, 5)


class CommitHeld(WireFault):
    """A COMMIT, and all else that the node says, is under way for longer than a lease lasts, and arrives after all."""

    def __init__(self, role: str) -> None:
        super().__init__("COMMIT held up", role)

    def strike(self, link: Link, cluster: Cluster, rng: random.Random) -> None:
        lease = cluster.shape.worker_lease if self.role == "worker" else cluster.shape.scheduler_lease
        link.commit_of = MATTERS[self.role]
        link.commit_hold = lease * 1.5
        self.seconds = lease * 1.5 + 3


class Delayed(WireFault):
    """Each message takes a while, in both directions."""

    def __init__(self, role: str) -> None:
        super().__init__("delay", role, 4.0)

    def strike(self, link: Link, cluster: Cluster, rng: random.Random) -> None:
        link.delay = rng.choice((0.02, 0.1, 0.3))


class HalfClosed(WireFault):
    """The server's half of each connection is closed; the client may go on talking."""

    def __init__(self, role: str) -> None:
        super().__init__("half-close", role, 1.0)

    def strike(self, link: Link, cluster: Cluster, rng: random.Random) -> None:
        link.half_close()


class OneWay(WireFault):
    """One direction is silent: a deaf node hears no answers, a mute one is not heard."""

    def __init__(self, role: str, *, is_deaf: bool, seconds: float | None = None) -> None:
        super().__init__("deaf" if is_deaf else "mute", role)
        self._is_deaf = is_deaf
        self._fixed = seconds

    def strike(self, link: Link, cluster: Cluster, rng: random.Random) -> None:
        self.seconds = self._fixed or rng.choice((1.0, 4.0, cluster.shape.worker_lease + 2))
        (link.down if self._is_deaf else link.up).clear()


class Partitioned(WireFault):
    """The node reaches nobody: connections are silent, and new ones are refused."""

    def __init__(self, role: str) -> None:
        super().__init__("partition", role)

    def strike(self, link: Link, cluster: Cluster, rng: random.Random) -> None:
        self.seconds = rng.choice((1.0, 4.0, cluster.shape.worker_lease + 2))
        link.is_refusing = True
        link.up.clear()
        link.down.clear()

    async def heal(self, cluster: Cluster) -> None:
        link = self._link
        await super().heal(cluster)
        if link is not None:
            link.cut()


class Flapping(WireFault):
    """The partition comes and goes several times a second."""

    def __init__(self, role: str) -> None:
        super().__init__("flapping", role, 5.0)
        self._flapping: asyncio.Task[None] | None = None

    def strike(self, link: Link, cluster: Cluster, rng: random.Random) -> None:
        async def flap() -> None:
            while True:
                link.is_refusing = True
                link.cut()
                await lasting(rng.uniform(0.05, 0.5))
                link.is_refusing = False
                await lasting(rng.uniform(0.05, 0.5))

        self._flapping = asyncio.create_task(flap())

    async def heal(self, cluster: Cluster) -> None:
        if self._flapping is not None:
            self._flapping.cancel()
            await asyncio.gather(self._flapping, return_exceptions=True)
            self._flapping = None
        await super().heal(cluster)


class NoticesSpoiled(Fault):
    """Every message of the bus is lost, or comes twice, or an old one comes with it."""

    def __init__(self, notices: Notices, seconds: float = 6.0) -> None:
        done = {"drop": "lost", "double": "doubled", "replay": "replayed", "pass": "whole"}[notices]
        super().__init__(f"bus messages {done}", seconds)
        self._notices = notices

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        for link in cluster.links:
            link.notices = self._notices
        return "everything"

    async def heal(self, cluster: Cluster) -> None:
        for link in cluster.links:
            link.notices = "pass"
