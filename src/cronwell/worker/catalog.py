"""What a worker knows of jobs: definitions by revision, read once, and the tenants' signing secrets."""

from __future__ import annotations

import dataclasses
import random
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import orjson
from pydantic import ValidationError

from cronwell import __version__
from cronwell.model.alerts import is_own
from cronwell.model.execution import Kind, Result
from cronwell.model.job import JobSpec, RetryPolicy
from cronwell.model.naming import named_by_target, unshown
from cronwell.model.references import MARK, named_in
from cronwell.model.retry import what_follows
from cronwell.model.throttle import target_name
from cronwell.store.port import Claimed, Definition, Ended, Store

KEPT = 50_000
# What of a definition says how to run it. A herd of jobs differs in names and payloads and shares the rest, so each
# combination is checked once: 5 µs a job where checking all of it takes 8 (November 2026).
_TERMS = ("target", "timeout", "retry")
_NONE: frozenset[str] = frozenset()
# One for all jobs: an empty set of its own takes each of them 216 bytes.


@dataclass(slots=True)  # not frozen: a herd of jobs that run once makes thousands a second
class KnownJob:
    """What is needed of a job's definition to run it. `terms` stands for every job that is run in the same way."""

    name: str
    terms: JobSpec
    payload: Any
    secret: str
    callback_key: bytes | None = None
    """What the addresses of its callbacks are signed with, where it asks for them."""
    target_name: str = ""
    """What its target goes by (`model/throttle.py`)."""
    named: frozenset[str] = _NONE
    """The secrets that its definition names."""
    unshown: Mapping[str, str] | None = None
    """What of a channel's definition nothing may show, by what to call it."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A definition that this release cannot read, as one of a newer release may be."""

    name: str
    error: str

    def end(self, claim: Claimed, now: datetime) -> Ended:
        """An execution of it fails, and is tried again by the default policy: another worker may be able to."""
        state, delay = what_follows(
            RetryPolicy(), Result.FAILED, claim.attempt, is_cancelled=False, random=random.random()
        )
        return Ended(
            tenant_id=claim.tenant_id,
            key=claim.key,
            fence=claim.fence,
            worker=claim.worker,
            state=state,
            result=Result.FAILED,
            started_at=None,
            finished_at=now,
            ready_at=None if delay is None else now + delay,
            error_kind="unreadable_job",
            error=f"this worker's release ({__version__}) cannot read the definition of {self.name}: {self.error}",
        )


class Catalog:
    """A bounded cache: a revision never changes, so what is here is right until the database is another."""

    def __init__(self, store: Store, kept: int = KEPT) -> None:
        self._store = store
        self._kept = kept
        self._jobs: OrderedDict[tuple[UUID, int], KnownJob | Unreadable] = OrderedDict()
        self._secrets: dict[int, str] = {}
        self._key: bytes | None = None

    def clear(self) -> None:
        """Forget everything: in another incarnation of the database a revision may stand for another definition."""
        self._jobs.clear()
        self._secrets.clear()
        self._key = None

    async def look_up(self, claims: Sequence[Claimed]) -> list[KnownJob | Unreadable | None]:
        """The job of each claim; None where there is no such job any more, and why where it cannot be read.

        It is the job's newest definition, except for a backfill: that is run by the revision that it was staged with.
        """
        keys = [(claim.key.job_id, claim.revision) for claim in claims]
        found: list[KnownJob | Unreadable | None] = list(map(self._jobs.get, keys))
        missing = {
            (claim.tenant_id, claim.key.job_id)
            for claim, job in zip(claims, found, strict=True)
            if job is None
        }
        if missing:
            fresh = await self._read(list(missing))
            await self._read_replaced(claims)
            for place, (claim, key) in enumerate(zip(claims, keys, strict=True)):
                job = self._jobs.get(key)
                if job is None and claim.key.kind is not Kind.BACKFILL:
                    job = fresh.get(claim.key.job_id)
                found[place] = job
        if len(self._jobs) > self._kept // 2:
            # While there is room, it does not matter who was used last.
            self._forget_oldest(keys)
        return found

    def _forget_oldest(self, used: Sequence[tuple[UUID, int]]) -> None:
        """Forget, where there are too many, those that were not used for longest."""
        for key in used:
            if key in self._jobs:
                self._jobs.move_to_end(key)
        while len(self._jobs) > self._kept:
            self._jobs.popitem(last=False)

    async def _read_replaced(self, claims: Sequence[Claimed]) -> None:
        """Read the definitions that backfills ask for and that are their jobs' no more.

        After the present ones: what was replaced in between is found among the replaced.
        """
        wanted = {
            (claim.tenant_id, claim.key.job_id, claim.revision)
            for claim in claims
            if claim.key.kind is Kind.BACKFILL and (claim.key.job_id, claim.revision) not in self._jobs
        }
        if wanted:
            rows = await self._store.definitions_at(list(wanted))
            for row, known in zip(rows, await self._known(rows), strict=True):
                self._jobs[row.job_id, row.revision] = known

    async def _read(self, keys: Sequence[tuple[int, UUID]]) -> dict[UUID, KnownJob | Unreadable]:
        fresh: dict[UUID, KnownJob | Unreadable] = {}
        rows = await self._store.definitions(keys)
        for row, known in zip(rows, await self._known(rows), strict=True):
            # The job may have moved on since the claim; its newest definition is the one to use.
            fresh[row.job_id] = self._jobs[row.job_id, row.revision] = known
        return fresh

    async def _known(self, rows: Sequence[Definition]) -> list[KnownJob | Unreadable]:
        secrets = {tenant_id: await self._secret(tenant_id) for tenant_id in {row.tenant_id for row in rows}}
        known = [_known(row.name, row.spec, secrets[row.tenant_id]) for row in rows]
        for place, job in enumerate(known):
            if isinstance(job, Unreadable):
                continue
            target = job.terms.target.http
            if target is not None and target.callback is not None:
                key = await self._callback_key(rows[place].tenant_id)
                known[place] = dataclasses.replace(job, callback_key=key)
        return known

    async def _secret(self, tenant_id: int) -> str:
        secret = self._secrets.get(tenant_id)
        if secret is None:
            secret = self._secrets[tenant_id] = await self._store.signing_secret(tenant_id)
        return secret

    async def _callback_key(self, tenant_id: int) -> bytes:
        if self._key is None:
            terms = await self._store.callback_terms(tenant_id)
            assert terms is not None, "a job has a tenant"
            self._key = terms[0]
        return self._key


def _known(name: str, text: str, secret: str) -> KnownJob | Unreadable:
    raw = orjson.loads(text)
    try:
        terms, target = _terms(orjson.dumps({part: raw[part] for part in _TERMS if part in raw}))
    except ValidationError as error:
        # Where and why, and not what stands there: that may be a header.
        [first, *_] = error.errors(include_input=False, include_url=False, include_context=False)
        return Unreadable(name, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    payload = raw.get("payload")
    named = _NONE
    if MARK in text:
        named = frozenset(named_by_target(terms.target) | {each for _, each in named_in(payload)})
    known = KnownJob(name, terms, payload, secret, target_name=target, named=named)
    return dataclasses.replace(known, unshown=unshown(terms.target)) if is_own(name) else known


@lru_cache(maxsize=10_000)
def _terms(text: bytes) -> tuple[JobSpec, str]:
    terms = JobSpec.model_validate({"name": "any", **orjson.loads(text)})
    return terms, target_name(terms.target)
