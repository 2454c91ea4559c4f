"""Tenants: no read gives, and no write touches, a row of another tenant."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from cronwell import errors
from cronwell.model.alert_judging import Success
from cronwell.model.envelope import Place
from cronwell.model.execution import ExecutionKey, State
from cronwell.model.planning import PlannedSlot
from cronwell.store.port import (
    Answer,
    ApiKey,
    Attempt,
    AuditFilter,
    Backfill,
    CalendarUse,
    Claimed,
    Edge,
    Execution,
    ExecutionFilter,
    HeldBack,
    HostState,
    Incident,
    Job,
    JobFilter,
    KeptChannel,
    KeptSecret,
    NewJob,
    Override,
    Prospect,
    Report,
    Revised,
    Rewrapped,
    SealedSecret,
    Store,
    TargetLimit,
    Told,
    Transaction,
    WaitingSlot,
)
from tests.contract.desk import (
    DAY,
    HOUR,
    MINUTE,
    NOON,
    OTHER_TENANT,
    PLAN,
    Desk,
    cursor_of,
    ended,
    move,
    new_backfill,
    new_execution,
    new_job,
    new_key,
    new_override,
    new_secret,
    past,
)

LATER = NOON + 2 * HOUR
HOST = "mine.example"
LIMIT = TargetLimit(1, f"host:{HOST}", "1/s", None, True, NOON, NOON)  # a row


@dataclass
class Estate:
    """What one tenant owns: a job with an execution in every state that can be touched."""

    job: NewJob
    claim: Claimed
    pending: ExecutionKey
    dead: ExecutionKey
    worker: UUID
    backfill: Backfill
    key: ApiKey
    incident: Incident
    sequel: UUID
    """A job that follows the one."""

    @property
    def as_other(self) -> NewJob:
        """The same job, as somebody of another tenant would name it."""
        return dataclasses.replace(self.job, tenant_id=OTHER_TENANT)


@pytest.fixture
async def estate(desk: Desk, store: Store) -> Estate:
    job = await desk.job("mine", tags='{"team": "a"}')
    dead = await desk.dead(job, NOON - HOUR, error="boom")
    worker = await desk.worker()
    await desk.staged(job, NOON - MINUTE)
    [claim] = await desk.claim(worker)
    [pending] = await desk.staged(job, NOON)
    async with store.transaction() as transaction:
        await transaction.remember(1, "key", Answer(b"mine", 200, "{}"), NOON)
        sequel = new_job("sequel", plan=None)
        await transaction.insert_jobs([sequel], NOON)
        await transaction.put_edges(1, [sequel.id], [Edge(sequel.id, job.id, 0, "succeeded")])
        await transaction.keep_waiting([((1, sequel.id, NOON), NOON, NOON)])
        gone = new_job("gone")
        await transaction.insert_jobs([gone], NOON)
        await transaction.set_job_state(1, gone.id, "deleted", NOON)
        await transaction.put_override(new_override(job, LATER))
        backfill = new_backfill(job)
        await transaction.insert_backfill(backfill)
        await transaction.insert_executions([past(job, NOON - HOUR)])
        await transaction.put_channel(1, "ops", '{"webhook": {}}', job.id, NOON)
        await transaction.put_rule(1, "rule", "{}", ["ops"], NOON, revision=None)
        incident = Incident(1, UUID(int=5), "rule", "", None, "info", "wrong", "{}", NOON)
        await transaction.open_incident(incident)
        await transaction.note_secret_uses(1, [job.id], [("mine", job.id)])
    key = new_key("mine")
    await store.insert_key(key)
    await store.put_limit(LIMIT)
    await store.note_hosts([HostState(1, HOST, "open", NOON, 3, 1, NOON, "boom", NOON)])
    await store.put_secret(new_secret("mine"), NOON)
    return Estate(job, claim, pending, dead, worker, backfill, key, incident, sequel.id)


async def inventory(
    store: Store, estate: Estate
) -> tuple[
    Job | None,
    list[Execution],
    list[Attempt],
    Answer | None,
    list[Override],
    Backfill | None,
    list[ApiKey],
    list[TargetLimit],
    list[HostState],
    list[SealedSecret],
    list[str],
    tuple[object, ...],
    list[Edge],
    list[WaitingSlot],
]:
    """All that the owner sees."""
    async with store.transaction() as transaction:
        answer = await transaction.recall(1, "key")
    return (
        await store.get_job(1, estate.job.id, NOON),
        await store.list_executions(1, ExecutionFilter(), None, 1000),
        [attempt for key in (estate.dead, estate.claim.key) for attempt in await store.list_attempts(1, key)],
        answer,
        await store.list_overrides(1, estate.job.id, None, 10),
        await store.get_backfill(1, estate.backfill.id),
        await store.list_keys(1, None, 10),
        await store.list_limits(1, None, 10),
        await store.list_hosts(1, None, None, 10),
        await store.sealed_secrets([(1, "mine")]),
        await store.secret_users(1, "mine", 10),
        (
            await store.list_channels(1, None, 10),
            await store.list_rules(1, None, 10),
            await store.list_incidents(1, is_open=None, rule=None, after=None, limit=10),
        ),
        await store.edges_among(1, [estate.sequel]),
        await store.waiting_of(1, [estate.sequel], 10),
    )


async def _slots_of(keys: Awaitable[set[ExecutionKey]]) -> set[datetime]:
    return {key.slot for key in await keys}


async def _times_of(successes: Awaitable[dict[UUID, Success]]) -> list[datetime | None]:
    return [each.at for each in (await successes).values()]


async def _name_of(channel: Awaitable[KeptChannel]) -> tuple[str, int]:
    kept = await channel
    return kept.name, kept.revision


async def _prospects(found: Awaitable[dict[Any, Prospect]]) -> set[Prospect]:
    return set((await found).values())


OTHER = OTHER_TENANT
LAST = UUID(int=(1 << 128) - 1)
Reach = Callable[[Any, Estate], Awaitable[object]]

# Each method that names a tenant, called by another tenant with the owner's ids; and what it must answer.
STORE: dict[str, tuple[Reach, object]] = {
    "get_job": (lambda s, e: s.get_job(OTHER, e.job.id, NOON), None),
    "find_job": (lambda s, e: s.find_job(OTHER, "mine"), None),
    "list_jobs": (lambda s, e: s.list_jobs(OTHER, JobFilter(), None, 100, NOON), []),
    "list_jobs, deleted": (lambda s, e: s.list_jobs(OTHER, JobFilter(state="deleted"), None, 100, NOON), []),
    "definitions": (lambda s, e: s.definitions([(OTHER, e.job.id)]), []),
    "signing_secret": (lambda s, e: s.signing_secret(OTHER), "whsec_other"),
    "complete": (lambda s, e: s.complete([dataclasses.replace(ended(e.claim), tenant_id=OTHER)]), [None]),
    "complete, failed": (
        lambda s, e: s.complete([dataclasses.replace(ended(e.claim, State.FAILED), tenant_id=OTHER)]),
        [None],
    ),
    "hand_back": (lambda s, e: s.hand_back(e.claim.worker, [(OTHER, e.claim.key, e.claim.fence)]), None),
    "disown": (lambda s, e: s.disown(e.claim.worker, [(OTHER, e.claim.key, e.claim.fence)], NOON), None),
    "hold_back": (
        lambda s, e: s.hold_back(
            e.claim.worker, [HeldBack(OTHER, e.claim.key, e.claim.fence, LATER, LIMIT.target)]
        ),
        [False],
    ),
    "release_held": (lambda s, e: s.release_held(OTHER, LIMIT.target, NOON, 10), 0),
    "count_held": (lambda s, e: s.count_held(OTHER, [LIMIT.target], 10), {LIMIT.target: 0}),
    "put_limit": (
        lambda s, e: s.put_limit(dataclasses.replace(LIMIT, tenant_id=OTHER)),
        (dataclasses.replace(LIMIT, tenant_id=OTHER), True),
    ),
    "get_limit": (lambda s, e: s.get_limit(OTHER, LIMIT.target), None),
    "list_limits": (lambda s, e: s.list_limits(OTHER, None, 10), []),
    "drop_limit": (lambda s, e: s.drop_limit(OTHER, LIMIT.target), False),
    "get_host": (lambda s, e: s.get_host(OTHER, HOST), None),
    "list_hosts": (lambda s, e: s.list_hosts(OTHER, None, None, 10), []),
    "close_host": (lambda s, e: s.close_host(OTHER, HOST, NOON), False),
    "confirm": (
        lambda s, e: s.confirm(e.claim.worker, [(OTHER, e.claim.key, e.claim.fence)], NOON),
        [None],
    ),
    "report": (
        lambda s, e: s.report([Report(OTHER, e.claim.key, e.claim.fence, e.claim.worker, NOON, '"theirs"')]),
        None,
    ),
    "hear": (
        lambda s, e: s.hear([Told(OTHER, e.claim.key, e.claim.fence, e.claim.worker, '"x"', '"x"')], NOON),
        [False],
    ),
    "get_called": (lambda s, e: s.get_called(OTHER, e.claim.key), None),
    "get_execution": (lambda s, e: s.get_execution(OTHER, e.pending), None),
    "list_executions": (lambda s, e: s.list_executions(OTHER, ExecutionFilter(), None, 100), []),
    "list_executions, of a job": (
        lambda s, e: s.list_executions(OTHER, ExecutionFilter(job_id=e.job.id), None, 100),
        [],
    ),
    "list_executions, dead": (
        lambda s, e: s.list_executions(OTHER, ExecutionFilter(states=(State.FAILED,)), None, 100),
        [],
    ),
    "list_executions, of a worker": (
        lambda s, e: s.list_executions(OTHER, ExecutionFilter(worker=e.worker), None, 100),
        [],
    ),
    "list_executions, by text": (
        lambda s, e: s.list_executions(OTHER, ExecutionFilter(text="boom"), None, 100),
        [],
    ),
    "list_audit": (lambda s, e: s.list_audit(OTHER, AuditFilter(), None, 10), []),
    "check_audit": (lambda s, e: s.check_audit(OTHER, 0, 10), []),
    "count_unsealed": (lambda s, e: s.count_unsealed(OTHER), 0),
    "get_key": (lambda s, e: s.get_key(OTHER, e.key.id), None),
    "list_keys": (lambda s, e: s.list_keys(OTHER, None, 10), []),
    "revoke_key": (lambda s, e: s.revoke_key(OTHER, e.key.id, NOON), None),
    "replace_key": (
        lambda s, e: s.replace_key(
            e.key.id, dataclasses.replace(new_key("theirs"), tenant_id=OTHER), good_until=NOON
        ),
        False,
    ),
    "note_key_use": (lambda s, e: s.note_key_use(OTHER, e.key.id, NOON), None),
    "put_secret": (
        lambda s, e: s.put_secret(new_secret("mine", tenant_id=OTHER), NOON),
        KeptSecret("mine", 1, "k1", NOON, NOON),
    ),
    "put_secret, again": (
        lambda s, e: s.put_secret(new_secret("mine", tenant_id=OTHER, revision=2), NOON),
        None,
    ),
    "get_secret": (lambda s, e: s.get_secret(OTHER, "mine"), None),
    "list_secrets": (lambda s, e: s.list_secrets(OTHER, None, 10), []),
    "secret_users": (lambda s, e: s.secret_users(OTHER, "mine", 10), []),
    "drop_secret": (lambda s, e: s.drop_secret(OTHER, "mine", is_forced=True), False),
    "sealed_secrets": (lambda s, e: s.sealed_secrets([(OTHER, "mine")]), []),
    "rewrap_secrets": (
        lambda s, e: s.rewrap_secrets([Rewrapped(Place(OTHER, "mine", 1), "k1", "k2", b"theirs")]),
        0,
    ),
    "get_channels": (lambda s, e: s.get_channels(OTHER, ["ops"]), []),
    "list_channels": (lambda s, e: s.list_channels(OTHER, None, 10), []),
    "get_rule": (lambda s, e: s.get_rule(OTHER, "rule"), None),
    "list_rules": (lambda s, e: s.list_rules(OTHER, None, 10), []),
    "count_alerting": (lambda s, e: s.count_alerting(OTHER), (0, 0)),
    "list_incidents": (
        lambda s, e: s.list_incidents(OTHER, is_open=None, rule=None, after=None, limit=10),
        [],
    ),
    "watched_by_name": (lambda s, e: s.watched_by_name(OTHER, ["mine"]), []),
    "watched_by_id": (lambda s, e: s.watched_by_id(OTHER, [e.job.id]), []),
    "watched_slice": (lambda s, e: s.watched_slice(OTHER, UUID(int=0), {}, 10), ([], None)),
    "newest_runs": (lambda s, e: s.newest_runs(OTHER, [e.job.id], NOON, 10), {}),
    "last_successes": (
        lambda s, e: _times_of(s.last_successes(OTHER, [e.job.id], NOON - DAY, NOON, 10)),
        [None],
    ),
    "dead_by_job": (lambda s, e: s.dead_by_job(OTHER, 10), {}),
    "waiting_long": (lambda s, e: s.waiting_long(OTHER, NOON, 10), {}),
    "running_long": (lambda s, e: s.running_long(OTHER, NOON + DAY, 10), {}),
    "waiting_depth": (lambda s, e: s.waiting_depth(OTHER, NOON, 10), {}),
    "put_calendar": (lambda s, e: s.put_calendar(OTHER, "closed", "{}", NOON, revision=None), 1),
    "get_calendars": (lambda s, e: s.get_calendars(OTHER, ["closed"]), []),
    "list_calendars": (lambda s, e: s.list_calendars(OTHER, None, 10), []),
    "last_plan": (lambda s, e: s.last_plan(OTHER, e.job.id), None),
    "shifting_users": (lambda s, e: s.shifting_users(OTHER, "days", 10), []),
    "calendar_users": (lambda s, e: s.calendar_users(OTHER, "closed", 10), 0),
    "drop_calendar": (lambda s, e: s.drop_calendar(OTHER, "closed"), False),
    "revision_at": (lambda s, e: s.revision_at(OTHER, e.job.id, NOON + DAY), None),
    "revisions_over": (lambda s, e: s.revisions_over(OTHER, e.job.id, NOON - DAY, NOON + DAY, 10), []),
    "definitions_at": (lambda s, e: s.definitions_at([(OTHER, e.job.id, 1)]), []),
    "get_backfill": (lambda s, e: s.get_backfill(OTHER, e.backfill.id), None),
    "list_backfills": (lambda s, e: s.list_backfills(OTHER, None, None, None, 10), []),
    "list_backfills, of a job": (lambda s, e: s.list_backfills(OTHER, e.job.id, None, None, 10), []),
    "count_backfilled": (lambda s, e: s.count_backfilled(OTHER, e.job.id, NOON - DAY, NOON, 10), 0),
    "skips_over": (lambda s, e: s.skips_over(OTHER, e.job.id, NOON), []),
    "herds": (lambda s, e: s.herds(OTHER, 100), ([], 1.0)),
    "accountable_jobs": (
        lambda s, e: s.accountable_jobs(OTHER, NOON - DAY, NOON + DAY, shard=None, after=None, limit=10),
        [],
    ),
    "skips_between": (lambda s, e: s.skips_between(OTHER, [e.job.id], NOON - DAY, NOON + DAY), {}),
    "slots_between": (lambda s, e: s.slots_between(OTHER, [e.job.id], NOON - DAY, NOON + DAY), {}),
    "last_slots": (lambda s, e: s.last_slots(OTHER, [e.job.id]), {}),
    "window_end": (lambda s, e: s.window_end((OTHER, UUID(int=0)), (OTHER, LAST), 1), None),
    "stale_cursors": (lambda s, e: s.stale_cursors((OTHER, UUID(int=0)), (OTHER, LAST), []), []),
    "standings": (lambda s, e: s.standings([(OTHER, e.job.id)], NOON, DAY), []),
    "list_attempts": (lambda s, e: s.list_attempts(OTHER, e.dead), []),
    "why_waiting": (lambda s, e: s.why_waiting(OTHER, e.pending, NOON), None),
    "cancel_execution": (lambda s, e: s.cancel_execution(OTHER, e.pending, NOON), None),
    "cancel_execution, running": (lambda s, e: s.cancel_execution(OTHER, e.claim.key, NOON), None),
    "revive_execution": (lambda s, e: s.revive_execution(OTHER, e.dead, NOON), None),
    "redrive": (
        lambda s, e: s.redrive(OTHER, ExecutionFilter(), limit=100, rate=1.0, start=NOON, dead_by=NOON + DAY),
        [],
    ),
    "redrive, by key": (
        lambda s, e: s.redrive(
            OTHER, ExecutionFilter(keys=(e.dead,)), limit=100, rate=1.0, start=NOON, dead_by=NOON + DAY
        ),
        [],
    ),
    "dismiss": (lambda s, e: s.dismiss(OTHER, e.dead), False),
    "jobs_around": (lambda s, e: s.jobs_around(OTHER, e.job.id, 10), []),
    "edges_among": (lambda s, e: s.edges_among(OTHER, [e.sequel]), []),
    "waiting_of": (lambda s, e: s.waiting_of(OTHER, [e.sequel], 10), []),
    "latest_of": (lambda s, e: s.latest_of(OTHER, [e.job.id], NOON + DAY, None), []),
    "upstream_results": (lambda s, e: s.upstream_results([(OTHER, e.sequel, NOON - HOUR)], 10), {}),
    "get_override": (lambda s, e: s.get_override(OTHER, e.job.id, LATER), None),
    "list_overrides": (lambda s, e: s.list_overrides(OTHER, e.job.id, None, 10), []),
    "overrides_of": (lambda s, e: s.overrides_of(OTHER, e.job.id, NOON, NOON), []),
}

TRANSACTION: dict[str, tuple[Reach, object]] = {
    "insert_jobs": (
        # The same name is free for another tenant.
        lambda t, e: t.insert_jobs([dataclasses.replace(e.as_other, id=UUID(int=7))], NOON),
        {UUID(int=7)},
    ),
    "count_jobs": (lambda t, e: t.count_jobs(OTHER, 1), None),
    "lock_job": (lambda t, e: t.lock_job(OTHER, e.job.id), None),
    "keep_revision": (lambda t, e: t.keep_revision(OTHER, e.job.id, NOON), None),
    "keep_plan": (lambda t, e: t.keep_plan(OTHER, e.job.id, NOON), None),
    "update_job": (
        lambda t, e: t.update_job(dataclasses.replace(e.as_other, name="x"), "paused", NOON),
        None,
    ),
    "set_job_state": (lambda t, e: t.set_job_state(OTHER, e.job.id, "deleted", NOON), None),
    "put_cursor": (
        lambda t, e: t.put_cursor(cursor_of(e.as_other, revision=9), NOON + DAY, is_held=True),
        None,
    ),
    "drop_cursor": (lambda t, e: t.drop_cursor(OTHER, e.job.id), None),
    "drop_staged": (lambda t, e: t.drop_staged(OTHER, e.job.id, NOON - DAY), 0),
    "withhold_due": (lambda t, e: t.withhold_due(OTHER, e.job.id, NOON, "theirs"), []),
    "rebase_open": (lambda t, e: t.rebase_open(e.as_other, 9, 0), []),
    "unfinished": (lambda t, e: t.unfinished(OTHER, e.job.id, NOON, 10), []),
    "make_way": (lambda t, e: t.make_way(OTHER, e.job.id, NOON), None),
    "insert_execution": (
        lambda t, e: t.insert_execution(new_execution(e.as_other, payload='"theirs"', key=e.pending)),
        True,
    ),
    "note_change": (lambda t, e: t.note_change(OTHER, "changed", f"job:{e.job.id}", None), None),
    "record": (
        lambda t, e: t.record([move(e.as_other, [PlannedSlot(NOON, NOON, State.SKIPPED, "theirs")])], NOON),
        None,
    ),
    "note_uses": (
        lambda t, e: t.note_uses(OTHER, [e.job.id], [CalendarUse("closed", e.job.id, 1)]),
        set(),
    ),
    "put_override": (lambda t, e: t.put_override(new_override(e.as_other, LATER, action="move")), None),
    "drop_override": (lambda t, e: t.drop_override(OTHER, e.job.id, LATER), False),
    "overrides_after": (lambda t, e: t.overrides_after(OTHER, e.job.id, NOON, NOON), []),
    "write_decided": (
        lambda t, e: t.write_decided(
            move(e.as_other, [PlannedSlot(LATER, LATER, State.SKIPPED, "theirs")]), NOON
        ),
        {LATER},
    ),
    "clear_slot": (lambda t, e: t.clear_slot(OTHER, e.job.id, NOON), None),
    "slot_state": (lambda t, e: t.slot_state(OTHER, e.job.id, NOON), None),
    "count_ahead": (lambda t, e: t.count_ahead(OTHER, e.job.id, NOON - DAY, None), 0),
    "slots_left_out": (lambda t, e: t.slots_left_out([cursor_of(e.as_other)], NOON + DAY), {}),
    "lock_cursors": (lambda t, e: t.lock_cursors([(OTHER, e.job.id)]), None),
    "standings": (lambda t, e: t.standings([(OTHER, e.job.id)], NOON, DAY), []),
    "mark_tzdata": (lambda t, e: t.mark_tzdata([cursor_of(e.as_other)], "theirs"), 0),
    "put_channel": (
        lambda t, e: _name_of(t.put_channel(OTHER, "ops", "{}", e.job.id, NOON)),
        ("ops", 1),
    ),
    "drop_channel": (lambda t, e: t.drop_channel(OTHER, "ops"), None),
    "lock_channels": (lambda t, e: t.lock_channels(OTHER, ["ops"]), set()),
    "channel_users": (lambda t, e: t.channel_users(OTHER, "ops", 10), []),
    "get_channels": (lambda t, e: t.get_channels(OTHER, ["ops"]), []),
    "put_rule": (lambda t, e: t.put_rule(OTHER, "rule", "[]", [], NOON, revision=None), 1),
    "drop_rule": (lambda t, e: t.drop_rule(OTHER, "rule"), False),
    "share_rule": (lambda t, e: t.share_rule(OTHER, "rule", 1), False),
    "incidents_of_rule": (lambda t, e: t.incidents_of_rule(OTHER, "rule"), []),
    "open_incident": (
        lambda t, e: t.open_incident(dataclasses.replace(e.incident, tenant_id=OTHER, summary="theirs")),
        True,
    ),
    "resolve_incident": (lambda t, e: t.resolve_incident(OTHER, e.incident.id, NOON, "theirs"), False),
    "mark_told": (
        lambda t, e: t.mark_told(dataclasses.replace(e.incident, tenant_id=OTHER), ["ops"], NOON),
        False,
    ),
    "mark_settled": (lambda t, e: t.mark_settled(OTHER, e.incident.id, NOON), False),
    "insert_backfill": (
        lambda t, e: t.insert_backfill(dataclasses.replace(e.backfill, tenant_id=OTHER)),
        None,
    ),
    "lock_backfill": (lambda t, e: t.lock_backfill(OTHER, e.backfill.id), None),
    "put_backfill": (
        lambda t, e: t.put_backfill(dataclasses.replace(e.backfill, tenant_id=OTHER, staged=9)),
        None,
    ),
    "backfilled": (lambda t, e: t.backfilled(OTHER, e.job.id, [NOON - HOUR]), {}),
    "insert_executions": (
        lambda t, e: _slots_of(t.insert_executions([past(e.as_other, NOON - HOUR, payload='"theirs"')])),
        {NOON - HOUR},
    ),
    "complete": (lambda t, e: t.complete([dataclasses.replace(ended(e.claim), tenant_id=OTHER)]), [None]),
    "withdraw": (lambda t, e: t.withdraw(OTHER, e.job.id, [NOON - HOUR], NOON), set()),
    "hold_secrets": (lambda t, e: t.hold_secrets(OTHER, ["mine"]), set()),
    "note_secret_uses": (lambda t, e: t.note_secret_uses(OTHER, [e.job.id], []), None),
    "secret_names": (lambda t, e: t.secret_names(OTHER, 10), []),
    "lock_graph": (lambda t, e: t.lock_graph(OTHER), None),
    "jobs_named": (lambda t, e: t.jobs_named(OTHER, ["mine"]), {}),
    "jobs_of_ids": (lambda t, e: t.jobs_of_ids(OTHER, [e.job.id]), []),
    "names_between": (lambda t, e: t.names_between(OTHER, "a", "z", 10), []),
    "put_edges": (lambda t, e: t.put_edges(OTHER, [e.sequel], []), None),
    "edges_above": (lambda t, e: t.edges_above(OTHER, [e.sequel], 10), []),
    "edges_below": (lambda t, e: t.edges_below(OTHER, [e.job.id], 10), []),
    "followed_jobs": (lambda t, e: t.followed_jobs(OTHER, [e.job.id]), set()),
    "dependents_named": (lambda t, e: t.dependents_named(OTHER, e.job.id, 10), []),
    "follow": (lambda t, e: t.follow(OTHER, e.job.id, PLAN), None),
    "dependents_of": (lambda t, e: t.dependents_of([(OTHER, e.job.id)]), []),
    "upstreams_of": (lambda t, e: t.upstreams_of([(OTHER, e.sequel)]), []),
    "share_dependents": (lambda t, e: t.share_dependents([(OTHER, e.sequel)]), []),
    "executions_at": (lambda t, e: t.executions_at([(OTHER, e.job.id, NOON)]), []),
    "prospects_at": (
        lambda t, e: _prospects(t.prospects_at([(OTHER, e.sequel, NOON), (OTHER, e.job.id, NOON + DAY)])),
        {Prospect(is_ahead=False, is_waiting=False, is_skipped=False)},
    ),
    "skip_unmet": (lambda t, e: t.skip_unmet({(OTHER, e.job.id, NOON): "theirs"}, NOON), None),
    "outrun": (lambda t, e: t.outrun([(OTHER, e.job.id, NOON - DAY)]), set()),
    "revise_unmet": (
        lambda t, e: t.revise_unmet(
            [Revised((OTHER, e.job.id, NOON), NOON, "theirs", 1, "theirs", is_followed=True)], NOON
        ),
        None,
    ),
    "clear_followed": (lambda t, e: t.clear_followed([(OTHER, e.pending)]), None),
    "keep_waiting": (lambda t, e: t.keep_waiting([((OTHER, e.sequel, NOON), LATER, LATER)]), None),
    "waiting_since": (lambda t, e: t.waiting_since([(OTHER, e.sequel, NOON)]), {}),
    "end_waiting": (lambda t, e: t.end_waiting([(OTHER, e.sequel, NOON)]), None),
    "lock_rerun": (lambda t, e: t.lock_rerun(OTHER, [e.job.id], NOON), []),
    "rerun": (lambda t, e: t.rerun(OTHER, e.dead, NOON, is_followed=True), None),
    "undo_dependents": (lambda t, e: t.undo_dependents(OTHER, [e.job.id], NOON, NOON), 0),
    "recall": (lambda t, e: t.recall(OTHER, "key"), None),
    "remember": (lambda t, e: t.remember(OTHER, "key", Answer(b"theirs", 500, "[]"), NOON), None),
}

# Not of one tenant: they act for the whole installation, or on what they are handed with its tenant.
OF_ALL = {
    *("claim_found", "startable", "count_before"),
    *("claim_shares", "due_tiers", "waiting_tenants", "waiting_lines", "claim_gated", "gate_waiting"),
    *("callback_terms", "lock_overdue"),
    *("throttling", "every_limit", "note_hosts", "changed_hosts"),
    *("find_key", "insert_key", "has_keys", "seal_audit"),
    *("wrapped_otherwise", "count_secrets"),
    *("insert_tenant", "get_tenant", "list_tenants", "change_tenant"),
    *("transaction", "pauses_over", "claim", "settle_blocked", "cancels", "held_by", "backlog", "register"),
    *("heartbeat", "leave", "lose_workers", "orphans", "list_workers", "ensure_day", "days", "drop_day"),
    *("finish_ended", "forget", "ping", "lock_due", "lock_awaiting", "stage", "outdated_uses"),
    "waits_over",
    *("overrides_waiting", "forget_overrides"),
    "open_backfills",
    *("all_rules", "unsettled_incidents", "forget_incidents", "act_unnoted"),
    *(
        "any_to_judge",
        "unfollowed",
        "tell_stuck",
        "count_waiting",
        "may_judge",
        "keep_from_judging",
        "lock_followed",
    ),
    "waiting_due",
    *("pulse", "begin_anew", "incarnation"),
    *("enter_shards", "hold_shards", "mark_shards", "list_shards"),
    *("see_node", "stop_node", "list_nodes", "forget_nodes", "ask_to_drain"),
    *(
        "suspects",
        "suspect",
        "slice_end",
        "abandoned",
        "unserved",
        "enter_lost",
        "put_findings",
        "list_findings",
    ),
}


@pytest.mark.parametrize("name", STORE)
async def test_a_store_keeps_tenants_apart(name: str, store: Store, estate: Estate) -> None:
    reach, wanted = STORE[name]
    before = await inventory(store, estate)
    assert await reach(store, estate) == wanted
    assert await inventory(store, estate) == before


@pytest.mark.parametrize("name", TRANSACTION)
async def test_a_transaction_keeps_tenants_apart(name: str, store: Store, estate: Estate) -> None:
    reach, wanted = TRANSACTION[name]
    before = await inventory(store, estate)
    async with store.transaction() as transaction:
        assert await reach(transaction, estate) == wanted
    assert await inventory(store, estate) == before


async def test_a_stage_for_another_tenant_is_refused(store: Store, estate: Estate) -> None:
    before = await inventory(store, estate)
    with pytest.raises(errors.LeaseLost):
        async with store.transaction() as transaction:
            await transaction.stage([move(estate.as_other)], NOON)
    assert await inventory(store, estate) == before


async def test_a_batch_with_results_of_two_tenants_tells_them_apart(store: Store, estate: Estate) -> None:
    mine = ended(estate.claim)
    assert await store.complete([dataclasses.replace(mine, tenant_id=OTHER), mine]) == [None, State.SUCCEEDED]


async def test_definitions_are_told_to_their_own_tenant_also_in_mixed_company(
    desk: Desk, store: Store, estate: Estate
) -> None:
    theirs = await desk.job("theirs", tenant_id=OTHER)
    told = await store.definitions([(OTHER, estate.job.id), (1, theirs.id)])
    assert told == []


async def test_a_name_may_be_used_by_each_tenant(desk: Desk, store: Store, estate: Estate) -> None:
    theirs = await desk.job("mine", tenant_id=OTHER)
    assert await store.find_job(OTHER, "mine") == theirs.id
    assert await store.find_job(1, "mine") == estate.job.id


def test_every_method_is_in_one_of_the_lists() -> None:
    for port, listed in ((Store, STORE), (Transaction, TRANSACTION)):
        methods = {
            name for name, _ in inspect.getmembers(port, inspect.isfunction) if not name.startswith("_")
        }
        told = {name.partition(",")[0] for name in listed}
        assert methods - told - OF_ALL == set()
        assert told <= methods
