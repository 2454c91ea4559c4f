"""The part of the store that knows who changed what."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which changes; what is None does not matter."""

    object: str | None = None
    actor: str | None = None
    action: str | None = None
    request_id: str | None = None
    since: datetime | None = None
    before: datetime | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change, as it was written down."""

    id: int
    at: datetime
    actor: str
    source: str
    """The address that the request came from."""
    request_id: str
    action: str
    object: str
    before: str | None
    """As JSON."""
    after: str | None
    number: int | None = None
    """Its place in the chain; None: it is not chained yet."""
    digest: bytes | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A place in a chain."""

    number: int
    digest: bytes
    is_whole: bool
    """Whether the digest is what the entry, and the digest before it, make it."""


class AuditStore(Protocol):
    """The part of the store."""

    async def list_audit(
        self, tenant_id: int, where: AuditFilter, after: int | None, limit: int
    ) -> list[AuditEntry]:
        """The newest first."""
        ...

    async def check_audit(self, tenant_id: int, after: int, limit: int) -> list[Link]:
        """Links of a tenant's chain from behind a number on."""
        ...

    async def count_unsealed(self, tenant_id: int) -> int: ...
    async def seal_audit(self, limit: int) -> int:
        """Chain the changes of all tenants that are not chained yet; how many they were."""
        ...
