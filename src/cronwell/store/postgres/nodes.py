"""Processes as they tell of themselves, and what the scanner has found."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from uuid import UUID

from cronwell.runtime.postgres import Database
from cronwell.runtime.statements import load_statements
from cronwell.store.cluster_port import Finding, Node

_SQL = load_statements(Path(__file__).with_suffix(".sql"))


class NodeRows:
    """The part of the store that keeps processes."""

    _database: Database

    async def see_node(self, node: Node) -> datetime | None:
        asked_at: datetime | None = await self._database.fetchval(
            _SQL["see"], node.id, node.role, node.name, node.version, node.started_at, node.seen_at
        )
        return asked_at

    async def stop_node(self, node: UUID, now: datetime) -> None:
        await self._database.execute(_SQL["stop"], node, now)

    async def ask_to_drain(self, node: UUID, now: datetime) -> datetime | None:
        asked_at: datetime | None = await self._database.fetchval(_SQL["ask_to_drain"], node, now)
        return asked_at

    async def list_nodes(self, seen_since: datetime) -> list[Node]:
        return [Node(*row) for row in await self._database.fetch(_SQL["list_nodes"], seen_since)]

    async def forget_nodes(self, before: datetime) -> None:
        await self._database.execute(_SQL["forget_nodes"], before)

    async def incarnation(self) -> str:
        told: str = await self._database.fetchval(_SQL["incarnation"])
        return told

    async def put_findings(self, findings: Iterable[Finding]) -> None:
        async with self._database.transaction() as connection:
            for each in findings:
                await connection.execute(
                    _SQL["put_findings"],
                    each.kind,
                    each.found,
                    each.mended,
                    list(each.examples),
                    each.walked_at,
                )

    async def list_findings(self) -> list[Finding]:
        rows = await self._database.fetch(_SQL["list_findings"])
        return [
            Finding(row["kind"], row["found"], row["mended"], tuple(row["examples"]), row["walked_at"])
            for row in rows
        ]
