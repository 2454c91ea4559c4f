"""An etcd for the rig's schedulers, where `COORDINATION=etcd` asks for one, and its faults: killed, frozen."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.faults.cluster import Cluster, free_port
from tests.faults.fault import Fault
from tests.support.postgres import temporary_directory
from tests.support.waiting import until_blocking


class Etcd:
    """One server, on the same port through all its lives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, self._peer = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"etcd://127.0.0.1:{self._port}"

    def start(self) -> None:
        client, peer = f"http://127.0.0.1:{self._port}", f"http://127.0.0.1:{self._peer}"
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    binary() or "etcd",
                    f"--data-dir={self._folder / 'data'}",
                    f"--listen-client-urls={client}",
                    f"--advertise-client-urls={client}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster=default={peer}",
                    "--log-level=error",
                    "--unsafe-no-fsync",
                ],
                stdout=log,
                stderr=log,
            )
        until_blocking(self._listens, within=20)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=0.5):
            return True
        return False


class EtcdKilled(Fault):
    """No etcd for a while."""

    def __init__(self, seconds: float = 8.0) -> None:
        super().__init__("etcd kill -9", seconds)

    def impossible(self, cluster: Cluster) -> str | None:
        return None if cluster.etcd is not None else "the cluster is not coordinated by etcd"

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        assert cluster.etcd is not None
        await asyncio.to_thread(cluster.etcd.kill)
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


def binary() -> str | None:
    """Where etcd is: on the path, or beside this Python."""
    return shutil.which("etcd") or shutil.which("etcd", path=str(Path(sys.executable).parent))


@contextlib.contextmanager
def serving() -> Iterator[Etcd]:
    """An etcd until the block ends."""
    with temporary_directory() as folder:
        server = Etcd(folder)
        server.start()
        try:
            yield server
        finally:
            server.kill()
