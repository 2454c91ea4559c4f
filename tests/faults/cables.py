"""A node behind a cable of its own: in a network namespace, which only root may make.

A cable that is pulled out loses every packet and tells nobody: connections neither end nor answer, and what was sent is sent
again by the kernel when the cable is back. A proxy can only keep silent, while the kernel behind it goes on to acknowledge.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import shutil
import subprocess

from tests.faults.cluster import Cluster, Node
from tests.faults.fault import Fault, pick
from tests.support.waiting import until

_NUMBERS = itertools.count(os.getpid() % 200 * 16)


class Cable:
    """A namespace with one way out, to an address of this machine."""

    def __init__(self) -> None:
        number = next(_NUMBERS)
        self.name = f"cw{os.getpid()}n{number}"
        self._device = f"cw{number:x}"
        third, fourth = divmod(number % (64 * 256), 64)
        self.outside = f"10.213.{third}.{4 * fourth + 1}"
        inside = f"10.213.{third}.{4 * fourth + 2}/30"
        within = ("-n", self.name)
        _ip("netns", "add", self.name)
        try:
            _ip("link", "add", self._device, "type", "veth", "peer", "name", "eth0", "netns", self.name)
            _ip("addr", "add", f"{self.outside}/30", "dev", self._device)
            _ip("link", "set", self._device, "up")
            _ip(*within, "addr", "add", inside, "dev", "eth0")
            _ip(*within, "link", "set", "eth0", "up")
            _ip(*within, "link", "set", "lo", "up")
        except OSError:
            self.remove()
            raise

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a command is preceded by that runs behind the cable."""
        return ("ip", "netns", "exec", self.name)

    def pull(self) -> None:
        _ip("link", "set", self._device, "down")

    def plug(self) -> None:
        _ip("link", "set", self._device, "up")

    def remove(self) -> None:
        """With the namespace goes its end of the cable, and so the cable."""
        _ip("netns", "del", self.name)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@functools.cache
def unavailable() -> str | None:
    """Why there are no namespaces here; None where there are."""
    if shutil.which("ip") is None:
        return "there is no ip command (Debian: apt install iproute2)"
    try:
        Cable().remove()
    except OSError as error:
        return f"no network namespace can be made: {error}"
    return None


class CablePulled(Fault):
    """A scheduler whose cable is pulled out while it has shards, and put back in after its lease."""

    def __init__(self) -> None:
        super().__init__("cable pulled (scheduler)", 8.0)
        self._cable: Cable | None = None
        self._node: Node | None = None

    def impossible(self, cluster: Cluster) -> str | None:
        if cluster.etcd is not None:
            return "etcd has no address behind the cable"
        return unavailable()

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        self._cable = Cable()
        self._node = pick(cluster, "scheduler", rng)
        try:
            await self._move(cluster, self._node, self._cable)
        except BaseException:
            await self.heal(cluster)
            raise
        self._cable.pull()
        return self._node.name

    async def _move(self, cluster: Cluster, node: Node, cable: Cable) -> None:
        """Start the node anew behind the cable, and wait until it has shards."""
        port = await node.link.open_at(cable.outside)
        node.next_environ = {"CRONWELL_DATABASE_URL": cluster.url_at(cable.outside, port)}
        node.next_prefix = cable.prefix
        life = f"{node.name}#{len(node.lives) + 1}"
        node.kill(0.0)
        await until(lambda: node.link.is_used_by(life), within=30)
        await cluster.until_spread()

    async def heal(self, cluster: Cluster) -> None:
        if self._node is None or self._cable is None:
            return
        node, cable, self._node, self._cable = self._node, self._cable, None, None
        cable.plug()
        node.next_environ, node.next_prefix = {}, ()
        life = node.process
        node.terminate()
        await until(lambda: not life.is_running, within=60)
        cable.remove()
