"""Secrets, encrypted, and which jobs name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from uuid import UUID

import asyncpg

from cronwell.model.envelope import Place, Sealed
from cronwell.runtime.postgres import Connection, Database
from cronwell.runtime.statements import load_statements
from cronwell.store.port import KeptSecret, Rewrapped, SealedSecret
from cronwell.store.postgres.rows import columns

_SQL = load_statements(Path(__file__).with_suffix(".sql"))


class SecretRows:
    """The part of the store that keeps secrets."""

    _database: Database

    async def put_secret(self, secret: SealedSecret, now: datetime) -> KeptSecret | None:
        place, sealed = secret.place, secret.sealed
        row = await self._database.fetchrow(
            _SQL["insert_secret"] if place.revision == 1 else _SQL["change_secret"],
            place.tenant_id,
            place.name,
            place.revision,
            sealed.key_id,
            sealed.wrapped_key,
            sealed.ciphertext,
            now,
        )
        return None if row is None else KeptSecret(*row)

    async def get_secret(self, tenant_id: int, name: str) -> KeptSecret | None:
        row = await self._database.fetchrow(_SQL["get_secret"], tenant_id, name)
        return None if row is None else KeptSecret(*row)

    async def list_secrets(self, tenant_id: int, after: str | None, limit: int) -> list[KeptSecret]:
        rows = await self._database.fetch(_SQL["list_secrets"], tenant_id, after, limit)
        return [KeptSecret(*row) for row in rows]

    async def secret_users(self, tenant_id: int, name: str, most: int) -> list[str]:
        rows = await self._database.fetch(_SQL["secret_users"], tenant_id, name, most)
        return [row["name"] for row in rows]

    async def drop_secret(self, tenant_id: int, name: str, *, is_forced: bool) -> bool:
        async with self._database.transaction() as connection:
            # Two statements: the second sees the uses that were noted while the first one waited.
            await connection.execute(_SQL["lock_secret"], tenant_id, name)
            return await connection.fetchval(_SQL["drop_secret"], tenant_id, name, is_forced) is not None

    async def sealed_secrets(self, keys: Sequence[tuple[int, str]]) -> list[SealedSecret]:
        rows = await self._database.fetch(_SQL["sealed_secrets"], *columns(keys, 2))
        return [_sealed(row) for row in rows]

    async def wrapped_otherwise(
        self, key_id: str, after: tuple[int, str] | None, limit: int
    ) -> list[SealedSecret]:
        rows = await self._database.fetch(_SQL["wrapped_otherwise"], key_id, *(after or (None, None)), limit)
        return [_sealed(row) for row in rows]

    async def rewrap_secrets(self, rewrapped: Sequence[Rewrapped]) -> int:
        given = (
            (r.place.tenant_id, r.place.name, r.place.revision, r.old_key_id, r.key_id, r.wrapped_key)
            for r in rewrapped
        )
        done = await self._database.execute(_SQL["rewrap_secrets"], *columns(given, 6))
        return int(done.rpartition(" ")[2])

    async def count_secrets(self) -> Mapping[str, int]:
        return {row["key_id"]: row["secrets"] for row in await self._database.fetch(_SQL["count_secrets"])}


class SecretNotes:
    """The part of a transaction that notes which secrets jobs name."""

    _connection: Connection

    async def hold_secrets(self, tenant_id: int, names: Sequence[str]) -> set[str]:
        rows = await self._connection.fetch(_SQL["hold_secrets"], tenant_id, list(names))
        return {row["name"] for row in rows}

    async def note_secret_uses(
        self, tenant_id: int, jobs: Sequence[UUID], uses: Sequence[tuple[str, UUID]]
    ) -> None:
        await self._connection.execute(_SQL["forget_secret_uses"], tenant_id, list(jobs))
        if uses:
            await self._connection.execute(_SQL["note_secret_uses"], tenant_id, *columns(uses, 2))

    async def secret_names(self, tenant_id: int, most: int) -> list[str]:
        rows = await self._connection.fetch(_SQL["secret_names"], tenant_id, most)
        return [row["name"] for row in rows]


def _sealed(row: asyncpg.Record) -> SealedSecret:
    place = Place(row["tenant_id"], row["name"], row["revision"])
    return SealedSecret(place, Sealed(row["key_id"], row["wrapped_key"], row["ciphertext"]))
