"""Rules of alerts, their channels and incidents."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from uuid import UUID

from cronwell.runtime.postgres import Connection, Database
from cronwell.runtime.statements import load_statements
from cronwell.store.alerts_port import Incident, KeptChannel, KeptRule

_SQL = load_statements(Path(__file__).with_suffix(".sql"))


class AlertReads:
    """The part of the store that reads alerts."""

    _database: Database

    async def get_channels(self, tenant_id: int, names: Sequence[str]) -> list[KeptChannel]:
        rows = await self._database.fetch(_SQL["get_channels"], tenant_id, list(names))
        return [KeptChannel(*row) for row in rows]

    async def list_channels(self, tenant_id: int, after: str | None, limit: int) -> list[KeptChannel]:
        rows = await self._database.fetch(_SQL["list_channels"], tenant_id, after, limit)
        return [KeptChannel(*row) for row in rows]

    async def get_rule(self, tenant_id: int, name: str) -> KeptRule | None:
        row = await self._database.fetchrow(_SQL["get_rule"], tenant_id, name)
        return None if row is None else KeptRule(*row)

    async def list_rules(self, tenant_id: int, after: str | None, limit: int) -> list[KeptRule]:
        rows = await self._database.fetch(_SQL["list_rules"], tenant_id, after, limit)
        return [KeptRule(*row) for row in rows]

    async def count_alerting(self, tenant_id: int) -> tuple[int, int]:
        row = await self._database.fetchrow(_SQL["count_alerting"], tenant_id)
        assert row is not None
        return row["rules"], row["channels"]

    async def list_incidents(
        self, tenant_id: int, *, is_open: bool | None, rule: str | None, after: UUID | None, limit: int
    ) -> list[Incident]:
        rows = await self._database.fetch(_SQL["list_incidents"], tenant_id, is_open, rule, after, limit)
        return [Incident(*row) for row in rows]

    async def all_rules(self, after: tuple[int, str], limit: int) -> list[KeptRule]:
        return [KeptRule(*row) for row in await self._database.fetch(_SQL["all_rules"], *after, limit)]

    async def unsettled_incidents(self, after: tuple[int, UUID], limit: int) -> list[Incident]:
        rows = await self._database.fetch(_SQL["unsettled_incidents"], *after, limit)
        return [Incident(*row) for row in rows]

    async def forget_incidents(self, before: datetime) -> None:
        await self._database.execute(_SQL["forget_incidents"], before)


class AlertWrites:
    """The part of a transaction that changes alerts."""

    _connection: Connection

    async def put_channel(
        self, tenant_id: int, name: str, content: str, job_id: UUID, now: datetime
    ) -> KeptChannel:
        row = await self._connection.fetchrow(_SQL["put_channel"], tenant_id, name, content, job_id, now)
        assert row is not None
        return KeptChannel(*row)

    async def drop_channel(self, tenant_id: int, name: str) -> UUID | None:
        job_id: UUID | None = await self._connection.fetchval(_SQL["drop_channel"], tenant_id, name)
        return job_id

    async def lock_channels(self, tenant_id: int, names: Sequence[str]) -> set[str]:
        rows = await self._connection.fetch(_SQL["lock_channels"], tenant_id, list(names))
        return {row["id"] for row in rows}

    async def channel_users(self, tenant_id: int, name: str, most: int) -> list[str]:
        rows = await self._connection.fetch(_SQL["channel_users"], tenant_id, name, most)
        return [row["id"] for row in rows]

    async def act_unnoted(self) -> None:
        await self._connection.execute(_SQL["act_unnoted"])

    async def put_rule(
        self,
        tenant_id: int,
        name: str,
        content: str,
        channels: Sequence[str],
        now: datetime,
        *,
        revision: int | None,
    ) -> int | None:
        kept: int | None = await self._connection.fetchval(
            _SQL["put_rule"], tenant_id, name, content, list(channels), now, revision
        )
        return kept

    async def drop_rule(self, tenant_id: int, name: str) -> bool:
        return await self._connection.fetchval(_SQL["drop_rule"], tenant_id, name) is not None

    async def incidents_of_rule(self, tenant_id: int, name: str) -> list[Incident]:
        rows = await self._connection.fetch(_SQL["incidents_of_rule"], tenant_id, name)
        return [Incident(*row) for row in rows]

    async def share_rule(self, tenant_id: int, name: str, revision: int) -> bool:
        return await self._connection.fetchval(_SQL["share_rule"], tenant_id, name, revision) is not None

    async def open_incident(self, incident: Incident) -> bool:
        made = await self._connection.fetchval(
            _SQL["open_incident"],
            incident.tenant_id,
            incident.id,
            incident.rule,
            incident.subject,
            incident.job_name,
            incident.severity,
            incident.summary,
            incident.facts,
            incident.opened_at,
        )
        return made is not None

    async def resolve_incident(self, tenant_id: int, incident: UUID, now: datetime, outcome: str) -> bool:
        ended = await self._connection.fetchval(_SQL["resolve_incident"], tenant_id, incident, now, outcome)
        return ended is not None

    async def mark_told(self, incident: Incident, channels: Sequence[str], now: datetime) -> bool:
        marked = await self._connection.fetchval(
            _SQL["mark_told"], incident.tenant_id, incident.id, now, list(channels), incident.repeated_at
        )
        return marked is not None

    async def mark_settled(self, tenant_id: int, incident: UUID, now: datetime) -> bool:
        return await self._connection.fetchval(_SQL["mark_settled"], tenant_id, incident, now) is not None

    async def get_channels(self, tenant_id: int, names: Sequence[str]) -> list[KeptChannel]:
        rows = await self._connection.fetch(_SQL["get_channels"], tenant_id, list(names))
        return [KeptChannel(*row) for row in rows]
