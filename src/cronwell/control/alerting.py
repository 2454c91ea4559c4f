"""Telling of incidents. What is told, and that it was told, is written in one transaction: nothing is told twice, and nothing
that was written down is forgotten.

Whoever wants to tell something first claims the right to, by a conditional write to the incident. A message is an execution of
the job of its channel, so that it is retried, kept in the history, and a dead letter where it never arrives. Its id, the same on
every attempt, is what a receiver knows a second delivery by.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime, timedelta

import orjson

from cronwell import telemetry
from cronwell.model.alert_messages import Alert, Event, payload_for
from cronwell.model.alerts import ChannelKind
from cronwell.model.execution import ExecutionKey, Kind
from cronwell.model.planning import PRIORITIES
from cronwell.store.port import Incident, KeptChannel, NewExecution, Transaction

_MICROSECOND = timedelta(microseconds=1)


def kind_of(channel: KeptChannel) -> ChannelKind:
    content = orjson.loads(channel.content)
    if "webhook" in content:
        return "webhook"
    return "email" if "email" in content else "slack"


async def tell(
    transaction: Transaction,
    tenant_id: int,
    alert: Alert,
    channels: Sequence[str],
    *,
    pool: str,
    now: datetime,
) -> list[ExecutionKey]:
    """Have channels say something; those that are not there any more are passed over."""
    told: list[ExecutionKey] = []
    for channel in await transaction.get_channels(tenant_id, channels):
        new = NewExecution(
            tenant_id=tenant_id,
            key=ExecutionKey(channel.job_id, Kind.MANUAL, now),
            ready_at=now,
            revision=channel.job_revision,
            priority=PRIORITIES["high"],
            running_limit=None,
            pool=pool,
            payload=orjson.dumps(payload_for(kind_of(channel), alert)).decode(),
            reason="alert",
        )
        while not await transaction.insert_execution(new):
            # The channel has something else to say in the same microsecond.
            new = dataclasses.replace(new, key=dataclasses.replace(new.key, slot=new.key.slot + _MICROSECOND))
        told.append(new.key)
    telemetry.alert_told(alert.event, messages=len(told))
    return told


async def tell_beginning(
    transaction: Transaction, incident: Incident, channels: Sequence[str], *, pool: str, now: datetime
) -> bool:
    """Tell that an incident began or, where that was told, that it goes on; False where somebody else has."""
    if not await transaction.mark_told(incident, channels, now):
        return False
    is_first = incident.told_at is None
    alert = alert_of("opened" if is_first else "repeated", incident)
    told_by = channels if is_first else incident.told
    await tell(transaction, incident.tenant_id, alert, told_by, pool=pool, now=now)
    return True


async def tell_end(transaction: Transaction, incident: Incident, *, pool: str, now: datetime) -> bool:
    """Tell those who were told of an incident that it is over; False where somebody else has."""
    if not await transaction.mark_settled(incident.tenant_id, incident.id, now):
        return False
    alert = alert_of("resolved", incident)
    await tell(transaction, incident.tenant_id, alert, incident.told, pool=pool, now=now)
    return True


async def end(
    transaction: Transaction,
    incident: Incident,
    outcome: str,
    *,
    pool: str,
    now: datetime,
    is_quiet: bool = False,
) -> bool:
    """Write down that an incident is over and, unless it is quiet now, tell it; False where somebody else has."""
    if not await transaction.resolve_incident(incident.tenant_id, incident.id, now, outcome):
        return False
    telemetry.alert_resolved(rule=incident.rule, summary=incident.summary, outcome=outcome)
    if incident.told_at is not None and not is_quiet:
        over = dataclasses.replace(incident, resolved_at=now, outcome=outcome)
        await tell_end(transaction, over, pool=pool, now=now)
    return True


def alert_of(event: Event, incident: Incident) -> Alert:
    """What there is to say of an incident."""
    return Alert(
        event=event,
        incident=str(incident.id),
        rule=incident.rule,
        severity=incident.severity,  # type: ignore[arg-type]  # it was one when it was written down
        summary=incident.summary,
        opened_at=incident.opened_at,
        job=incident.job_name,
        job_id=incident.subject if incident.job_name is not None else None,
        resolved_at=incident.resolved_at,
        outcome=incident.outcome,
        facts=orjson.loads(incident.facts),
    )
