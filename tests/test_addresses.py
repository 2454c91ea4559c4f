"""Addresses of servers that stand together."""

from __future__ import annotations

import pytest

from cronwell import addresses
from cronwell.addresses import Servers


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("etcd://one", Servers("etcd", (("one", 2379),))),
        ("etcd://one:1,two:2,[::1]:3/", Servers("etcd", (("one", 1), ("two", 2), ("[::1]", 3)))),
        ("etcds://ann:s%40:c@10.0.0.1:1", Servers("etcds", (("10.0.0.1", 1),), "ann", "s@:c")),
        (" etcd://ann@one, two ", Servers("etcd", (("one", 2379), ("two", 2379)), "ann")),
    ],
)
def test_an_address_says_servers_and_who_asks(text: str, meant: Servers) -> None:
    assert addresses.parse(text, schemes=("etcd", "etcds"), port=2379) == meant


@pytest.mark.parametrize("text", ["one:2379", "http://one", "etcd://one:0", "etcd://one,,two", "etcd://a b"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="etcd://"):
        addresses.parse(text, schemes=("etcd", "etcds"), port=2379)
