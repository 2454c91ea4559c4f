"""What a user can do with executions, in verbs."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Literal

import orjson
from pydantic import BaseModel

from cronwell import errors, telemetry
from cronwell.bus.port import Bus, orders_for, work_in
from cronwell.config import Settings
from cronwell.control.definitions import check_payload
from cronwell.control.idempotency import Answered, RequestKey, once
from cronwell.control.jobs import Jobs
from cronwell.control.naming import check_given
from cronwell.control.paging import read_cursor, write_cursor
from cronwell.control.scheduling import wait_until_started
from cronwell.control.views import ExecutionDetail, ExecutionView, Page, execution_detail, execution_view
from cronwell.control.waits import why_not_started
from cronwell.model.execution import TERMINAL, ExecutionKey, Kind, State
from cronwell.model.job import JobSpec, check_json
from cronwell.model.planning import PRIORITIES
from cronwell.runtime.clock import Clock
from cronwell.store.port import WAY_HOLDS, Execution, ExecutionFilter, NewExecution, Store, Transaction

REDRIVE_BATCH = 500
_MICROSECOND = timedelta(microseconds=1)
UNSET: Any = object()


class Executions:
    """The verbs. One instance serves a process."""

    def __init__(self, store: Store, bus: Bus, clock: Clock, settings: Settings, jobs: Jobs) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._settings = settings
        self._jobs = jobs

    async def trigger(
        self,
        tenant_id: int,
        reference: str,
        *,
        payload: Any = UNSET,
        overlap: Literal["allow"] | None = None,
        key: RequestKey | None = None,
    ) -> Answered:
        """Run a job now, beside its schedule. Respects the job's overlap policy unless `overlap` is allow."""
        if payload is not UNSET:
            try:
                check_json(payload)
            except ValueError as error:
                raise errors.Invalid.field("payload", str(error)) from None
            check_payload(payload, self._settings)
        job = await self._jobs.find(tenant_id, reference)
        made: list[ExecutionView] = []

        async def act(transaction: Transaction) -> tuple[int, BaseModel]:
            locked = await transaction.lock_job(tenant_id, job.id)
            if locked is None or locked.state == "deleted":
                raise errors.NotFound(f"job {job.name!r} is deleted")
            # As it is now: somebody may have changed it since it was found.
            check_given(payload, locked.spec)
            spec = JobSpec.model_validate_json(locked.spec)
            limit = None if overlap == "allow" else spec.running_limit
            slot = now = self._clock.now()
            if limit is not None:
                # What a worker holds and will start in a moment comes first, and so does whatever another host's clock put ahead.
                begun = await transaction.make_way(tenant_id, job.id, now)
                slot = now if begun is None else begun + _MICROSECOND
            if limit is not None and spec.overlap in ("skip", "queue_one"):
                most = limit + (spec.overlap == "queue_one")
                _check_overlap(await transaction.unfinished(tenant_id, job.id, slot, most), job.name, most)
            new = NewExecution(
                tenant_id=tenant_id,
                key=ExecutionKey(job.id, Kind.MANUAL, slot),
                ready_at=slot,
                revision=locked.revision,
                priority=PRIORITIES[spec.priority],
                running_limit=limit,
                pool=spec.pool,
                payload=None if payload is UNSET else orjson.dumps(payload).decode(),
                reason="triggered",
                queueing=None if limit is None else spec.queueing,
                group=spec.group_limit,
            )
            while not await transaction.insert_execution(new):
                # Another trigger of this job in the same microsecond.
                slot = new.key.slot + _MICROSECOND
                new = dataclasses.replace(new, key=dataclasses.replace(new.key, slot=slot))
            view = execution_view(_as_stored(new, job.name))
            await transaction.note_change(
                tenant_id, "triggered", f"job:{job.id}", f'{{"execution": "{view.id}"}}'
            )
            if limit is not None and self._clock.now() - now > WAY_HOLDS:
                raise errors.StoreUnavailable("the trigger took too long and was not made")
            made.append(view)
            return 201, view

        answered = await once(self._store, self._clock, tenant_id, key, act)
        for view in made:
            telemetry.execution_changed("triggered", execution=view.id, job=job.name)
            await self._bus.publish([work_in(view.pool)])
        return answered

    async def get(self, tenant_id: int, execution_id: str) -> ExecutionDetail:
        """One execution with its attempts and timeline."""
        key = ExecutionKey.parse(execution_id)
        execution = await self._store.get_execution(tenant_id, key)
        if execution is None:
            raise errors.NotFound(
                f"there is no execution {execution_id!r}; history may have been dropped by retention"
            )
        attempts = await self._store.list_attempts(tenant_id, key) if execution.fence else []
        override = None
        if key.kind is Kind.SCHEDULED:
            override = await self._store.get_override(tenant_id, key.job_id, key.slot)
            override = override if override is not None and override.applied_at is not None else None
        detail = execution_detail(execution, attempts, override)
        waits_for = await why_not_started(self._store, execution, self._clock.now())
        return detail if waits_for is None else detail.model_copy(update={"waits_for": waits_for})

    async def page(
        self, tenant_id: int, where: ExecutionFilter, *, cursor: str | None, limit: int
    ) -> Page[ExecutionView]:
        """Executions, newest slot first. Slots ahead are left out, unless a state or an end is asked for."""
        if where.to_slot is None and where.states is None:
            where = dataclasses.replace(where, begun_by=self._clock.now())
        place = read_cursor(cursor, 1)
        after = None
        if place is not None:
            try:
                after = ExecutionKey.parse(place[0])
            except errors.NotFound:
                raise errors.Invalid.field("cursor", "is not a cursor of this list") from None
        found = await self._store.list_executions(tenant_id, where, after, limit + 1)
        page, more = found[:limit], len(found) > limit
        following = write_cursor(str(page[-1].key)) if more else None
        return Page(items=[execution_view(each) for each in page], next_cursor=following)

    async def cancel(self, tenant_id: int, execution_id: str) -> ExecutionDetail:
        """End an execution that has not started; ask one that runs to stop. Nothing starts after the answer."""
        key = ExecutionKey.parse(execution_id)
        touched = await self._store.cancel_execution(tenant_id, key, self._clock.now())
        if touched is None:
            found = await self.get(tenant_id, execution_id)
            if found.state is State.CANCELLED:
                return found
            raise errors.IllegalState(f"execution {execution_id} is {found.state} already")
        if touched.worker is not None and touched.state is State.RUNNING:
            await self._bus.publish([orders_for(touched.worker)])
        telemetry.execution_changed("cancelled", execution=execution_id)
        await wait_until_started([touched], self._clock)
        return await self.get(tenant_id, execution_id)

    async def retry(self, tenant_id: int, execution_id: str) -> ExecutionDetail:
        """Give a dead letter, or what was cancelled, a new set of attempts."""
        key = ExecutionKey.parse(execution_id)
        pool = await self._store.revive_execution(tenant_id, key, self._clock.now())
        if pool is None:
            found = await self.get(tenant_id, execution_id)
            if found.state in TERMINAL and found.state in (State.FAILED, State.CANCELLED):
                raise errors.IllegalState(f"the job of execution {execution_id} is deleted")
            raise errors.IllegalState(
                f"execution {execution_id} is {found.state}; only failed and cancelled ones can be retried"
            )
        telemetry.execution_changed("retried", execution=execution_id)
        await self._bus.publish([work_in(pool)])
        return await self.get(tenant_id, execution_id)

    async def dismiss(self, tenant_id: int, execution_id: str) -> ExecutionDetail:
        """Let a dead letter rest."""
        key = ExecutionKey.parse(execution_id)
        if not await self._store.dismiss(tenant_id, key):
            found = await self.get(tenant_id, execution_id)
            raise errors.IllegalState(f"execution {execution_id} is {found.state}, not a dead letter")
        telemetry.execution_changed("dismissed", execution=execution_id)
        return await self.get(tenant_id, execution_id)

    async def redrive(
        self, tenant_id: int, where: ExecutionFilter, *, rate: float, limit: int | None = None
    ) -> AsyncIterator[int]:
        """Retry the dead letters that match, oldest first, `rate` of them a second; yields how many so far.

        What dies again meanwhile is left alone: only what was dead when the redrive began is taken.
        """
        begun = self._clock.now()
        total = 0
        while limit is None or total < limit:
            batch = REDRIVE_BATCH if limit is None else min(REDRIVE_BATCH, limit - total)
            pools = await self._store.redrive(
                tenant_id,
                where,
                limit=batch,
                rate=rate,
                start=max(begun + timedelta(seconds=total / rate), self._clock.now()),
                dead_by=begun,
            )
            total += len(pools)
            if pools:
                await self._bus.publish({work_in(pool) for pool in pools})
                yield total
            if len(pools) < batch:
                break
        telemetry.execution_changed("dead letters redriven", execution="", count=total)


def _check_overlap(unfinished: list[ExecutionKey], name: str, limit: int) -> None:
    if len(unfinished) >= limit:
        raise errors.IllegalState(
            f"job {name!r} has {len(unfinished)} unfinished execution(s), e.g. {unfinished[0]}, and allows "
            f'{limit}; wait for it, cancel it, or trigger with {{"overlap": "allow"}} (--overlap)'
        )


def _as_stored(new: NewExecution, job_name: str) -> Execution:
    """The execution as a read would find it, just after it was added."""
    return Execution(
        tenant_id=new.tenant_id,
        key=new.key,
        job_name=job_name,
        state=State.PENDING,
        ready_at=new.ready_at,
        fence=0,
        attempt=0,
        revision=new.revision,
        priority=new.priority,
        pool=new.pool,
        worker=None,
        claimed_at=None,
        started_at=None,
        finished_at=None,
        cancel_requested_at=None,
        reason=new.reason,
        error_kind=None,
        error=None,
        output=None,
        output_truncated=False,
        payload=new.payload,
        progress=None,
        running_limit=new.running_limit,
    )
