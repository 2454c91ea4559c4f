"""Shards: their fences and watermarks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from uuid import UUID

from cronwell import errors
from cronwell.runtime.postgres import Connection, Database
from cronwell.runtime.statements import load_statements
from cronwell.store.cluster_port import Shard

_SQL = load_statements(Path(__file__).with_suffix(".sql"))


class ShardChanges:
    """The part of a transaction that stands in a shard's epoch."""

    _connection: Connection

    async def hold_shards(self, owner: UUID, epochs: Mapping[int, int]) -> None:
        rows = await self._connection.fetch(_SQL["hold_shards"], list(epochs), list(epochs.values()), owner)
        lost = epochs.keys() - {row["shard"] for row in rows}
        if lost:
            raise errors.Fenced(lost)


class ShardRows:
    """The part of the store that keeps shards."""

    _database: Database

    async def enter_shards(self, owner: UUID, shards: Iterable[int], now: datetime) -> dict[int, int]:
        rows = await self._database.fetch(_SQL["enter_shards"], sorted(shards), owner, now)
        return {row["shard"]: row["epoch"] for row in rows}

    async def mark_shards(
        self, owner: UUID, epochs: Mapping[int, int], horizon: datetime, now: datetime
    ) -> dict[int, datetime]:
        rows = await self._database.fetch(
            _SQL["mark_shards"], list(epochs), list(epochs.values()), owner, horizon, now
        )
        return {row["shard"]: row["watermark"] for row in rows}

    async def list_shards(self) -> list[Shard]:
        return [Shard(*row) for row in await self._database.fetch(_SQL["list_shards"])]
