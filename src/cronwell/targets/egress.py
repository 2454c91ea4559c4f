"""Which addresses a target may call: our own table, judged on the address that is connected to.

The standard library's `is_global` cannot be used as a guard: depending on the Python release it lets through
addresses that translate or tunnel to private ones (NAT64, 6to4, IPv4-compatible), the metadata services of
some clouds (192.0.0.192, 168.63.129.16), multicast and site-local addresses. Here an IPv4 address is refused
when the table names it, an IPv6 address unless it is global unicast, and an IPv6 address that carries an IPv4
address is judged by the one it carries, because that is where the packets go.

What the operator allows wins over the table. A network's own NAT64 prefix cannot be known here: where one is
in use, the translator must refuse private destinations itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from cronwell import errors

SETTING = "CRONWELL_EGRESS_ALLOW"

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_REFUSED_V4 = tuple(
    (IPv4Network(network), what)
    for network, what in (
        ("0.0.0.0/8", "an unspecified address"),
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "a carrier's shared address"),
        ("127.0.0.0/8", "a loopback address"),
        ("168.63.129.16/32", "a cloud's platform service"),
        ("169.254.0.0/16", "a link-local address (clouds serve credentials there)"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "a protocol assignment (a cloud serves credentials there)"),
        ("192.0.2.0/24", "a documentation address"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "a private address"),
        ("198.18.0.0/15", "a benchmarking address"),
        ("198.51.100.0/24", "a documentation address"),
        ("203.0.113.0/24", "a documentation address"),
        ("224.0.0.0/4", "a multicast address"),
        ("240.0.0.0/4", "a reserved address"),
    )
)
_REFUSED_V6 = tuple(
    (IPv6Network(network), what)
    for network, what in (
        ("::/128", "an unspecified address"),
        ("::1/128", "a loopback address"),
        ("64:ff9b:1::/48", "a local translation (NAT64) address"),
        ("100::/64", "a discard address"),
        ("2001::/23", "a protocol assignment (Teredo, ORCHID, benchmarking)"),
        ("2001:db8::/32", "a documentation address"),
        ("3fff::/20", "a documentation address"),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a site-local address"),
        ("ff00::/8", "a multicast address"),
    )
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
# Where the IPv4 address starts inside each form, counted in bits from the right.
_CARRIERS = (
    (IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped
    (IPv6Network("::/96"), 0),  # IPv4-compatible
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (IPv6Network("2002::/16"), 80),  # 6to4
)


class Egress:
    """Refuse every address that is not public, except those that the operator allows."""

    __slots__ = ("_allowed",)

    def __init__(self, allow: Sequence[str] = ()) -> None:
        self._allowed: tuple[Network, ...] = tuple(_read_network(text) for text in allow)

    def check(self, address: str) -> None:
        """Raise `EgressRefused` unless targets may call `address`, an IP address in text."""
        parsed = _read_address(address)
        if parsed is None:
            # Fails closed: what we cannot read, the operating system might.
            raise errors.EgressRefused(f"{address!r} is not an IP address in its usual form; not called")
        forms = tuple(_forms(parsed))
        if any(form in network for network in self._allowed for form in forms):
            return
        what = describe_refusal(forms[-1])
        if what is None:
            return
        shown = str(parsed) if parsed == forms[-1] else f"{parsed} (that is {forms[-1]})"
        raise errors.EgressRefused(
            f"{shown} is {what}, which targets may not call; to allow it, add {forms[-1]} or its network to "
            f"{SETTING} (e.g. {SETTING}={ip_network(forms[-1])}) and restart the workers"
        )


def describe_refusal(address: Address) -> str | None:
    """Say what `address` is if targets may not call it by default; None for a public address."""
    if isinstance(address, IPv4Address):
        return next((what for network, what in _REFUSED_V4 if address in network), None)
    for network, what in _REFUSED_V6:
        if address in network:
            return what
    return None if address in _GLOBAL_UNICAST else "not a public address"


def _forms(address: Address) -> Iterator[Address]:
    """Yield the address, then the IPv4 address that it carries, if it carries one."""
    yield address
    if isinstance(address, IPv4Address) or int(address) <= 1:
        return  # :: and ::1 look IPv4-compatible, but are what they are
    for network, shift in _CARRIERS:
        if address in network:
            yield IPv4Address(int(address) >> shift & 0xFFFF_FFFF)
            return


def _read_address(text: str) -> Address | None:
    try:
        # A scope (fe80::1%eth0) says which link, not which address.
        # Only IPv6 has one: 8.8.8.8%.example.com is a name, which the operating system would look up.
        address = text.partition("%")[0]
        return ip_address(address if ":" in address else text)
    except ValueError:
        return None


def _read_network(text: str) -> Network:
    try:
        return ip_network(text.strip())
    except ValueError as error:
        raise errors.ConfigError(
            f"{SETTING}: {text!r} is not a network ({error}); write addresses or networks separated by commas, "
            "such as 127.0.0.0/8,10.1.0.0/16,fd00::/8"
        ) from None
