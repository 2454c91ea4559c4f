"""What every fault is: something that can be injected and healed."""

from __future__ import annotations

import random

from tests.faults.cluster import Cluster, Node


class Fault:
    """By itself it does nothing: the calm that the others are compared with."""

    def __init__(self, name: str = "none", seconds: float = 5.0) -> None:
        self.name = name
        self.seconds = seconds
        """How long it lasts."""

    def impossible(self, cluster: Cluster) -> str | None:
        """Why this machine does not allow it; None where it does."""
        del cluster
        return None

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        """Begin, and say whom it has hit."""
        del cluster, rng
        return ""

    async def heal(self, cluster: Cluster) -> None:
        """End it, whatever has happened meanwhile."""


def pick(cluster: Cluster, role: str, rng: random.Random) -> Node:
    """Some node of a role that runs; if none does, some node."""
    nodes = cluster.of(role)
    return rng.choice([node for node in nodes if node.is_running] or nodes)
