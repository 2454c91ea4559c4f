"""From where tests work with a store: jobs, executions and workers made in a line, at a noon that stands still."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID, uuid4

from cronwell.model import zones
from cronwell.model.envelope import Place, Sealed
from cronwell.model.execution import ExecutionKey, Kind, Result, State
from cronwell.model.planning import PlannedSlot
from cronwell.store.port import (
    ApiKey,
    Backfill,
    Claimed,
    Cursor,
    Ended,
    Execution,
    ExecutionFilter,
    Move,
    NewExecution,
    NewJob,
    Override,
    SealedSecret,
    Store,
    Worker,
)

TENANT = 1
OTHER_TENANT = 2
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
PLAN = '{"schedule":{"cron":"* * * * *","timezone":"UTC"}}'
SPEC = '{"name":"job","target":{"handler":{"name":"work"}}}'

_NUMBERS = count(1)


class Desk:
    """A store, and short ways to fill it."""

    def __init__(
        self,
        store: Store,
        another_process: Callable[[], Store],
        remove_worker: Callable[[UUID], Awaitable[object]],
    ) -> None:
        self.store = store
        self._remove_worker = remove_worker
        self.another_process = another_process
        """The same data as a process sees it that knows nothing of what this one did."""

    async def job(self, name: str | None = None, **fields: Any) -> NewJob:
        """Add a job whose cursor stands at noon."""
        made = new_job(name, **fields)
        async with self.store.transaction() as transaction:
            assert await transaction.insert_jobs([made], NOON - DAY) == {made.id}
        return made

    async def staged(self, job: NewJob, *slots: datetime, **fields: Any) -> list[ExecutionKey]:
        """Give slots of a job pending executions, without moving its cursor."""
        planned = [PlannedSlot(slot, fields.pop("ready_at", None) or slot) for slot in slots]
        async with self.store.transaction() as transaction:
            await transaction.record([move(job, planned, **fields)], NOON)
        return [ExecutionKey(job.id, Kind.SCHEDULED, slot) for slot in slots]

    async def manual(self, job: NewJob, slot: datetime = NOON, **fields: Any) -> ExecutionKey:
        """Add an execution that somebody asked for."""
        new = new_execution(job, slot, **fields)
        async with self.store.transaction() as transaction:
            assert await transaction.insert_execution(new)
        return new.key

    async def worker(self, *, lease_until: datetime = NOON + DAY * 30, **fields: Any) -> UUID:
        """Register a worker."""
        made = new_worker(lease_until=lease_until, **fields)
        await self.store.register(made)
        return made.id

    async def forget_worker(self, worker: UUID) -> None:
        """Let a worker's row be gone, as nothing in the product does."""
        await self._remove_worker(worker)

    async def claim(
        self,
        worker: UUID | None = None,
        *,
        limit: int = 1000,
        pool: str = "default",
        priority: int = 1,
        ready_by: datetime = NOON,
        now: datetime | None = None,
    ) -> list[Claimed]:
        """Claim, by default with a worker of its own."""
        worker = await self.worker() if worker is None else worker
        return await self.store.claim(
            worker, pool, priority, ready_by=ready_by, limit=limit, now=ready_by if now is None else now
        )

    async def claimed(self, job: NewJob, slot: datetime = NOON, **fields: Any) -> Claimed:
        """Stage a slot and claim it."""
        [key] = await self.staged(job, slot, **fields)
        found = [
            each for each in await self.claim(ready_by=max(slot, NOON), pool=job.pool) if each.key == key
        ]
        assert len(found) == 1
        return found[0]

    async def dead(
        self, job: NewJob, slot: datetime = NOON, *, at: datetime = NOON, **fields: Any
    ) -> ExecutionKey:
        """An execution without attempts left."""
        claim = await self.claimed(job, slot)
        result = ended(claim, State.FAILED, finished_at=at, **fields)
        assert await self.store.complete([result]) == [State.FAILED]
        return claim.key

    async def get(self, key: ExecutionKey, tenant: int = TENANT) -> Execution:
        found = await self.store.get_execution(tenant, key)
        assert found is not None
        return found

    async def states(self, keys: Sequence[ExecutionKey]) -> list[State]:
        return [(await self.get(key)).state for key in keys]

    async def listed(
        self, *, after: ExecutionKey | None = None, limit: int = 1000, **where: Any
    ) -> list[ExecutionKey]:
        found = await self.store.list_executions(TENANT, ExecutionFilter(**where), after, limit)
        return [each.key for each in found]


def new_job(name: str | None = None, **fields: Any) -> NewJob:
    """A job that is not in the store yet."""
    return dataclasses.replace(
        NewJob(
            tenant_id=TENANT,
            id=uuid4(),
            name=name or f"job-{next(_NUMBERS)}",
            pool="default",
            target_kind="handler",
            tags="{}",
            spec=SPEC,
            plan=PLAN,
            next_slot=NOON,
        ),
        **fields,
    )


def new_execution(job: NewJob, slot: datetime = NOON, **fields: Any) -> NewExecution:
    return dataclasses.replace(
        NewExecution(
            tenant_id=job.tenant_id,
            key=ExecutionKey(job.id, Kind.MANUAL, slot),
            ready_at=slot,
            revision=1,
            priority=1,
            running_limit=None,
            pool=job.pool,
            payload=None,
            reason="triggered",
        ),
        **fields,
    )


def new_override(job: NewJob, slot: datetime, **fields: Any) -> Override:
    """A decision to skip a slot of a job, made at noon."""
    return dataclasses.replace(
        Override(
            tenant_id=job.tenant_id,
            job_id=job.id,
            slot=slot,
            action="skip",
            ready_at=None,
            payload=None,
            note="why",
            author="ana",
            expires_at=None,
            created_at=NOON,
        ),
        **fields,
    )


def new_backfill(job: NewJob, **fields: Any) -> Backfill:
    """A backfill of the day before noon that is not in the store yet."""
    return dataclasses.replace(
        Backfill(
            tenant_id=job.tenant_id,
            id=uuid4(),
            job_id=job.id,
            state="running",
            from_slot=NOON - DAY,
            to_slot=NOON,
            definition="current",
            is_newest_first=False,
            rate=10.0,
            concurrency=3,
            spans="[]",
            slots=24,
            reached=None,
            next_ready_at=NOON,
            staged=0,
            passed_over=0,
            succeeded=0,
            failed=0,
            unfinished=(),
            payload=None,
            note=None,
            created_at=NOON,
            updated_at=NOON,
            finished_at=None,
            job_name=job.name,
            job_state="active",
            job_revision=1,
            job_pool=job.pool,
        ),
        **fields,
    )


def past(job: NewJob, slot: datetime, **fields: Any) -> NewExecution:
    """An execution of a backfill, ready at noon."""
    key = ExecutionKey(job.id, Kind.BACKFILL, slot)
    return new_execution(job, slot, key=key, ready_at=NOON, priority=2, reason="backfill", **fields)


def new_worker(**fields: Any) -> Worker:
    return dataclasses.replace(
        Worker(
            id=uuid4(),
            name="worker",
            state="active",
            version="0",
            pools=("default",),
            handlers=("work",),
            concurrency=10,
            running=0,
            started_at=NOON,
            heartbeat_at=NOON,
            lease_until=NOON + DAY,
        ),
        **fields,
    )


def cursor_of(job: NewJob, **fields: Any) -> Cursor:
    """The cursor as a scheduler that has locked the new job sees it."""
    assert job.next_slot is not None
    assert job.plan is not None
    cursor = Cursor(job.tenant_id, job.id, 1, job.next_slot, job.plan, job.runs_left, zones.version())
    return dataclasses.replace(cursor, **fields)


def move(job: NewJob, planned: Sequence[PlannedSlot] = (), **fields: Any) -> Move:
    """A step of the job's cursor from noon to the next minute."""
    return dataclasses.replace(
        Move(
            cursor=cursor_of(job),
            planned=planned,
            ranges=(),
            next_slot=NOON + MINUTE,
            pool=job.pool,
            priority=1,
            running_limit=None,
        ),
        **fields,
    )


def ended(
    claim: Claimed, state: State = State.SUCCEEDED, result: Result | None = None, **fields: Any
) -> Ended:
    """How a claimed attempt ended, five seconds after noon."""
    if result is None:
        result = Result.SUCCEEDED if state is State.SUCCEEDED else Result.FAILED
    return dataclasses.replace(
        Ended(
            tenant_id=claim.tenant_id,
            key=claim.key,
            fence=claim.fence,
            worker=claim.worker,
            state=state,
            result=result,
            started_at=NOON + SECOND,
            finished_at=NOON + SECOND * 5,
        ),
        **fields,
    )


def new_secret(name: str, *, tenant_id: int = TENANT, revision: int = 1, key_id: str = "k1") -> SealedSecret:
    """A secret that nobody could open."""
    return SealedSecret(Place(tenant_id, name, revision), Sealed(key_id, b"wrapped", b"ciphertext"))


def new_key(name: str) -> ApiKey:
    """A key of the first tenant; its prefix and digest are made of its name."""
    return ApiKey(1, uuid4(), name, f"cw_{name}", name.encode(), ["read"], NOON, "test")
