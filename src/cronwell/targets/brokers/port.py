"""What a broker is: something that takes a message and says where it has put it.

Kafka, AMQP or NATS each take one file beside this one, a part in `model.publishing` and a line in `brokers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cronwell.model.publishing import PublishTarget


@dataclass(frozen=True, slots=True)
class Message:
    """One message. Every broker carries the same fields, under the same names."""

    execution: str
    """The key of brokers that have keys: all attempts of an execution stay in order."""
    fields: tuple[tuple[str, bytes], ...]


class Broker(Protocol):
    """One broker. One instance serves every attempt of a worker process, as many at once as there are."""

    async def publish(self, target: PublishTarget, message: Message) -> str:
        """Hand a message over and return, once the broker has acknowledged it, where it stands there.

        Raises `Trouble` where it was refused, where the broker cannot be reached, and where nobody knows what has become of
        it. May be cancelled at any time. Nothing is sent twice for one call.
        """
        ...

    async def close(self) -> None:
        """Give back the connections; nothing is being published."""
        ...
