"""What a user can do with alerts, in verbs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from cronwell import durations, errors, telemetry
from cronwell.bus.port import Bus, work_in
from cronwell.config import Settings
from cronwell.control import alerting
from cronwell.control.alert_views import (
    ChannelView,
    IncidentView,
    RuleView,
    Tested,
    channel_view,
    incident_view,
    rule_view,
)
from cronwell.control.naming import note_channel
from cronwell.control.paging import read_cursor, write_cursor
from cronwell.control.scheduling import wait_until_started
from cronwell.control.views import Page
from cronwell.model import validation
from cronwell.model.alert_messages import Alert
from cronwell.model.alerts import MASK, Channel, Email, Rule, own_job
from cronwell.model.identity import RANDOM_BITS, new_job_id
from cronwell.model.planning import PRIORITIES
from cronwell.model.validation import validate
from cronwell.runtime.clock import Clock
from cronwell.store.port import KeptChannel, KeptRule, NewJob, Store, Transaction

MOST_RULES = 200
MOST_CHANNELS = 50
NAMED = 5
# A message is worth a day of trying: the receiver may be down together with what it is about.
_RETRY = {"max_attempts": 20, "initial_delay": "5s", "max_delay": "2h"}
_TIMEOUT = "30s"
_NOWHERE = {"http": {"url": "https://deleted.invalid"}}


class Alerts:
    """The verbs. One instance serves a process."""

    def __init__(self, store: Store, bus: Bus, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._settings = settings

    async def put_channel(
        self, tenant_id: int, name: str, raw: Mapping[str, Any]
    ) -> tuple[ChannelView, bool]:
        """Keep a channel under a name; True where it is new. What it has still to say goes by the new definition."""
        channel = validate(Channel, raw)
        _refuse_masks(channel)
        if channel.email is not None:
            self._check_mail(channel.email)
        if not await self._store.get_channels(tenant_id, [name]):
            _, channels = await self._store.count_alerting(tenant_id)
            _check_room("channels", channels, MOST_CHANNELS)
        async with self._store.transaction() as transaction:
            now = self._clock.now()
            content = orjson.dumps(channel.shown()).decode()
            new_id = new_job_id(now, secrets.randbits(RANDOM_BITS))
            kept = await transaction.put_channel(tenant_id, name, content, new_id, now)
            await self._put_job(transaction, tenant_id, kept, channel, now)
        telemetry.alerting_changed("channel", name=name, revision=kept.revision)
        return channel_view(kept), kept.revision == 1

    async def get_channel(self, tenant_id: int, name: str) -> ChannelView:
        return channel_view(await self._channel(tenant_id, name))

    async def channels(self, tenant_id: int, *, cursor: str | None, limit: int) -> Page[ChannelView]:
        """Channels by name."""
        place = read_cursor(cursor, 1)
        found = await self._store.list_channels(tenant_id, None if place is None else place[0], limit + 1)
        shown = found[:limit]
        following = write_cursor(shown[-1].name) if len(found) > limit else None
        return Page(items=[channel_view(each) for each in shown], next_cursor=following)

    async def delete_channel(self, tenant_id: int, name: str) -> None:
        """Forget a channel by which no rule speaks; what it has still to say is not said."""
        async with self._store.transaction() as transaction:
            now = self._clock.now()
            # First: whoever makes a rule of it meanwhile is waited for, and seen.
            job_id = await transaction.drop_channel(tenant_id, name)
            if job_id is None:
                raise _no_channel(name)
            if users := await transaction.channel_users(tenant_id, name, NAMED + 1):
                shown = ", ".join(users[:NAMED]) + (" and others" if len(users) > NAMED else "")
                raise errors.IllegalState(
                    f"rules speak by the channel {name!r} ({shown}); give them another one, or delete them first"
                )
            await transaction.act_unnoted()
            await transaction.lock_job(tenant_id, job_id)
            touched = await transaction.withhold_due(tenant_id, job_id, now, "deleted")
            # Deleted jobs are kept, and what lets people in is not to be kept with them.
            await transaction.update_job(self._job(tenant_id, job_id, name, _NOWHERE), "deleted", now)
            await transaction.set_job_state(tenant_id, job_id, "deleted", now)
            await note_channel(transaction, tenant_id, job_id, {})
        telemetry.alerting_changed("channel", name=name, revision=0)
        await wait_until_started(touched, self._clock)

    async def test(self, tenant_id: int, name: str) -> Tested:
        """Have a channel say something, to see that it arrives."""
        async with self._store.transaction() as transaction:
            now = self._clock.now()
            alert = Alert(
                event="test",
                incident=None,
                rule=None,
                severity="info",
                summary=f"this is a test of the channel {name}; nothing is wrong",
                opened_at=now,
            )
            pool = self._settings.alerts.pool
            told = await alerting.tell(transaction, tenant_id, alert, [name], pool=pool, now=now)
            if not told:
                raise _no_channel(name)
            execution = str(told[0])
            await transaction.note_change(
                tenant_id, "tested", f"alert-channel:{name}", f'{{"execution": "{execution}"}}'
            )
        await self._bus.publish([work_in(pool)])
        return Tested(execution=execution)

    async def put_rule(
        self, tenant_id: int, name: str, raw: Mapping[str, Any], *, revision: int | None = None
    ) -> tuple[RuleView, bool]:
        """Keep a rule under a name; True where it is new. Its incidents go on, and are judged by what it is now."""
        rule = validate(Rule, raw)
        await self._check_rule(tenant_id, rule)
        was = await self._store.get_rule(tenant_id, name)
        if was is None:
            if revision is not None:
                raise errors.RevisionMismatch(
                    f"If-Match says revision {revision}, but there is no rule {name!r}"
                )
            rules, _ = await self._store.count_alerting(tenant_id)
            _check_room("rules", rules, MOST_RULES)
        async with self._store.transaction() as transaction:
            there = await transaction.lock_channels(tenant_id, rule.channels)
            if missing := [each for each in rule.channels if each not in there]:
                await self._refuse_channel(tenant_id, missing[0])
            content = orjson.dumps(raw, option=orjson.OPT_SORT_KEYS).decode()
            kept = await transaction.put_rule(
                tenant_id, name, content, rule.channels, self._clock.now(), revision=revision
            )
        found = await self._rule(tenant_id, name)
        if kept is None and revision is not None and found.revision != revision:
            raise errors.RevisionMismatch(
                f"If-Match says revision {revision}, but the rule is at {found.revision}; read it again first"
            )
        if kept is not None:
            telemetry.alerting_changed("rule", name=name, revision=kept)
        return rule_view(found), kept == 1

    async def get_rule(self, tenant_id: int, name: str) -> RuleView:
        return rule_view(await self._rule(tenant_id, name))

    async def rules(self, tenant_id: int, *, cursor: str | None, limit: int) -> Page[RuleView]:
        """Rules by name."""
        place = read_cursor(cursor, 1)
        found = await self._store.list_rules(tenant_id, None if place is None else place[0], limit + 1)
        shown = found[:limit]
        following = write_cursor(shown[-1].name) if len(found) > limit else None
        return Page(items=[rule_view(each) for each in shown], next_cursor=following)

    async def delete_rule(self, tenant_id: int, name: str) -> None:
        """Forget a rule. Its incidents are over, and those who were told of them are told that."""
        pool = self._settings.alerts.pool
        async with self._store.transaction() as transaction:
            now = self._clock.now()
            # First: whoever opens an incident of it meanwhile is waited for, and seen.
            if not await transaction.drop_rule(tenant_id, name):
                raise _no_rule(name)
            for each in await transaction.incidents_of_rule(tenant_id, name):
                ended_at = max(now, each.opened_at)
                if each.resolved_at is None:
                    await alerting.end(transaction, each, "the rule was deleted", pool=pool, now=ended_at)
                else:
                    await alerting.tell_end(transaction, each, pool=pool, now=ended_at)
        telemetry.alerting_changed("rule", name=name, revision=0)
        await self._bus.publish([work_in(pool)])

    async def incidents(
        self, tenant_id: int, *, is_open: bool | None, rule: str | None, cursor: str | None, limit: int
    ) -> Page[IncidentView]:
        """Incidents, newest first."""
        place = read_cursor(cursor, 1)
        try:
            after = None if place is None else UUID(place[0])
        except ValueError:
            raise errors.Invalid.field("cursor", "is not a cursor of this list") from None
        found = await self._store.list_incidents(
            tenant_id, is_open=is_open, rule=rule, after=after, limit=limit + 1
        )
        shown = found[:limit]
        following = write_cursor(str(shown[-1].id)) if len(found) > limit else None
        return Page(items=[incident_view(each) for each in shown], next_cursor=following)

    async def _put_job(
        self, transaction: Transaction, tenant_id: int, kept: KeptChannel, channel: Channel, now: datetime
    ) -> None:
        """Give a channel its job, or its job the channel's new definition. No list has it, and no quota counts it."""
        job = self._job(tenant_id, kept.job_id, kept.name, channel.target())
        await note_channel(transaction, tenant_id, job.id, channel.named())
        # What the channel is was written down, without its secrets; what its job is has them.
        await transaction.act_unnoted()
        if kept.revision == 1:
            await transaction.insert_jobs([job], now)
            return
        await transaction.lock_job(tenant_id, job.id)
        revision = await transaction.update_job(job, "active", now)
        await transaction.rebase_open(job, revision, PRIORITIES["high"])

    def _job(self, tenant_id: int, job_id: UUID, channel: str, target: dict[str, Any]) -> NewJob:
        """The job that sends what a channel has to say."""
        pool = self._settings.alerts.pool
        spec = {
            "name": "alerts",
            "target": target,
            "pool": pool,
            "priority": "high",
            "overlap": "allow",
            "retry": _RETRY,
            "timeout": _TIMEOUT,
        }
        [target_kind] = target
        return NewJob(
            tenant_id=tenant_id,
            id=job_id,
            name=own_job(channel),
            pool=pool,
            target_kind=target_kind,
            tags="{}",
            spec=orjson.dumps(spec).decode(),
            plan=None,
            next_slot=None,
        )

    def _check_mail(self, email: Email) -> None:
        """Refuse mail that this installation would not send."""
        smtp = self._settings.smtp
        if not smtp.host:
            raise errors.Invalid.field(
                "email",
                "this installation sends no mail",
                accepted="webhook or slack; or have the operator set smtp.host (CRONWELL_SMTP_HOST)",
            )
        for address in email.to:
            if smtp.domains and address.rpartition("@")[2].lower() not in map(str.lower, smtp.domains):
                raise errors.Invalid.field(
                    "email.to",
                    f"this installation sends no mail to {address}",
                    accepted=f"addresses at {', '.join(smtp.domains)}",
                )

    async def _check_rule(self, tenant_id: int, rule: Rule) -> None:
        """Refuse what could never be judged."""
        if rule.on.job is not None and await self._store.find_job(tenant_id, rule.on.job) is None:
            raise errors.Invalid.field(
                "on.job", f"there is no job named {rule.on.job!r}", accepted="the name of a job"
            )
        kept = self._settings.retention.executions
        if rule.when.missed is not None and rule.when.missed >= kept:
            raise errors.Invalid.field(
                "when.missed", "is longer than history is kept", accepted=f"less than {durations.write(kept)}"
            )

    async def _refuse_channel(self, tenant_id: int, name: str) -> None:
        known = [each.name for each in await self._store.list_channels(tenant_id, None, MOST_CHANNELS)]
        if not known:
            raise errors.Invalid.field(
                "channels",
                f"there is no channel {name!r}, nor any other",
                accepted="channels that PUT /v1/alerts/channels/NAME has made",
            )
        raise errors.Invalid([validation.unknown("channels", f"there is no channel {name!r}", name, known)])

    async def _channel(self, tenant_id: int, name: str) -> KeptChannel:
        found = await self._store.get_channels(tenant_id, [name])
        if not found:
            raise _no_channel(name)
        return found[0]

    async def _rule(self, tenant_id: int, name: str) -> KeptRule:
        found = await self._store.get_rule(tenant_id, name)
        if found is None:
            raise _no_rule(name)
        return found


def _refuse_masks(channel: Channel) -> None:
    """Refuse what was read back: it says nothing any more of what it stood for."""
    target = channel.webhook or channel.slack
    if target is None:
        return
    field = f"{channel.kind}.url" if MASK in target.url else None
    for name, value in target.headers.items():
        if value == MASK:
            field = f"{channel.kind}.headers.{name}"
    if field is not None:
        raise errors.Invalid.field(
            field, f"{MASK} stands for what is not shown", accepted="the value itself, in full"
        )


def _check_room(what: str, has: int, most: int) -> None:
    if has >= most:
        raise errors.Conflict(
            f"your tenant has {has} {what} of alerts and may have {most}; delete some first"
        )


def _no_channel(name: str) -> errors.NotFound:
    return errors.NotFound(f"there is no channel {name!r}")


def _no_rule(name: str) -> errors.NotFound:
    return errors.NotFound(f"there is no rule {name!r}")
