"""What a worker knows of jobs: definitions by revision, read once, and the tenants' signing secrets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

import orjson

from cronwell.model.job import JobSpec
from cronwell.store.port import Claimed, Store

KEPT = 50_000
# What of a definition says how to run it. A herd of jobs differs in names and payloads and shares the rest, so each
# combination is checked once: 5 µs a job where checking all of it takes 8 (November 2026).
_TERMS = ("target", "timeout", "retry")


@dataclass(frozen=True, slots=True)
class KnownJob:
    """What is needed of a job's definition to run it. `terms` stands for every job that is run in the same way."""

    name: str
    terms: JobSpec
    payload: Any
    secret: str


class Catalog:
    """A bounded cache: a revision never changes, so what is here is right."""

    def __init__(self, store: Store, kept: int = KEPT) -> None:
        self._store = store
        self._kept = kept
        self._jobs: OrderedDict[tuple[UUID, int], KnownJob] = OrderedDict()
        self._secrets: dict[int, str] = {}

    async def look_up(self, claims: Sequence[Claimed]) -> list[KnownJob | None]:
        """The job of each claim; None where there is no such job any more."""
        missing = {
            (claim.tenant_id, claim.key.job_id)
            for claim in claims
            if (claim.key.job_id, claim.revision) not in self._jobs
        }
        fresh = await self._read(list(missing)) if missing else {}
        found: list[KnownJob | None] = []
        for claim in claims:
            key = (claim.key.job_id, claim.revision)
            job = self._jobs.get(key) or fresh.get(claim.key.job_id)
            if key in self._jobs:
                self._jobs.move_to_end(key)
            found.append(job)
        while len(self._jobs) > self._kept:
            self._jobs.popitem(last=False)
        return found

    async def _read(self, keys: Sequence[tuple[int, UUID]]) -> dict[UUID, KnownJob]:
        fresh: dict[UUID, KnownJob] = {}
        for row in await self._store.definitions(keys):
            secret = self._secrets.get(row.tenant_id)
            if secret is None:
                secret = self._secrets[row.tenant_id] = await self._store.signing_secret(row.tenant_id)
            job = _known(row.name, row.spec, secret)
            # The job may have moved on since the claim; its newest definition is the one to use.
            fresh[row.job_id] = self._jobs[row.job_id, row.revision] = job
        return fresh


def _known(name: str, text: str, secret: str) -> KnownJob:
    raw = orjson.loads(text)
    terms = _terms(orjson.dumps({part: raw[part] for part in _TERMS if part in raw}))
    return KnownJob(name, terms, raw.get("payload"), secret)


@lru_cache(maxsize=10_000)
def _terms(text: bytes) -> JobSpec:
    return JobSpec.model_validate({"name": "any", **orjson.loads(text)})
