"""Jobs that follow others, as a whole: the graph around a job, and running it again from a node."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import orjson
from pydantic import Field, TypeAdapter

from cronwell import errors, telemetry
from cronwell.bus.port import Bus, work_in
from cronwell.control.executions import Executions
from cronwell.control.jobs import Jobs
from cronwell.control.views import ExecutionDetail, Moment, View
from cronwell.model.alerts import is_own
from cronwell.model.dependencies import After, Mode, On, rule_of
from cronwell.model.execution import OPEN, ExecutionKey, State
from cronwell.runtime.clock import Clock
from cronwell.store.port import NamedJob, Store, Transaction, WaitingSlot

MOST_NODES = 500
MOST_BELOW = 20_000
WAITING_SHOWN = 1000

_AFTER: TypeAdapter[After] = TypeAdapter(After)


class LastExecution(View):
    id: str
    slot: Moment
    state: State
    reason: str | None = None


class WaitingView(View):
    """A slot for which some upstreams have ended and others have not."""

    slot: Moment
    since: Moment


class Node(View):
    """A job of a graph."""

    id: UUID
    name: str
    state: str
    schedule: str | None = None
    """As it was written; without one it follows others, or runs only when it is triggered."""
    mode: Mode | None = None
    """Whether it runs after all that it follows, or after any."""
    last: LastExecution | None = None
    """Its newest execution or, where a slot was asked for, the one of that."""
    waiting: list[WaitingView] = Field(default_factory=list)
    """Slots at which it waits, the oldest first."""


class EdgeView(View):
    upstream: UUID
    dependent: UUID
    on: On


class GraphView(View):
    """All jobs that a job has to do with by what follows what."""

    job_id: UUID
    slot: Moment | None = None
    nodes: list[Node]
    edges: list[EdgeView]
    is_cut: bool = False
    """There are more jobs than are shown."""


class Graphs:
    """The verbs. One instance serves a process."""

    def __init__(self, store: Store, bus: Bus, clock: Clock, jobs: Jobs, executions: Executions) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._jobs = jobs
        self._executions = executions

    async def graph(self, tenant_id: int, reference: str, slot: datetime | None = None) -> GraphView:
        """The jobs around a job; with a slot, how each of them stands there."""
        job = await self._jobs.find(tenant_id, reference)
        around = await self._store.jobs_around(tenant_id, job.id, MOST_NODES + 1)
        shown = sorted(around, key=lambda each: (each.id != job.id, each.name))[:MOST_NODES]
        ids = [each.id for each in shown]
        edges = [
            edge for edge in await self._store.edges_among(tenant_id, ids) if edge.upstream_id in set(ids)
        ]
        latest = await self._store.latest_of(
            tenant_id, ids, self._clock.now() if slot is None else slot, slot
        )
        last = {
            key.job_id: LastExecution(id=str(key), slot=key.slot, state=state, reason=reason)
            for key, state, reason in latest
        }
        waiting = await self._store.waiting_of(tenant_id, ids, WAITING_SHOWN)
        return GraphView(
            job_id=job.id,
            slot=slot,
            nodes=[
                _node(each, last.get(each.id), [w for w in waiting if w.job_id == each.id]) for each in shown
            ],
            edges=[EdgeView(upstream=e.upstream_id, dependent=e.dependent_id, on=e.condition) for e in edges],
            is_cut=len(around) > MOST_NODES,
        )

    async def rerun(self, tenant_id: int, execution_id: str, *, is_downstream: bool) -> ExecutionDetail:
        """Run an execution that has ended once more; with `is_downstream`, and all that follows it at its slot after it."""
        key = ExecutionKey.parse(execution_id)
        now = self._clock.now()
        async with self._store.transaction() as transaction:
            await transaction.keep_from_judging()
            for job in await transaction.jobs_of_ids(tenant_id, [key.job_id]):
                if is_own(job.name):
                    raise errors.IllegalState(
                        f"execution {key} is a message of an alert, which is told once; where it did not arrive, retry it"
                    )
            below = await transaction.edges_below(tenant_id, [key.job_id], MOST_BELOW)
            jobs = sorted({edge.dependent_id for edge in below}) if is_downstream else []
            pool = await self._undo(transaction, tenant_id, key, jobs, now, is_followed=bool(below))
            noted = {"downstream": len(jobs)}
            await transaction.note_change(
                tenant_id, "rerun", f"execution:{key}", orjson.dumps(noted).decode()
            )
        telemetry.execution_changed("rerun", execution=execution_id, downstream=len(jobs))
        await self._bus.publish([work_in(pool)])
        return await self._executions.get(tenant_id, execution_id)

    async def _undo(
        self,
        transaction: Transaction,
        tenant_id: int,
        key: ExecutionKey,
        jobs: Sequence[UUID],
        now: datetime,
        *,
        is_followed: bool,
    ) -> str:
        found = await transaction.lock_rerun(tenant_id, [key.job_id, *jobs], key.slot)
        states = {each: state for each, state in found if each == key or each.job_id in jobs}
        if key not in states:
            raise errors.NotFound(f"there is no execution {str(key)!r}; retention may have dropped it")
        if unfinished := next((each for each, state in states.items() if state in OPEN), None):
            raise errors.IllegalState(
                f"execution {unfinished} is {states[unfinished]}; wait for its end, or cancel it first"
            )
        pool = await transaction.rerun(tenant_id, key, now, is_followed=is_followed)
        if pool is None:
            raise errors.IllegalState(f"the job of execution {key} is deleted; it cannot run again")
        if jobs:
            await transaction.undo_dependents(tenant_id, jobs, key.slot, now)
        return pool


def _node(job: NamedJob, last: LastExecution | None, waiting: Sequence[WaitingSlot]) -> Node:
    after = None if job.after is None else orjson.loads(job.after)
    return Node(
        id=job.id,
        name=job.name,
        state=job.state,
        schedule=job.schedule,
        mode=None if after is None else rule_of(_AFTER.validate_python(after)).mode,
        last=last,
        waiting=[WaitingView(slot=each.slot, since=each.since) for each in waiting[:5]],
    )
