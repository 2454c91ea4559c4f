"""Judge the rules of alerts, open and resolve incidents, and tell of them.

Two schedulers may do it at once, and one may be killed between any two statements: that one thing has one open incident is a
constraint, and what is told is told by whoever claimed it, in the transaction that wrote it down (`control.alerting`). A
scheduler that was held up since it looked changes nothing that another has found out since.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from uuid import UUID

import orjson

from cronwell import errors, telemetry
from cronwell.bus.port import Bus, work_in
from cronwell.config import Settings
from cronwell.control import alerting
from cronwell.model.alert_judging import Verdict
from cronwell.model.alerts import Rule
from cronwell.model.clipping import clip
from cronwell.model.execution import State
from cronwell.model.identity import RANDOM_BITS, new_job_id
from cronwell.model.validation import validate
from cronwell.runtime.clock import Clock
from cronwell.scheduler.chores.alert_evidence import Evidence, Found, Judged, Walk
from cronwell.store.port import ExecutionFilter, Incident, KeptRule, Store, Worker

PAGE = 1000
MOST_OPEN = 20
"""Jobs of which a rule tells one by one; those beyond are one incident together."""
OTHERS = "*"
LONGEST_ERROR = 500
_NAMED = 5
_OF_FAILURES = frozenset({"consecutive_failures", "failure_rate", "dead_letters"})


class Alerting:
    """Implements `Chore`."""

    name = "alerting"

    def __init__(self, store: Store, bus: Bus, clock: Clock, settings: Settings) -> None:
        self.every = settings.alerts.every
        self._store = store
        self._bus = bus
        self._clock = clock
        self._pool = settings.alerts.pool
        self._kept_for = settings.retention.executions
        self._walks: dict[tuple[int, str], Walk] = {}

    async def run_once(self) -> int:
        """Judge every rule and return how much there was to write down or to tell."""
        rules = await self._rules()
        incidents = await self._incidents()
        await self._store.forget_incidents(self._clock.now() - self._kept_for)
        telemetry.alerts_open(sum(each.resolved_at is None for each in incidents))
        if not rules:
            return 0
        workers = await self._store.list_workers(self._clock.now())
        done = 0
        for tenant_id in sorted({each.kept.tenant_id for each in rules}):
            own_rules = [each for each in rules if each.kept.tenant_id == tenant_id]
            own_incidents = [each for each in incidents if each.tenant_id == tenant_id]
            try:
                done += await self._look(tenant_id, own_rules, own_incidents, workers)
            except errors.StoreUnavailable as error:
                # What takes too long for one tenant must not keep the others' rules from being judged.
                telemetry.service_failed(self.name, error, self.every.total_seconds())
        if done:
            await self._bus.publish([work_in(self._pool)])
        return done

    async def _rules(self) -> list[Judged]:
        kept: list[KeptRule] = []
        after = (0, "")
        while page := await self._store.all_rules(after, PAGE):
            kept += page
            after = (page[-1].tenant_id, page[-1].name)
        there = {(each.tenant_id, each.name) for each in kept}
        self._walks = {key: walk for key, walk in self._walks.items() if key in there}
        rules = []
        for each in kept:
            try:
                rules.append(Judged(each, _read(each.content)))
            except errors.Invalid as error:
                telemetry.rule_unread(each.name, error)
        return rules

    async def _incidents(self) -> list[Incident]:
        found: list[Incident] = []
        after = (0, UUID(int=0))
        while page := await self._store.unsettled_incidents(after, PAGE):
            found += page
            after = (page[-1].tenant_id, page[-1].id)
        return found

    async def _look(
        self,
        tenant_id: int,
        rules: Sequence[Judged],
        incidents: Sequence[Incident],
        workers: Sequence[Worker],
    ) -> int:
        now = self._clock.now()
        evidence = Evidence(self._store, tenant_id, now, rules, incidents, workers, self._walks)
        await evidence.read()
        done = 0
        for judged in rules:
            own = [each for each in incidents if each.rule == judged.kept.name]
            done += await self._write_down(judged, await evidence.judge(judged), own, now)
        return done

    async def _write_down(
        self, judged: Judged, found: Sequence[Found], incidents: Sequence[Incident], now: datetime
    ) -> int:
        """Open what has begun to be wrong, and resolve what is over."""
        known = {each.subject: each for each in incidents if each.resolved_at is None}
        over = [each for each in found if not each.verdict.is_wrong and each.subject in known]
        begun = [each for each in found if each.verdict.is_wrong and each.subject not in known]
        room = MOST_OPEN - len(known.keys() - {OTHERS}) + len(over)
        begun, others = begun[: max(room, 0)], begun[max(room, 0) :]
        if (crowd := self._judge_others(judged, others, is_known=OTHERS in known)) is not None:
            (begun if crowd.verdict.is_wrong else over).append(crowd)
        done = 0
        for each in begun:
            done += await self._open(judged, each, now)
        for each in over:
            done += await self._resolve(judged.rule, known.pop(each.subject), each.verdict.words, now)
        if not judged.rule.is_quiet(now):
            settling = [each for each in incidents if each.resolved_at is not None]
            going_on = {each.subject: each for each in found if each.verdict.is_wrong}
            done += await self._tell_waiting(judged, list(known.values()), settling, going_on, now)
        return done

    def _judge_others(self, judged: Judged, others: Sequence[Found], *, is_known: bool) -> Found | None:
        """Whether the jobs beyond those that are told one by one have become an incident, or are none any more."""
        walk = self._walks.get((judged.kept.tenant_id, judged.kept.name))
        if walk is not None:
            walk.has_others = walk.has_others or bool(others)
        if others and not is_known:
            names = ", ".join(each.job_name or "" for each in others[:_NAMED])
            words = f"beside {MOST_OPEN} jobs that were told one by one, {len(others)} more: {names}"
            words += " and others" if len(others) > _NAMED else ""
            return Found(OTHERS, None, Verdict(True, words, {"jobs": len(others)}))
        if is_known and not others and (walk is None or (walk.is_through and not walk.has_others)):
            return Found(OTHERS, None, Verdict(False, "the other jobs are well again"))
        return None

    async def _open(self, judged: Judged, found: Found, now: datetime) -> bool:
        rule, kept = judged.rule, judged.kept
        summary, facts = await self._told_of(judged, found, now)
        incident = Incident(
            tenant_id=kept.tenant_id,
            id=new_job_id(now, secrets.randbits(RANDOM_BITS)),
            rule=kept.name,
            subject=found.subject,
            job_name=found.job_name,
            severity=rule.severity,
            summary=summary,
            facts=facts,
            opened_at=now,
        )
        async with self._store.transaction() as transaction:
            if not await transaction.share_rule(kept.tenant_id, kept.name, kept.revision):
                return False
            if not await transaction.open_incident(incident):
                return False
            if not rule.is_quiet(now):
                await alerting.tell_beginning(transaction, incident, rule.channels, pool=self._pool, now=now)
        telemetry.alert_opened(rule=kept.name, severity=rule.severity, summary=incident.summary)
        return True

    async def _told_of(self, judged: Judged, found: Found, now: datetime) -> tuple[str, str]:
        """What is wrong, in words and as facts."""
        words = found.verdict.words
        facts = {"condition": judged.kind, **found.verdict.facts}
        if judged.kind in _OF_FAILURES and found.job_name is not None:
            facts |= await self._last_failure(judged.kept.tenant_id, UUID(found.subject), now)
        return words if found.job_name is None else f"{found.job_name}: {words}", orjson.dumps(facts).decode()

    async def _last_failure(self, tenant_id: int, job_id: UUID, now: datetime) -> dict[str, str]:
        """The execution to look at first, and what it said."""
        where = ExecutionFilter(job_id=job_id, states=(State.FAILED,), begun_by=now)
        for failed in await self._store.list_executions(tenant_id, where, None, 1):
            said, _ = clip(failed.error or "", LONGEST_ERROR)
            return {"execution": str(failed.key)} | ({"error": said} if said else {})
        return {}

    async def _resolve(self, rule: Rule, incident: Incident, outcome: str, now: datetime) -> bool:
        async with self._store.transaction() as transaction:
            return await alerting.end(
                transaction, incident, outcome, pool=self._pool, now=now, is_quiet=rule.is_quiet(now)
            )

    async def _tell_waiting(
        self,
        judged: Judged,
        going_on: Sequence[Incident],
        ended: Sequence[Incident],
        found: Mapping[str, Found],
        now: datetime,
    ) -> int:
        """Tell what quiet hours held back, and once more what goes on for long, as it stands now where that was looked at."""
        rule, told = judged.rule, 0
        for each in going_on:
            last = each.repeated_at
            if last is None or (rule.repeat is not None and now - last >= rule.repeat):
                if (present := found.get(each.subject)) is not None:
                    summary, facts = await self._told_of(judged, present, now)
                    each = dataclasses.replace(each, summary=summary, facts=facts)  # noqa: PLW2901
                async with self._store.transaction() as transaction:
                    told += await alerting.tell_beginning(
                        transaction, each, rule.channels, pool=self._pool, now=now
                    )
        for each in ended:
            async with self._store.transaction() as transaction:
                told += await alerting.tell_end(transaction, each, pool=self._pool, now=now)
        return told


@lru_cache(maxsize=10_000)
def _read(content: str) -> Rule:
    return validate(Rule, orjson.loads(content))
