"""Tenants, and the keys by which their callers are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from cronwell.model.access import NO_QUOTAS, Quotas
from cronwell.runtime.postgres import Database
from cronwell.runtime.statements import load_statements
from cronwell.store.access_port import ApiKey, Tenant

_SQL = load_statements(Path(__file__).with_suffix(".sql"))


class AccessRows:
    """The part of the store that knows who may come in."""

    _database: Database

    async def find_key(self, prefix: str) -> tuple[ApiKey, Quotas] | None:
        row = await self._database.fetchrow(_SQL["find_key"], prefix)
        return None if row is None else (ApiKey(*row[:-3]), Quotas(*row[-3:]))

    async def insert_key(self, key: ApiKey) -> None:
        await self._database.execute(_SQL["insert_key"], *_values(key))

    async def get_key(self, tenant_id: int, key_id: UUID) -> ApiKey | None:
        row = await self._database.fetchrow(_SQL["get_key"], tenant_id, key_id)
        return None if row is None else ApiKey(*row)

    async def list_keys(self, tenant_id: int, after: UUID | None, limit: int) -> list[ApiKey]:
        return [
            ApiKey(*row) for row in await self._database.fetch(_SQL["list_keys"], tenant_id, after, limit)
        ]

    async def revoke_key(self, tenant_id: int, key_id: UUID, now: datetime) -> ApiKey | None:
        row = await self._database.fetchrow(_SQL["revoke_key"], tenant_id, key_id, now)
        return None if row is None else ApiKey(*row)

    async def replace_key(self, old: UUID, new: ApiKey, *, good_until: datetime) -> bool:
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(_SQL["lock_api_key"], new.tenant_id, old)
            if row is None or not ApiKey(*row).is_good(new.created_at):
                return False
            await connection.execute(_SQL["insert_key"], *_values(new))
            await connection.execute(_SQL["end_key"], new.tenant_id, old, good_until)
        return True

    async def note_key_use(self, tenant_id: int, key_id: UUID, now: datetime) -> None:
        await self._database.execute(_SQL["note_key_use"], tenant_id, key_id, now)

    async def has_keys(self, now: datetime) -> bool:
        found: bool = await self._database.fetchval(_SQL["has_keys"], now)
        return found

    async def insert_tenant(
        self, name: str, weight: float, signing_secret: str, now: datetime, quotas: Quotas = NO_QUOTAS
    ) -> Tenant | None:
        async with self._database.transaction() as connection:
            await connection.execute("lock table tenants in share row exclusive mode")
            row = await connection.fetchrow(
                _SQL["insert_tenant"], name, weight, signing_secret, now, *_limits(quotas)
            )
        return None if row is None else _tenant(row)

    async def get_tenant(self, name: str) -> Tenant | None:
        row = await self._database.fetchrow(_SQL["get_tenant"], name)
        return None if row is None else _tenant(row)

    async def list_tenants(self, after: str | None, limit: int) -> list[Tenant]:
        return [_tenant(row) for row in await self._database.fetch(_SQL["list_tenants"], after, limit)]

    async def change_tenant(
        self, name: str, weight: float | None, quotas: Mapping[str, Any]
    ) -> Tenant | None:
        async with self._database.transaction() as connection:
            found = await connection.fetchrow(_SQL["lock_tenant"], name)
            if found is None:
                return None
            was = _tenant(found)
            now = dataclasses.replace(was.quotas, **quotas)
            row = await connection.fetchrow(
                _SQL["change_tenant"],
                name,
                was.weight if weight is None else weight,
                *_limits(now),
            )
        return None if row is None else _tenant(row)


def _tenant(row: asyncpg.Record) -> Tenant:
    return Tenant(row["id"], row["name"], row["weight"], row["created_at"], Quotas(*row[-5:]))


def _limits(quotas: Quotas) -> tuple[float | None, ...]:
    return (
        quotas.jobs,
        quotas.payload_bytes,
        quotas.requests_per_second,
        quotas.running,
        quotas.executions_per_minute,
    )


def _values(key: ApiKey) -> tuple[object, ...]:
    return (
        key.tenant_id,
        key.id,
        key.name,
        key.prefix,
        key.digest,
        list(key.scopes),
        key.created_at,
        key.created_by,
        key.expires_at,
        key.replaces,
    )
