"""What users are shown of alerts."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

import orjson

from cronwell.control.alerting import kind_of
from cronwell.control.views import Moment, View
from cronwell.model.alerts import ChannelKind, Severity
from cronwell.store.port import Incident, KeptChannel, KeptRule


class ChannelView(View):
    """A way to tell people, or programs."""

    name: str
    revision: int
    kind: ChannelKind
    content: dict[str, Any]
    """Its definition; values of headers, and what in an address lets people in, are not shown."""
    created_at: Moment
    updated_at: Moment


class RuleView(View):
    """What is watched for, and who is told."""

    name: str
    revision: int
    content: dict[str, Any]
    """Its definition, as it was given."""
    created_at: Moment
    updated_at: Moment


class IncidentView(View):
    """Something that a rule found wrong."""

    id: UUID
    rule: str
    state: Literal["open", "resolved"]
    severity: Severity
    summary: str
    job: str | None
    """The name of the job that it is about, where it is about one."""
    job_id: UUID | None
    facts: dict[str, Any]
    opened_at: Moment
    told_at: Moment | None
    """When it was told; null while it waits for the end of quiet hours."""
    told: list[str]
    """The channels that were told."""
    resolved_at: Moment | None
    outcome: str | None
    """How it stood when it was over."""


class Tested(View):
    """What a test of a channel became."""

    execution: str
    """The execution that sends it: `GET /v1/executions/{id}` tells how it ended."""


def channel_view(channel: KeptChannel) -> ChannelView:
    return ChannelView(
        name=channel.name,
        revision=channel.revision,
        kind=kind_of(channel),
        content=orjson.loads(channel.content),
        created_at=channel.created_at,
        updated_at=channel.updated_at,
    )


def rule_view(rule: KeptRule) -> RuleView:
    return RuleView(
        name=rule.name,
        revision=rule.revision,
        content=orjson.loads(rule.content),
        created_at=rule.created_at,
        updated_at=rule.updated_at,
    )


def incident_view(incident: Incident) -> IncidentView:
    return IncidentView(
        id=incident.id,
        rule=incident.rule,
        state="open" if incident.resolved_at is None else "resolved",
        severity=incident.severity,  # type: ignore[arg-type]  # it was one when it was written down
        summary=incident.summary,
        job=incident.job_name,
        job_id=UUID(incident.subject) if incident.job_name is not None else None,
        facts=orjson.loads(incident.facts),
        opened_at=incident.opened_at,
        told_at=incident.told_at,
        told=list(incident.told),
        resolved_at=incident.resolved_at,
        outcome=incident.outcome,
    )
