"""No target reaches a private address, however it is written, unless the operator allows it."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cronwell import errors
from cronwell.targets.egress import Egress

CARRIERS = [IPv6Network(text) for text in ("::/96", "::ffff:0:0/96", "64:ff9b::/96", "2002::/16")]


def is_refused(address: object, *allow: str) -> bool:
    try:
        Egress(allow).check(str(address))
    except errors.EgressRefused:
        return True
    return False


def mapped(inner: IPv4Address) -> IPv6Address:
    return IPv6Address(0xFFFF << 32 | int(inner))


def compatible(inner: IPv4Address) -> IPv6Address:
    return IPv6Address(int(inner))


def nat64(inner: IPv4Address) -> IPv6Address:
    return IPv6Address(int(IPv6Address("64:ff9b::")) | int(inner))


def six_to_four(inner: IPv4Address) -> IPv6Address:
    return IPv6Address(0x2002 << 112 | int(inner) << 80 | 0x1234)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.7",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::2",
        "::127.0.0.1",
        "::169.254.169.254",
        "::ffff:127.0.0.1",
        "::ffff:a9fe:a9fe",
        "::ffff:0:127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808",
        "64:ff9b:1:ffff::10.0.0.1",
        "100::1",
        "2001::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:2::1",
        "2001:10::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "3fff::1",
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
    ],
)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert is_refused(address)


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.1",
        "168.63.129.17",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "223.255.255.255",
        "2001:200::1",
        "2001:4860:4860::8888",
        "2606:4700:4700::1111",
        "2a00:1450:4001::200e",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
    ],
)
def test_a_public_address_may_be_called(address: str) -> None:
    assert not is_refused(address)


@pytest.mark.parametrize(
    "text",
    ["", "localhost", "2130706433", "0x7f.1", "127.1", "0177.0.0.1", "127.0.0.1 ", "[::1]", "1.2.3.4:80"],
)
def test_what_cannot_be_read_as_an_address_is_refused(text: str) -> None:
    assert is_refused(text, "0.0.0.0/0", "::/0")


@given(st.ip_addresses(v=4))
@example(IPv4Address("169.254.169.254"))
@example(IPv4Address("8.8.8.8"))
def test_an_ipv6_address_that_carries_an_ipv4_address_is_judged_by_it(inner: IPv4Address) -> None:
    verdict = is_refused(inner)
    assert is_refused(mapped(inner)) == verdict
    assert is_refused(nat64(inner)) == verdict
    assert is_refused(six_to_four(inner)) == verdict
    assert is_refused(compatible(inner)) == verdict


@given(st.ip_addresses())
@example(IPv6Address("::1"))
def test_what_the_standard_library_calls_private_is_refused(address: IPv4Address | IPv6Address) -> None:
    if not address.is_global and not any(address in carrier for carrier in CARRIERS):
        assert is_refused(address)


@given(st.ip_addresses(v=4, network="10.0.0.0/8"), st.integers(9, 32))
def test_an_allowed_network_opens_its_addresses_in_every_form_and_no_others(
    inside: IPv4Address, prefix: int
) -> None:
    network = IPv4Network((inside, prefix), strict=False)
    for form in (inside, mapped(inside), nat64(inside), six_to_four(inside)):
        assert is_refused(form)
        assert not is_refused(form, str(network))
    beside = ip_address(int(inside) ^ 1 << (32 - prefix))
    assert is_refused(beside, str(network))


@given(st.ip_addresses())
def test_allowing_everything_refuses_nothing(address: IPv4Address | IPv6Address) -> None:
    assert not is_refused(address, "0.0.0.0/0", "::/0")


def test_an_ipv6_network_is_allowed_by_its_own_name() -> None:
    assert not is_refused("fd00::1", "fd00::/8")
    assert not is_refused("64:ff9b:1::a00:1", "64:ff9b:1::/48")
    assert not is_refused("::1", "127.0.0.0/8", "::1")
    assert is_refused("::1", "127.0.0.0/8")


def test_a_refusal_tells_the_operator_what_to_set() -> None:
    with pytest.raises(
        errors.EgressRefused, match=r"10\.1\.2\.3 is a private address.*CRONWELL_EGRESS_ALLOW=10\.1\.2\.3/32"
    ):
        Egress(["10.2.0.0/16"]).check("10.1.2.3")


def test_a_refusal_names_the_address_that_is_carried() -> None:
    with pytest.raises(errors.EgressRefused, match=r"64:ff9b::a9fe:a9fe \(that is 169\.254\.169\.254\)"):
        Egress().check("64:ff9b::a9fe:a9fe")


@pytest.mark.parametrize("text", ["localhost", "10.0.0.1/8", "10.0.0.0/33", "10.*", "", "fd00::/129", "a/b"])
def test_a_network_that_is_not_one_stops_the_start(text: str) -> None:
    with pytest.raises(errors.ConfigError, match="CRONWELL_EGRESS_ALLOW"):
        Egress([text])
