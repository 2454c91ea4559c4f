"""Names into addresses that targets may call, on threads of our own.

The event loop's resolver shares a handful of threads with everything else; a few names whose servers do not
answer would hold up every other lookup of the worker.
"""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from cronwell import errors
from cronwell.targets.egress import Egress
from cronwell.targets.threads import ThreadPool

_THREADS = 32
_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


class SystemResolver(AbstractResolver):
    """Resolve as the operating system does (hosts file, search domains, DNS)."""

    def __init__(self) -> None:
        self._threads = ThreadPool(_THREADS, "cronwell-dns")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of `host`. Raises OSError if there are none."""
        lookup = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
        ticket = self._threads.submit(lookup)
        try:
            answers = await ticket.future
        except UnicodeError as error:
            raise OSError(f"{host!r} cannot be a host name: {error}") from None
        except asyncio.CancelledError:
            self._threads.give_up(ticket)
            raise
        return [
            ResolveResult(
                hostname=host,
                host=_with_scope(address),
                port=port,
                family=kind,
                proto=protocol,
                flags=_NUMERIC,
            )
            for kind, _, protocol, _, address in answers
        ]

    async def close(self) -> None:
        """End the threads."""
        await self._threads.close()


class CheckedResolver(AbstractResolver):
    """Leave out the addresses that targets may not call; refuse a name that has no others."""

    def __init__(self, inner: AbstractResolver, egress: Egress) -> None:
        self._inner = inner
        self._egress = egress

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of `host` that may be called. Raises `EgressRefused` if there are none."""
        answers = await self._inner.resolve(host, port, family)
        allowed: list[ResolveResult] = []
        refusal: errors.EgressRefused | None = None
        for answer in answers:
            try:
                self._egress.check(answer["host"])
            except errors.EgressRefused as error:
                refusal = refusal or error
            else:
                allowed.append(answer)
        if allowed:
            return allowed
        if refusal is not None:
            raise errors.EgressRefused(f"{host} resolves to an address that is refused: {refusal}")
        raise OSError(f"{host} has no addresses")

    async def close(self) -> None:
        """Close the resolver that asks."""
        await self._inner.close()


def _with_scope(address: tuple[Any, ...]) -> str:
    """The address in text, with the link's number where it has one (fe80::1%2)."""
    host = str(address[0])
    scope = address[3] if len(address) > 3 else 0
    return f"{host}%{scope}" if scope and "%" not in host else host
