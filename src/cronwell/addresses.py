"""Addresses of servers that do one job together, in one text: `etcd://user:password@one:2379,two:2379`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

BROKER_PATTERN = r"^[a-z][a-z0-9_]{0,62}$"
"""The names that brokers may have, in settings and in jobs."""
DEFAULT_BROKER = "default"
BROKER_SCHEMES = {"redis": ("redis", "rediss")}
"""How the address of each kind of broker begins; the second one is with TLS."""
REDIS_PORT = 6379

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Servers:
    """What such a text says."""

    scheme: str
    hosts: tuple[tuple[str, int], ...]
    """Names (or addresses; those of IPv6 in brackets) and ports, at least one."""
    user: str = ""
    password: str = field(default="", repr=False)
    database: int = 0
    """The number after a slash at the end, of a broker that has numbered databases."""


def is_loopback(host: str) -> bool:
    """Tell whether an address, or a name, is this machine's own and leads nobody else here."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_one(text: str, *, schemes: Sequence[str], port: int) -> Servers:
    """Read the address of one server with numbered databases: `redis://:password@one:6379/3`. Raises ValueError."""
    address, _, number = text.strip().rpartition("/")
    if address.endswith(":/") or "@" in number:
        address, number = text, "0"
    number = number or "0"
    if not (number.isascii() and number.isdigit() and len(number) < 6):
        raise ValueError(
            f"{number!r} is not the number of a database: the address is {schemes[0]}://HOST:PORT/NUMBER"
        )
    servers = parse(address, schemes=schemes, port=port, needs_user=False)
    if len(servers.hosts) != 1:
        raise ValueError(
            f"{without_password(text)!r} names several hosts: the address is {schemes[0]}://HOST:PORT"
        )
    return replace(servers, database=int(number))


def parse(text: str, *, schemes: Sequence[str], port: int, needs_user: bool = True) -> Servers:
    """Read an address; `port` is for hosts that name none. Raises ValueError that says what is accepted."""
    accepted = f"{schemes[0]}://HOST:PORT,HOST:PORT"
    scheme, _, rest = text.strip().partition("://")
    if scheme not in schemes:
        raise ValueError(
            f"{without_password(text)!r} does not start with {' or '.join(f'{each}://' for each in schemes)}"
        )
    login, at, names = rest.removesuffix("/").rpartition("@")
    user, _, password = login.partition(":")
    if at and not user and (needs_user or not password):
        raise ValueError(
            f"the address has an @ but no user before it: it is {schemes[0]}://USER:PASSWORD@HOST:PORT"
        )
    hosts = []
    for name in names.split(","):
        found = _HOST.fullmatch(name.strip())
        if found is None or not 0 < int(found["port"] or port) < 65_536:
            raise ValueError(f"{name!r} is not a host and a port: the address is {accepted}")
        hosts.append((found["name"], int(found["port"] or port)))
    return Servers(scheme, tuple(hosts), unquote(user), unquote(password))


def without_password(text: str) -> str:
    """The same address, fit to be shown."""
    return re.sub(r"(://[^:@/]*):.*@", r"\1:***@", text)
