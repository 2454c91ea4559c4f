"""Run past slots that somebody asked for, no faster and no more at once than they said.

Each backfill is moved on in a transaction of its own: what has ended is counted, then as many further slots are staged
as the rate and the places left allow, and how far it has come is kept with them. Whatever fails, all of it rolls back and
the next step begins where this one did. A slot that has an execution of a backfill already is passed over: the primary
key makes sure of that whatever is asked for how often.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from cronwell import errors, telemetry
from cronwell.bus.port import Bus, work_in
from cronwell.config import RetentionSettings
from cronwell.control.backfill_views import STEP
from cronwell.control.backfills import cancelled
from cronwell.model import backfill as model
from cronwell.model.backfill import PastSlot, Span
from cronwell.model.execution import TERMINAL, ExecutionKey, Kind, State
from cronwell.model.planning import PRIORITIES
from cronwell.runtime.clock import Clock
from cronwell.store.port import Backfill, NewExecution, Store, Transaction

AT_ONCE = 1000
"""Backfills that are moved on in one round."""
# Staged a little ahead, so that the rate is kept where a step comes late.
AHEAD = 2 * STEP
# Slots that are passed over cost a look each; so many looks are taken in one step, in growing parts.
PARTS = 10
LARGEST_PART = 500


class Backfilling:
    """Implements `Chore`."""

    name = "backfilling"
    every = STEP

    def __init__(self, store: Store, bus: Bus, clock: Clock, retention: RetentionSettings) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._retention = retention

    async def run_once(self) -> int:
        """Move each backfill on and return how many executions were staged."""
        total = 0
        pools: set[str] = set()
        for tenant_id, backfill_id in await self._store.open_backfills(AT_ONCE):
            staged, pool = await self._move(tenant_id, backfill_id)
            total += staged
            if staged:
                pools.add(pool)
        if pools:
            telemetry.backfilled(total)
            await self._bus.publish({work_in(pool) for pool in pools})
        return total

    async def _move(self, tenant_id: int, backfill_id: UUID) -> tuple[int, str]:
        async with self._store.transaction() as transaction:
            before = await transaction.lock_backfill(tenant_id, backfill_id)
            if before is None or before.finished_at is not None:
                return 0, ""
            now = self._clock.now()
            after = await _settled(transaction, before)
            if after.state in ("running", "paused") and after.job_state == "deleted":
                after = await cancelled(transaction, after, now)
            is_through = False
            if after.state == "running":
                try:
                    spans = model.load(after.spans)
                    after, is_through = await self._stage(transaction, after, spans, now)
                except (errors.Invalid, ValueError) as error:
                    # Its slots cannot be computed, on this machine at least; the others' can.
                    telemetry.plan_failed(job=str(after.job_id), error=error)
                    after = dataclasses.replace(after, state="paused", note=f"paused: {error}"[:500])
            if not after.unfinished and (is_through or after.state == "cancelled"):
                state = after.state if after.state == "cancelled" else "finished"
                after = dataclasses.replace(after, state=state, finished_at=now)
            if after != before:
                await transaction.put_backfill(dataclasses.replace(after, updated_at=now))
        return max(0, after.staged - before.staged), after.job_pool

    async def _stage(
        self, transaction: Transaction, backfill: Backfill, spans: Sequence[Span], now: datetime
    ) -> tuple[Backfill, bool]:
        """Stage what the limits allow; whether there is nothing left after it."""
        starts = model.starts(
            backfill.next_ready_at,
            backfill.rate,
            now=now,
            until=now + AHEAD,
            most=max(0, backfill.concurrency - len(backfill.unfinished)),
        )
        oldest = model.oldest_kept(now, self._retention.executions)
        size = max(1, len(starts))
        for _ in range(PARTS):
            # On a thread: the slots of the dearest schedules take milliseconds each, and staging must not wait.
            part = await asyncio.to_thread(
                model.following,
                spans,
                backfill.reached,
                is_newest_first=backfill.is_newest_first,
                limit=min(size, LARGEST_PART),
            )
            if not part:
                return backfill, True
            if not starts:
                break
            known = await transaction.backfilled(
                backfill.tenant_id, backfill.job_id, [each.slot for each in part]
            )
            chosen, behind = _choose(part, known, oldest, len(starts))
            new = [_execution(backfill, each, at) for each, at in zip(chosen, starts, strict=False)]
            added = await transaction.insert_executions(new) if new else set()
            backfill = dataclasses.replace(
                backfill,
                reached=behind[-1].slot,
                staged=backfill.staged + len(added),
                passed_over=backfill.passed_over + len(behind) - len(added),
                unfinished=(*backfill.unfinished, *(each.key.slot for each in new if each.key in added)),
                next_ready_at=_after(starts, len(chosen), backfill),
            )
            starts = starts[len(chosen) :]
            size *= 4
        return backfill, False


async def _settled(transaction: Transaction, backfill: Backfill) -> Backfill:
    """Count the executions that have ended since the last step."""
    if not backfill.unfinished:
        return backfill
    states = await transaction.backfilled(backfill.tenant_id, backfill.job_id, backfill.unfinished)
    # One that is not there any more was withdrawn by hand: it has ended, in a way.
    ended = {slot: states.get(slot, State.CANCELLED) for slot in backfill.unfinished}
    ended = {slot: state for slot, state in ended.items() if state in TERMINAL}
    how = list(ended.values())
    return dataclasses.replace(
        backfill,
        succeeded=backfill.succeeded + how.count(State.SUCCEEDED),
        failed=backfill.failed + how.count(State.FAILED),
        unfinished=tuple(slot for slot in backfill.unfinished if slot not in ended),
    )


def _choose(
    part: Sequence[PastSlot], known: dict[datetime, State], oldest: datetime, places: int
) -> tuple[list[PastSlot], list[PastSlot]]:
    """The slots to stage, and all that are behind us then: those that are run already or too old are passed over."""
    chosen: list[PastSlot] = []
    for place, each in enumerate(part):
        if each.slot in known or each.slot < oldest:
            continue
        if len(chosen) == places:
            return chosen, list(part[:place])
        chosen.append(each)
    return chosen, list(part)


def _after(starts: Sequence[datetime], taken: int, backfill: Backfill) -> datetime:
    """When the next one may start."""
    return starts[taken - 1] + timedelta(seconds=1) / backfill.rate if taken else backfill.next_ready_at


def _execution(backfill: Backfill, past: PastSlot, ready_at: datetime) -> NewExecution:
    return NewExecution(
        tenant_id=backfill.tenant_id,
        key=ExecutionKey(backfill.job_id, Kind.BACKFILL, past.slot),
        ready_at=ready_at,
        revision=backfill.job_revision if past.revision is None else past.revision,
        priority=PRIORITIES["low"],
        # Its limit is the backfill's: it neither waits for the executions of the schedule nor keeps them waiting.
        running_limit=None,
        pool=backfill.job_pool,
        payload=backfill.payload,
        reason="backfill" if past.revision is None else "backfill_then",
        group=backfill.job_group,
    )
