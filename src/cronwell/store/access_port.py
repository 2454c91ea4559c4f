"""The part of the store that knows who may come in: tenants, and their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from cronwell.model.access import NO_QUOTAS, Quotas


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is kept: not the secret itself."""

    tenant_id: int
    id: UUID
    name: str
    prefix: str
    digest: bytes
    scopes: Sequence[str]
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    replaces: UUID | None = None
    """The key in whose place it was made."""

    def is_good(self, now: datetime) -> bool:
        """Tell whether it opens anything."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


@dataclass(frozen=True, slots=True)
class Tenant:
    """A team."""

    id: int
    name: str
    weight: float
    created_at: datetime
    quotas: Quotas = NO_QUOTAS


class AccessStore(Protocol):
    """The part of the store."""

    async def find_key(self, prefix: str) -> tuple[ApiKey, Quotas] | None:
        """The key with a prefix, whoever's it is, and what its tenant may have."""
        ...

    async def insert_key(self, key: ApiKey) -> None: ...
    async def get_key(self, tenant_id: int, key_id: UUID) -> ApiKey | None: ...
    async def list_keys(self, tenant_id: int, after: UUID | None, limit: int) -> list[ApiKey]:
        """The newest first."""
        ...

    async def revoke_key(self, tenant_id: int, key_id: UUID, now: datetime) -> ApiKey | None: ...
    async def replace_key(self, old: UUID, new: ApiKey, *, good_until: datetime) -> bool:
        """Put a key beside one of the same tenant, which is good until a time; False where that is over already."""
        ...

    async def note_key_use(self, tenant_id: int, key_id: UUID, now: datetime) -> None: ...
    async def has_keys(self, now: datetime) -> bool:
        """Whether anybody could show a key."""
        ...

    async def insert_tenant(
        self, name: str, weight: float, signing_secret: str, now: datetime, quotas: Quotas = NO_QUOTAS
    ) -> Tenant | None:
        """Add a tenant; None where its name is taken."""
        ...

    async def get_tenant(self, name: str) -> Tenant | None: ...
    async def list_tenants(self, after: str | None, limit: int) -> list[Tenant]:
        """By name."""
        ...

    async def change_tenant(
        self, name: str, weight: float | None, quotas: Mapping[str, float | None]
    ) -> Tenant | None:
        """Change what is given: the share, and quotas by their names."""
        ...
