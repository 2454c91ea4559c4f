"""The part of the store that knows rules of alerts, their channels and incidents, and what the rules look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from cronwell.model.alert_judging import Run, Success


@dataclass(frozen=True, slots=True)
class KeptChannel:
    """A channel as it is kept: without what is secret in it."""

    name: str
    revision: int
    content: str
    """JSON, as it may be shown."""
    job_id: UUID
    """The job that sends what it has to say."""
    created_at: datetime
    updated_at: datetime
    job_revision: int = 1


@dataclass(frozen=True, slots=True)
class KeptRule:
    """A rule as it is kept."""

    tenant_id: int
    name: str
    revision: int
    content: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that a rule found wrong."""

    tenant_id: int
    id: UUID
    rule: str
    subject: str
    """A job's id; nothing where it is about all that the rule watches; * for the jobs beyond those that are told one by one."""
    job_name: str | None
    severity: str
    summary: str
    facts: str
    """JSON."""
    opened_at: datetime
    told_at: datetime | None = None
    """When its channels were told that it began."""
    repeated_at: datetime | None = None
    """When they were last told of it."""
    told: Sequence[str] = ()
    """The channels that were told."""
    resolved_at: datetime | None = None
    outcome: str | None = None
    settled_at: datetime | None = None
    """Since when nothing is left to be told."""


@dataclass(frozen=True, slots=True)
class WatchedJob:
    """A job, as far as a rule looks at it."""

    id: UUID
    name: str
    state: str
    tags: str
    """JSON."""
    updated_at: datetime


class AlertChanges(Protocol):
    """The part of a transaction."""

    async def put_channel(
        self, tenant_id: int, name: str, content: str, job_id: UUID, now: datetime
    ) -> KeptChannel:
        """Keep a channel; one that was there keeps its job."""
        ...

    async def drop_channel(self, tenant_id: int, name: str) -> UUID | None:
        """Forget a channel and return its job; None where there is none."""
        ...

    async def lock_channels(self, tenant_id: int, names: Sequence[str]) -> set[str]:
        """Which of these channels there are, until the transaction ends."""
        ...

    async def channel_users(self, tenant_id: int, name: str, most: int) -> list[str]:
        """The rules that speak by a channel."""
        ...

    async def act_unnoted(self) -> None:
        """What follows is Cronwell's own doing, and not written down as somebody's."""
        ...

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
        """Keep a rule and return its revision; None where nothing changed, or the revision is another."""
        ...

    async def drop_rule(self, tenant_id: int, name: str) -> bool: ...
    async def incidents_of_rule(self, tenant_id: int, name: str) -> list[Incident]:
        """Those that are not settled."""
        ...

    async def share_rule(self, tenant_id: int, name: str, revision: int) -> bool:
        """Whether a rule is at a revision; it stays there until the transaction ends."""
        ...

    async def open_incident(self, incident: Incident) -> bool:
        """Write down what is wrong; False where it is written down already, or was found over since it was looked at."""
        ...

    async def resolve_incident(self, tenant_id: int, incident: UUID, now: datetime, outcome: str) -> bool:
        """Write down that it is over; False where it is already, or began after it was looked at."""
        ...

    async def mark_told(self, incident: Incident, channels: Sequence[str], now: datetime) -> bool:
        """Claim the right to tell of it; False where somebody else has since it was read."""
        ...

    async def mark_settled(self, tenant_id: int, incident: UUID, now: datetime) -> bool:
        """Claim the right to tell that it is over; False where somebody else has."""
        ...

    async def get_channels(self, tenant_id: int, names: Sequence[str]) -> list[KeptChannel]: ...


class AlertStore(Protocol):
    """The part of the store."""

    async def get_channels(self, tenant_id: int, names: Sequence[str]) -> list[KeptChannel]: ...
    async def list_channels(self, tenant_id: int, after: str | None, limit: int) -> list[KeptChannel]: ...
    async def get_rule(self, tenant_id: int, name: str) -> KeptRule | None: ...
    async def list_rules(self, tenant_id: int, after: str | None, limit: int) -> list[KeptRule]: ...
    async def count_alerting(self, tenant_id: int) -> tuple[int, int]:
        """How many rules and how many channels a tenant has."""
        ...

    async def list_incidents(
        self, tenant_id: int, *, is_open: bool | None, rule: str | None, after: UUID | None, limit: int
    ) -> list[Incident]:
        """The newest first."""
        ...

    # what the chore reads
    async def all_rules(self, after: tuple[int, str], limit: int) -> list[KeptRule]: ...
    async def unsettled_incidents(self, after: tuple[int, UUID], limit: int) -> list[Incident]: ...
    async def forget_incidents(self, before: datetime) -> None: ...
    async def watched_by_name(self, tenant_id: int, names: Sequence[str]) -> list[WatchedJob]: ...
    async def watched_by_id(self, tenant_id: int, ids: Sequence[UUID]) -> list[WatchedJob]: ...
    async def watched_slice(
        self, tenant_id: int, after: UUID, tags: Mapping[str, str], size: int
    ) -> tuple[list[WatchedJob], UUID | None]:
        """Of the next `size` jobs, those that are fired by a schedule and have the tags; and where the slice ended."""
        ...

    async def newest_runs(
        self, tenant_id: int, jobs: Sequence[UUID], now: datetime, limit: int
    ) -> dict[UUID, list[Run]]: ...
    async def last_successes(
        self, tenant_id: int, jobs: Sequence[UUID], since: datetime, now: datetime, limit: int
    ) -> dict[UUID, Success]: ...
    async def dead_by_job(self, tenant_id: int, limit: int) -> dict[UUID, int]: ...
    async def waiting_long(self, tenant_id: int, since: datetime, limit: int) -> dict[UUID, list[Run]]: ...
    async def running_long(self, tenant_id: int, since: datetime, limit: int) -> dict[UUID, list[Run]]: ...
    async def waiting_depth(self, tenant_id: int, now: datetime, limit: int) -> dict[str, int]: ...
