"""Where a job's messages go: to a stream or topic of a broker that the installation has given a name.

A job names its broker and never its address: so it carries no credentials, and nobody reaches a server by way of a job that
the installation does not publish to.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from cronwell.addresses import BROKER_PATTERN, DEFAULT_BROKER
from cronwell.model.part import Part

BrokerKind = Literal["redis"]


class RedisStream(Part):
    """A stream of Redis, to which each attempt adds one entry (XADD)."""

    stream: Annotated[str, StringConstraints(pattern=r"^[!-~]{1,255}$")]
    """The stream's key: 1 to 255 visible ASCII characters. It is made when the first entry comes."""
    maxlen: Annotated[int, Field(ge=1, le=1_000_000_000_000, strict=True)] | None = None
    """About how many entries the stream keeps: the oldest go. Without it, it keeps all of them."""


class PublishTarget(Part):
    """Publish a message to a broker; success is the broker's acknowledgement."""

    broker: Annotated[str, StringConstraints(pattern=BROKER_PATTERN)] = DEFAULT_BROKER
    """The name under which the installation knows the broker."""
    redis: RedisStream | None = None
    """A stream of Redis."""

    @model_validator(mode="after")
    def _check_one(self) -> PublishTarget:
        if self.redis is None:
            raise ValueError('say where to: `redis`, such as {"redis": {"stream": "orders"}}')
        return self

    @property
    def kind(self) -> BrokerKind:
        """What kind of broker it needs."""
        return "redis"
