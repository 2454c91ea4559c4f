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


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("redis://one", Servers("redis", (("one", 6379),))),
        ("redis://one/", Servers("redis", (("one", 6379),))),
        ("rediss://[::1]:7/15", Servers("rediss", (("[::1]", 7),), database=15)),
        ("redis://:a/b@one:1", Servers("redis", (("one", 1),), "", "a/b")),
        ("redis://:p%2Fw@one:1/2", Servers("redis", (("one", 1),), "", "p/w", 2)),
    ],
)
def test_an_address_of_one_server_says_its_database(text: str, meant: Servers) -> None:
    found = addresses.parse_one(text, schemes=("redis", "rediss"), port=6379)
    assert found == meant
    assert not meant.password or meant.password not in repr(found)


@pytest.mark.parametrize("text", ["one:2379", "http://one", "etcd://one:0", "etcd://one,,two", "etcd://a b"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="etcd://"):
        addresses.parse(text, schemes=("etcd", "etcds"), port=2379)
