"""An etcd for the rig's schedulers, where `COORDINATION=etcd` asks for one, and its faults: killed, frozen."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Iterator

from tests.faults.cluster import Cluster
from tests.faults.fault import Fault
from tests.support.etcd import EtcdServer
from tests.support.postgres import temporary_directory


class Etcd(EtcdServer):
    """One server, on the same port through all its lives."""

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


class EtcdKilled(Fault):
    """No etcd for a while."""

    def __init__(self, seconds: float = 8.0) -> None:
        super().__init__("etcd kill -9", seconds)

    def impossible(self, cluster: Cluster) -> str | None:
        return None if cluster.etcd is not None else "the cluster is not coordinated by etcd"

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        assert cluster.etcd is not None
        await asyncio.to_thread(cluster.etcd.stop)
        return "etcd"

    async def heal(self, cluster: Cluster) -> None:
        assert cluster.etcd is not None
        await asyncio.to_thread(cluster.etcd.start)


class EtcdSilent(Fault):
    """etcd keeps every connection and says nothing: for whoever waits, a partition."""

    def __init__(self, seconds: float = 8.0) -> None:
        super().__init__("etcd partition", seconds)

    def impossible(self, cluster: Cluster) -> str | None:
        return None if cluster.etcd is not None else "the cluster is not coordinated by etcd"

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        assert cluster.etcd is not None
        cluster.etcd.signal(signal.SIGSTOP)
        return "etcd"

    async def heal(self, cluster: Cluster) -> None:
        assert cluster.etcd is not None
        cluster.etcd.signal(signal.SIGCONT)


@contextlib.contextmanager
def serving() -> Iterator[Etcd]:
    """An etcd until the block ends."""
    with temporary_directory() as folder:
        server = Etcd(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
