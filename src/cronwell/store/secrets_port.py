"""The part of the store that keeps secrets, encrypted, and knows which jobs name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from cronwell.model.envelope import Place, Sealed


@dataclass(frozen=True, slots=True)
class KeptSecret:
    """What anybody may know of a secret."""

    name: str
    revision: int
    key_id: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, repr=False)
class SealedSecret:
    """A secret as it is kept."""

    place: Place
    sealed: Sealed


@dataclass(frozen=True, slots=True, repr=False)
class Rewrapped:
    """A secret's own key, encrypted with another key of the installation."""

    place: Place
    old_key_id: str
    key_id: str
    wrapped_key: bytes


class SecretChanges(Protocol):
    """What a transaction can do about secrets."""

    async def hold_secrets(self, tenant_id: int, names: Sequence[str]) -> set[str]:
        """Those of some secrets that there are; they are not deleted until the transaction has ended."""
        ...

    async def note_secret_uses(
        self, tenant_id: int, jobs: Sequence[UUID], uses: Sequence[tuple[str, UUID]]
    ) -> None:
        """Note which secrets jobs name, in place of what was noted."""
        ...

    async def secret_names(self, tenant_id: int, most: int) -> list[str]: ...


class SecretStore(Protocol):
    """The part of the store."""

    async def put_secret(self, secret: SealedSecret, now: datetime) -> KeptSecret | None:
        """Keep a secret, new or in place of the revision before its own; None where that is another by now."""
        ...

    async def get_secret(self, tenant_id: int, name: str) -> KeptSecret | None: ...
    async def list_secrets(self, tenant_id: int, after: str | None, limit: int) -> list[KeptSecret]: ...
    async def secret_users(self, tenant_id: int, name: str, most: int) -> list[str]:
        """The names of jobs that name a secret, at most so many."""
        ...

    async def drop_secret(self, tenant_id: int, name: str, *, is_forced: bool) -> bool:
        """Forget a secret; False where there is none, or where jobs name it and that is not forced."""
        ...

    async def sealed_secrets(self, keys: Sequence[tuple[int, str]]) -> list[SealedSecret]:
        """Secrets by tenant and name; those that there are."""
        ...

    async def wrapped_otherwise(
        self, key_id: str, after: tuple[int, str] | None, limit: int
    ) -> list[SealedSecret]:
        """Secrets of all tenants whose own keys are encrypted with another key than this one, by tenant and name.

        Their ciphertexts are left out.
        """
        ...

    async def rewrap_secrets(self, rewrapped: Sequence[Rewrapped]) -> int:
        """Put other wrapped keys in place; how many, as a secret that was changed meanwhile is left alone."""
        ...

    async def count_secrets(self) -> Mapping[str, int]:
        """How many secrets of all tenants there are by the key that they are encrypted with."""
        ...
