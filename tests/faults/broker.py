"""A Redis that the rig's jobs publish to, its stream as a witness, and its faults: killed, frozen.

What it has acknowledged is on disk before: so a message that is missing at the end was never acknowledged.
"""

from __future__ import annotations

import asyncio
import random
import signal
from contextlib import AbstractContextManager

from tests.faults.cluster import Cluster
from tests.faults.fault import Fault
from tests.faults.history import Message
from tests.support.redis import DURABLE, LACKING, Entry, RedisServer, binary, temporary_redis

STREAM = "rig"
ANSWER_SECONDS = 2.0


def settings(server: RedisServer) -> dict[str, str]:
    """What the nodes have in their environment to publish there."""
    return {
        "CRONWELL_BROKERS_DEFAULT": server.address,
        "CRONWELL_PUBLISH_TIMEOUT": f"{ANSWER_SECONDS:g}s",
    }


def messages(server: RedisServer, until: float) -> tuple[Message, ...]:
    """All that it has taken up to a moment."""
    return tuple(_read(entry) for entry in server.entries(STREAM) if entry.at <= until)


def _read(entry: Entry) -> Message:
    fields = entry.fields
    return Message(
        execution=fields["execution"],
        job=fields["job"],
        slot=fields["slot"],
        attempt=int(fields["attempt"]),
        fence=int(fields["fence"]),
        at=entry.at,
    )


class BrokerKilled(Fault):
    """No broker for a while; it comes back with all that it had acknowledged."""

    def __init__(self, seconds: float = 5.0) -> None:
        super().__init__("broker kill -9", seconds)

    def impossible(self, cluster: Cluster) -> str | None:
        return None if cluster.broker is not None else lacking()

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        assert cluster.broker is not None
        await asyncio.to_thread(cluster.broker.stop)
        return "Redis"

    async def heal(self, cluster: Cluster) -> None:
        assert cluster.broker is not None
        await asyncio.to_thread(cluster.broker.start)


class BrokerFrozen(Fault):
    """A broker that takes every connection and says nothing: for longer than anybody waits for its answer."""

    def __init__(self, seconds: float = 3 * ANSWER_SECONDS) -> None:
        super().__init__("SIGSTOP of the broker", seconds)

    def impossible(self, cluster: Cluster) -> str | None:
        return None if cluster.broker is not None else lacking()

    async def inject(self, cluster: Cluster, rng: random.Random) -> str:
        assert cluster.broker is not None
        cluster.broker.signal(signal.SIGSTOP)
        return "Redis"

    async def heal(self, cluster: Cluster) -> None:
        assert cluster.broker is not None
        cluster.broker.signal(signal.SIGCONT)


def lacking() -> str:
    """Why there is no broker in a run."""
    return LACKING if binary() is None else "no job of this run publishes"


def serving() -> AbstractContextManager[RedisServer]:
    """A broker until the block ends."""
    return temporary_redis(*DURABLE)
