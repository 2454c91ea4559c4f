"""Reading jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from uuid import UUID

import orjson

from cronwell import errors
from cronwell.runtime import acting
from cronwell.runtime.postgres import Database
from cronwell.runtime.statements import load_statements
from cronwell.store.port import Definition, Job, JobFilter
from cronwell.store.postgres.rows import columns, job_of

_SQL = load_statements(Path(__file__).with_suffix(".sql"))

# The first text after every text with a given prefix, in the "C" order that names are kept in.
_AFTER_ANY = "\U0010ffff"
# The last text before every name that a user can give. Jobs that Cronwell keeps for itself, those of channels of alerts, have
# names before it, and are in no list.
_BEFORE_ANY = "/"

_FIRST = (_BEFORE_ANY, UUID(int=0))


class JobReads:
    """The part of the store that reads jobs."""

    _database: Database

    async def get_job(self, tenant_id: int, job_id: UUID, now: datetime) -> Job | None:
        row = await self._database.fetchrow(_SQL["get_job"], tenant_id, job_id, now)
        return None if row is None else job_of(row)

    async def find_job(self, tenant_id: int, name: str) -> UUID | None:
        found: UUID | None = await self._database.fetchval(_SQL["find_job"], tenant_id, name)
        return found

    async def list_jobs(
        self, tenant_id: int, where: JobFilter, after: tuple[str, UUID] | None, limit: int, now: datetime
    ) -> list[Job]:
        prefix = where.name_prefix
        prefix_end = None if prefix is None else prefix + _AFTER_ANY
        tags = None if not where.tags else orjson.dumps(where.tags).decode()
        name, last_id = max(after, _FIRST) if after is not None else _FIRST
        if where.state == "deleted":
            rows = await self._database.fetch(
                _SQL["list_deleted_jobs"],
                tenant_id,
                prefix,
                prefix_end,
                tags,
                where.pool,
                where.target_kind,
                name,
                last_id,
                limit,
            )
        else:
            with acting.judged_by_statement() if tags else contextlib.nullcontext():
                rows = await self._database.fetch(
                    _SQL["list_jobs"],
                    tenant_id,
                    now,
                    where.state,
                    prefix,
                    prefix_end,
                    tags,
                    where.pool,
                    where.target_kind,
                    name,
                    limit,
                )
        return [job_of(row) for row in rows]

    async def definitions(self, keys: Sequence[tuple[int, UUID]]) -> list[Definition]:
        rows = await self._database.fetch(
            _SQL["definitions"], [tenant for tenant, _ in keys], [job for _, job in keys]
        )
        return [Definition(*row) for row in rows]

    async def definitions_at(self, keys: Sequence[tuple[int, UUID, int]]) -> list[Definition]:
        rows = await self._database.fetch(_SQL["definitions_at"], *columns(keys, 3))
        return [Definition(*row) for row in rows]

    async def pauses_over(self, now: datetime, limit: int) -> list[tuple[int, UUID]]:
        rows = await self._database.fetch(_SQL["pauses_over"], now, limit)
        return [(row["tenant_id"], row["id"]) for row in rows]

    async def signing_secret(self, tenant_id: int) -> str:
        secret: str | None = await self._database.fetchval(_SQL["signing_secret"], tenant_id)
        if secret is None:
            raise errors.NotFound(f"there is no tenant {tenant_id}")
        return secret
