"""Leases: time-bounded ownership of a duty, so that processes keep out of each other's way.

A lease saves work; it never makes anything correct. Whatever is done under one is also safe when two hold it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Protocol
from uuid import UUID


class Leases(Protocol):
    """Hands out leases. An owner is a random id of one process, never a host's name."""

    async def acquire(self, names: Iterable[str], owner: UUID, ttl: timedelta) -> dict[str, int]:
        """Take or keep leases; those that come back are held, each with its epoch. Any error means: not held."""
        ...

    async def release(self, names: Iterable[str], owner: UUID) -> None:
        """Give leases back at once."""
        ...
