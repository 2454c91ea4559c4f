"""Faults of processes: killed, frozen, busy, restarted, with a wrong clock."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping
from pathlib import Path

import aiohttp

from tests.faults.cluster import Cluster, Node, answers
from tests.faults.fault import Fault, pick
from tests.faults.handlers import BUSY_SECONDS
from tests.faults.history import Request, Try
from tests.support.processes import Process
from tests.support.waiting import until


def faketime(clock: str) -> Mapping[str, str] | None:
    """The environment of a process with another wall clock; None where libfaketime is not installed."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        return None
    return {"LD_PRELOAD": str(library), "FAKETIME": clock, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


class Killed(Fault):
    """kill -9 of one process of a role, or of all of them; they come back after the fault's time."""

    def __init__(self, role: str, *, everyone: bool = False, seconds: float = 2.0) -> None:
        super().__init__(f"kill -9 of {'every' if everyone else 'a'} {role}", seconds)
        self._role = role
        self._everyone = everyone

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        nodes = cluster.of(self._role) if self._everyone else [pick(cluster, self._role, rng)]
        for node in nodes:
            node.kill(self.seconds)
        return ", ".join(node.name for node in nodes)


class EverythingKilled(Fault):
    """kill -9 of every process of every role."""

    def __init__(self, seconds: float = 3.0) -> None:
        super().__init__("kill -9 of everything", seconds)

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        del rng
        for node in cluster.nodes:
            node.kill(self.seconds)
        return "everything"


class Frozen(Fault):
    """SIGSTOP past the lease, then SIGCONT."""

    def __init__(self, role: str) -> None:
        super().__init__(f"SIGSTOP of a {role}")
        self._role = role
        self._frozen: list[Process] = []

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        lease = cluster.shape.worker_lease if self._role == "worker" else cluster.shape.scheduler_lease
        self.seconds = lease + rng.uniform(0.5, 3.0)
        node = pick(cluster, self._role, rng)
        self._frozen = [node.process]
        node.process.freeze()
        return node.name

    async def heal(self, cluster: Cluster) -> None:
        for process in self._frozen:
            with contextlib.suppress(ProcessLookupError):
                process.thaw()
        self._frozen = []


class BusyLoop(Fault):
    """A handler that holds a worker's event loop for longer than the worker's lease."""

    def __init__(self) -> None:
        super().__init__("busy event loop", BUSY_SECONDS)

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        api = pick(cluster, "api", rng)
        now = cluster.clock()
        cluster.asked.append(Request("trigger", "busy", (Try(now, now, "unknown"),)))
        timeout = aiohttp.ClientTimeout(total=3)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.post(f"{api.url}/v1/jobs/name:busy/trigger", json={}):
                    pass
        return "some worker"


class ClockWrong(Fault):
    """A node whose wall clock is hours off, or runs too fast, from its start on: libfaketime."""

    def __init__(self, told: str, clock: str) -> None:
        super().__init__(f"wall clock {told}", 8.0)
        self._clock = clock
        self._node: Node | None = None

    def impossible(self, cluster: Cluster) -> str | None:
        return None if faketime("+0") else "libfaketime is not installed (Debian: apt install faketime)"

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        self._node = node = rng.choice(cluster.of("scheduler", "worker", "api"))
        node.next_environ = faketime(self._clock) or {}
        node.kill(0.0)
        return node.name

    async def heal(self, cluster: Cluster) -> None:
        if self._node is not None:
            self._node.next_environ = {}
            self._node.terminate()
            self._node = None


class RollingRestart(Fault):
    """SIGTERM to one process after the other, each when the one before it is up again, as a deploy does it."""

    def __init__(self) -> None:
        super().__init__("rolling restart", 5.0)
        self._rolling: asyncio.Task[None] | None = None

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        async def roll() -> None:
            for node in rng.sample(cluster.nodes, len(cluster.nodes)):
                life = node.process
                node.terminate()
                # Its place is filled again at once, so it is this process that has to have ended.
                await until(lambda life=life: not life.is_running, within=60)  # type: ignore[misc]  # bound early
                await until(lambda node=node: node.is_running and answers(node), within=60)  # type: ignore[misc]  # bound early

        self._rolling = asyncio.create_task(roll())
        return "everything, one by one"

    async def heal(self, cluster: Cluster) -> None:
        if self._rolling is not None:
            await self._rolling
            self._rolling = None
