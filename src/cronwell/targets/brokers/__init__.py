"""Brokers that messages are published to: a file for each kind, behind the port of `brokers.port`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cronwell.config import PublishSettings
from cronwell.targets.brokers.port import Broker
from cronwell.targets.brokers.redis import RedisBroker

_BY_SCHEME: dict[str, Callable[[str, str, PublishSettings], Broker]] = {
    "redis": RedisBroker,
    "rediss": RedisBroker,
}


def name_brokers(addresses: Mapping[str, str], settings: PublishSettings) -> dict[str, Broker]:
    """A broker for each name; it is connected to when the first message comes."""
    return {
        name: _BY_SCHEME[address.partition("://")[0]](name, address, settings)
        for name, address in addresses.items()
    }
