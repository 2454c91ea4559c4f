"""What the rules of one tenant look at, read for all of them together and no more than they need.

A rule about one job reads that job. A rule about many begins with what is wrong somewhere, which indexes hold apart: dead
letters, what waits for too long, what runs for too long; only the jobs that those lead to are looked at. Of a success that did not
come nothing tells but the job itself, so for that the jobs are walked through, a part in each round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

import orjson

from cronwell.model.alert_judging import (
    LOOKED_AT,
    NEWEST,
    Run,
    Success,
    Verdict,
    judge_dead,
    judge_depth,
    judge_runs,
    judge_success,
    judge_workers,
)
from cronwell.model.alerts import Rule, is_own
from cronwell.store.port import Incident, KeptRule, Store, WatchedJob, Worker

COUNTED = 10_000
"""Dead letters of a tenant are counted up to this many."""
CANDIDATES = 500
"""Jobs that a rule about many looks at in one round, beside those that it has open incidents of."""
AT_ONCE = 200
"""Jobs whose executions are read in one statement."""
SLICE, SLICES = 5000, 4
"""Jobs that a walk passes in one statement, and statements in one round."""
DEEP, SHALLOW = 20_000, 1000
"""Executions that are looked through for a success: of a job that a rule names, and of one that a walk comes by."""
# An execution may end long after its slot.
LONGEST_RUN = timedelta(days=1)

_BY_RUNS = frozenset({"consecutive_failures", "failure_rate", "late", "running"})
_FIRST = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Judged:
    """A rule, read."""

    kept: KeptRule
    rule: Rule

    @property
    def kind(self) -> str:
        return self.rule.when.kind


@dataclass(frozen=True, slots=True)
class Found:
    """What a rule makes of one thing that it watches."""

    subject: str
    job_name: str | None
    verdict: Verdict


@dataclass(slots=True)
class Walk:
    """How far a rule has come through the jobs that it watches."""

    revision: int
    place: UUID = _FIRST
    has_others: bool = False
    """There were more wrong ones than are told one by one."""
    is_through: bool = False
    """The last job was passed in this round."""


@dataclass(slots=True)
class Evidence:
    """What was seen, in one round."""

    store: Store
    tenant_id: int
    now: datetime
    rules: Sequence[Judged]
    incidents: Sequence[Incident]
    workers: Sequence[Worker]
    walks: dict[tuple[int, str], Walk]
    _named: dict[str, WatchedJob] = field(default_factory=dict)
    _jobs: dict[UUID, WatchedJob] = field(default_factory=dict)
    _runs: dict[UUID, list[Run]] = field(default_factory=dict)
    _others: dict[str, dict[UUID, list[Run]]] = field(default_factory=dict)
    """What waits, and what runs, for too long."""
    _dead: dict[UUID, int] = field(default_factory=dict)
    _depths: dict[str, int] = field(default_factory=dict)

    async def read(self) -> None:
        """Read what the rules need."""
        names = sorted({each.rule.on.job for each in self.rules if each.rule.on.job is not None})
        if names:
            found = await self.store.watched_by_name(self.tenant_id, names)
            self._named = {job.name: job for job in found}
        wide = [each for each in self.rules if each.rule.on.job is None]
        kinds = {each.kind for each in wide}
        if kinds & {"consecutive_failures", "failure_rate"} or any(
            each.kind == "dead_letters" for each in self.rules
        ):
            self._dead = await self.store.dead_by_job(self.tenant_id, COUNTED)
        if "late" in kinds:
            since = self.now - min(each.rule.when.late for each in wide if each.rule.when.late is not None)
            self._others["late"] = await self.store.waiting_long(self.tenant_id, since, CANDIDATES)
        if "running" in kinds:
            since = self.now - min(
                each.rule.when.running for each in wide if each.rule.when.running is not None
            )
            self._others["running"] = await self.store.running_long(self.tenant_id, since, CANDIDATES)
        depths = [each.rule.when.queue_depth.above for each in wide if each.rule.when.queue_depth is not None]
        if depths:
            self._depths = await self.store.waiting_depth(self.tenant_id, self.now, max(depths) + 1)
        await self._read_jobs()

    async def judge(self, judged: Judged) -> list[Found]:
        """What a rule makes of all that it looks at in this round."""
        rule = judged.rule
        when = rule.when
        if when.dead_letters is not None:
            count = await self._count_dead(rule)
            return [self._whole(rule, judge_dead(when.dead_letters, count, COUNTED))]
        if when.queue_depth is not None:
            return [self._whole(rule, judge_depth(when.queue_depth, self._depths))]
        if when.workers is not None:
            living = [each for each in self.workers if each.state == "active" and each.lease_until > self.now]
            serving = sum(when.workers.pool in each.pools for each in living)
            return [self._whole(rule, judge_workers(when.workers, serving))]
        if when.missed is not None:
            return await self._missed(judged, when.missed)
        return [self._by_runs(judged, job_id) for job_id in self._candidates(judged)]

    def _whole(self, rule: Rule, verdict: Verdict) -> Found:
        """About all that a rule watches, together."""
        if rule.on.job is not None:
            verdict = Verdict(verdict.is_wrong, f"{rule.on.job}: {verdict.words}", verdict.facts)
        elif rule.on.tags is not None:
            tags = ", ".join(f"{name}={value}" for name, value in sorted(rule.on.tags.items()))
            verdict = Verdict(verdict.is_wrong, f"{tags}: {verdict.words}", verdict.facts)
        return Found("", None, verdict)

    async def _count_dead(self, rule: Rule) -> int:
        if rule.on.job is not None:
            job = self._named.get(rule.on.job)
            return 0 if job is None else self._dead.get(job.id, 0)
        if rule.on.tags is None:
            return sum(self._dead.values())
        await self._describe(self._dead)
        return sum(count for job_id, count in self._dead.items() if self._watches(rule, job_id))

    def _by_runs(self, judged: Judged, job_id: UUID) -> Found:
        job = self._jobs.get(job_id)
        if job is None or not self._watches(judged.rule, job_id):
            return _unwatched(job_id, job)
        runs = [*self._runs.get(job_id, ()), *self._others.get(judged.kind, {}).get(job_id, ())]
        return _of_job(job, judge_runs(judged.rule.when, runs, self.now))

    async def _missed(self, judged: Judged, limit: timedelta) -> list[Found]:
        ids = set(self._candidates(judged))
        deep = await self._successes(ids, limit, DEEP)
        shallow: dict[UUID, Success] = {}
        if judged.rule.on.job is None:
            walked = [each for each in await self._step(judged) if each.id not in ids]
            self._jobs.update((each.id, each) for each in walked)
            shallow = await self._successes([each.id for each in walked], limit, SHALLOW)
        found = []
        for job_id, success in {**deep, **shallow}.items():
            job = self._jobs.get(job_id)
            if job is None or job.state != "active" or not self._watches(judged.rule, job_id):
                found.append(_unwatched(job_id, job))
            elif (verdict := judge_success(limit, success, job.updated_at, self.now)) is not None:
                found.append(_of_job(job, verdict))
        return found

    async def _step(self, judged: Judged) -> list[WatchedJob]:
        """The jobs that the rule's walk comes by in this round."""
        key = (self.tenant_id, judged.kept.name)
        walk = self.walks.get(key)
        if walk is None or walk.revision != judged.kept.revision:
            walk = self.walks[key] = Walk(judged.kept.revision)
        elif walk.is_through:
            walk.place, walk.has_others, walk.is_through = _FIRST, False, False
        found: list[WatchedJob] = []
        for _ in range(SLICES):
            part, end = await self.store.watched_slice(
                self.tenant_id, walk.place, judged.rule.on.tags or {}, SLICE
            )
            found += [each for each in part if not is_own(each.name)]
            if end is None:
                walk.is_through = True
                break
            walk.place = end
            if len(found) >= SLICE:
                break
        return found

    async def _successes(self, ids: Iterable[UUID], limit: timedelta, depth: int) -> dict[UUID, Success]:
        found: dict[UUID, Success] = {}
        since = self.now - limit - LONGEST_RUN
        for part in _parts(ids, AT_ONCE):
            found |= await self.store.last_successes(self.tenant_id, part, since, self.now, depth)
        return found

    def _candidates(self, judged: Judged) -> list[UUID]:
        """The jobs that a rule looks at, beside those that its walk comes by; those with open incidents first."""
        rule = judged.rule
        found = [
            UUID(each.subject)
            for each in self.incidents
            if each.rule == judged.kept.name and each.resolved_at is None and each.job_name is not None
        ]
        if rule.on.job is not None:
            found += [self._named[rule.on.job].id] if rule.on.job in self._named else []
        elif judged.kind in ("consecutive_failures", "failure_rate"):
            found += sorted(self._dead, key=lambda job_id: -self._dead[job_id])[:CANDIDATES]
        else:
            found += islice(self._others.get(judged.kind, ()), CANDIDATES)
        return list(dict.fromkeys(found))

    async def _read_jobs(self) -> None:
        """Read the jobs that rules look at, and the newest executions of those that are judged by them."""
        by_runs = [each for each in self.rules if each.kind in _BY_RUNS]
        ids = {job_id for each in by_runs for job_id in self._candidates(each)}
        missed = [each for each in self.rules if each.kind == "missed"]
        await self._describe(ids | {job_id for each in missed for job_id in self._candidates(each)})
        limit = NEWEST if any(each.kind == "failure_rate" for each in by_runs) else LOOKED_AT
        for part in _parts(ids, AT_ONCE):
            self._runs |= await self.store.newest_runs(self.tenant_id, part, self.now, limit)

    async def _describe(self, ids: Iterable[UUID]) -> None:
        for part in _parts((each for each in ids if each not in self._jobs), AT_ONCE):
            described = await self.store.watched_by_id(self.tenant_id, part)
            self._jobs.update((job.id, job) for job in described)

    def _watches(self, rule: Rule, job_id: UUID) -> bool:
        job = self._jobs.get(job_id)
        if job is None or job.state == "deleted" or is_own(job.name):
            return False
        tags: dict[str, Any] = orjson.loads(job.tags)
        return rule.on.matches(job.name, tags)


def _of_job(job: WatchedJob, verdict: Verdict) -> Found:
    return Found(str(job.id), job.name, verdict)


def _unwatched(job_id: UUID, job: WatchedJob | None) -> Found:
    state = "gone" if job is None or job.state == "deleted" else job.state
    words = "is no longer watched" if state == "active" else f"is {state}"
    return Found(str(job_id), "" if job is None else job.name, Verdict(False, words))


def _parts(ids: Iterable[UUID], size: int) -> Iterable[list[UUID]]:
    left = iter(ids)
    while part := list(islice(left, size)):
        yield part
