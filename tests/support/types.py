"""What a server says of its types, remembered from one connection to the next.

A client asks for it on every new connection, which takes the server 15 ms, and most tests open several on a database of their
own. Numbers of types are given out once in a server, and copies of a database keep them.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from asyncpg import Connection

_ASK = Connection._introspect_types  # type: ignore[attr-defined]  # not for the public
_KNOWN: dict[tuple[object, frozenset[int]], Any] = {}


async def _asked_once(self: Any, typeoids: Iterable[int], timeout: float | None) -> tuple[Any, Any]:
    key = (self._addr, frozenset(typeoids))
    if key not in _KNOWN:
        types, statement = await _ASK(self, typeoids, timeout)
        _KNOWN[key] = types
        return types, statement
    # Nothing was asked, so what the client had prepared is still there.
    return _KNOWN[key], SimpleNamespace(name="remembered")


def remember() -> None:
    """Ask each server of this process once."""
    Connection._introspect_types = _asked_once  # type: ignore[attr-defined]  # not for the public
