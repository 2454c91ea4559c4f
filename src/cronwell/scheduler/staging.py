"""Walk ahead of the clock and stage each coming slot.

A scheduler does not wake at the instant and then write. It looks `look_ahead` into the future and writes each slot as a
pending execution before it is due, so that a herd at nine o'clock is written calmly in the minute before, and the death
of every scheduler costs nothing for most of a minute.

One transaction locks a batch of cursors (those that another scheduler has locked are passed over), plans their slots,
inserts the executions and moves the cursors by compare-and-set, in the epoch of their shards. Whatever fails, all of it
rolls back and the cursors stand where they stood; so any number of schedulers may run at once, wake from the dead or lose
their connection, and no slot is lost or staged twice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Protocol
from uuid import UUID

from cronwell import errors, telemetry
from cronwell.config import SchedulerSettings
from cronwell.control import rezoning
from cronwell.control.pacing import Pace
from cronwell.control.scheduling import left_out_of, move_from
from cronwell.model.execution import State
from cronwell.model.shards import shard_of
from cronwell.runtime.clock import Clock
from cronwell.scheduler.front import Front
from cronwell.store.port import Cursor, Move, Standing, Store, Transaction

# A job with many slots in the look-ahead is staged a stretch further than it must be, so that its cursor is written
# once for the stretch and not once for each slot.
STRETCH = timedelta(seconds=30)

# A cursor that stands near the present (its job is new, or all schedulers were down) is staged in steps, the first of
# them this long and each twice as far ahead as the one before: a herd of such jobs gets its next seconds before any of
# them gets its next minute.
FIRST_STEP = timedelta(seconds=4)

# Slots in one transaction, about. While it is open PostgreSQL keeps all that was claimed since it began in the index that
# claims go by, and each claim passes over it. With jobs that fire each second, 16,700 of them, a transaction of 2,000 jobs had
# 60,000 slots and took 3 s: starts were late by 28 ms at p50 and 836 at p99 in a run of seconds. With this, and with what workers
# do about it, it was 1.8 to 3.3 and 11 to 158 in three such runs (November 2026).
SLOTS = 2000
MOST_SLOTS = 5 * SLOTS
"""A transaction that has planned so many leaves its other cursors where they stand. One job of each shard is asked for at least, and
may have thousands of slots that it missed."""

FIRST_BATCH = 100
"""Jobs to stage in the first transaction after a start, which may be the end of a long outage; it doubles from there."""

PLANNING = 0.5
"""Seconds after which a transaction leaves its other cursors where they stand, at most. Meanwhile nothing else is done by this process,
and the database waits: for as long as the lease our shards would go to another, and after 15 s PostgreSQL would end the session. A job
whose slots were missed for a week takes up to 61 ms (November 2026)."""
OF_A_LEASE = 1 / 8
"""So long at most, as a part of the lease."""

_NEXT_SLOT = attrgetter("next_slot")


class Holder(Protocol):
    """Who knows which shards are ours."""

    @property
    def member(self) -> UUID: ...
    @property
    def epochs(self) -> Mapping[int, int]: ...
    def drop(self, shards: Iterable[int]) -> None: ...


class Staging:
    """Stages the slots of some shards, a batch at a time."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: SchedulerSettings,
        holder: Holder,
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._holder = holder
        self._pace = Pace(settings.catch_up_rate)
        self._front = Front(settings.look_ahead)
        self._jobs = min(FIRST_BATCH, settings.batch)
        """Jobs to stage in the next transaction: fewer of those that have many slots, and half as many after a failure."""
        self._most_slots = MOST_SLOTS
        """Slots after which the next transaction plans no more: half as many after a failure."""
        self._planning = min(PLANNING, settings.lease.total_seconds() * OF_A_LEASE)

    async def poll(self) -> timedelta:
        """Stage a batch; come back at once while there is more."""
        if await self.run_once():
            return timedelta()
        return self._settings.tick

    async def run_once(self) -> int:
        """Stage one batch and return how many cursors it moved; 0: all of ours is staged up to the horizon."""
        epochs = dict(self._holder.epochs)
        if not epochs:
            return 0
        try:
            return await self._stage_batch(epochs)
        except errors.Fenced as error:
            self._holder.drop(error.shards)
            telemetry.fenced(error.shards)
        except errors.CommitUnknown:
            # It may have happened or not. Whoever holds the shards next begins from what the store says.
            self._holder.drop(epochs)
            raise
        return 0

    async def _stage_batch(self, epochs: Mapping[int, int]) -> int:
        began = time.perf_counter()
        now = self._clock.now()
        horizon = now + self._settings.look_ahead
        asked, most_slots = self._jobs, self._most_slots
        each = max(1, -(-asked // len(epochs)))
        # As if it failed, until it has not: what was too much for one transaction would be too much for ever.
        self._jobs, self._most_slots = max(1, asked // 2), max(1, most_slots // 2)
        async with self._store.transaction() as transaction:
            looked = time.monotonic()
            cursors = await transaction.lock_due(self._front.since(epochs, now), horizon, each)
            self._front.looked(time.monotonic() - looked, len(cursors))
            cursors.sort(key=_NEXT_SLOT)
            steps, left = await self._plan(transaction, cursors, now, horizon, most_slots)
            moves = self._pace.spread(steps, now)
            if cursors:
                touched = {shard_of(cursor.job_id) for cursor in cursors}
                await transaction.hold_shards(
                    self._holder.member, {shard: epochs[shard] for shard in touched}
                )
            if moves:
                await transaction.stage(moves, now)
        self._front.staged(epochs, staged_to(epochs, cursors, moves, left, horizon, each))
        if not cursors:
            self._jobs, self._most_slots = asked, most_slots
            telemetry.staged_until(horizon)
            return 0
        treated = len(cursors) - len(left)
        states = [planned.state for move in moves for planned in move.planned]
        following = jobs_for_next(treated, len(states), asked, self._settings.batch)
        self._jobs = max(1, min(following, treated)) if left else following
        self._most_slots = min(MOST_SLOTS, 2 * most_slots)
        skipped = states.count(State.SKIPPED)
        telemetry.staged(
            jobs=len(moves),
            slots=len(states) - skipped,
            skipped=skipped,
            took=timedelta(seconds=time.perf_counter() - began),
        )
        return treated

    async def _plan(
        self,
        transaction: Transaction,
        cursors: Sequence[Cursor],
        now: datetime,
        horizon: datetime,
        most_slots: int,
    ) -> tuple[list[Move], list[Cursor]]:
        """Plan the steps of cursors, one after another until it has been enough for one transaction; with them come the cursors
        that are left where they stand. One at least is not, unless there is none."""
        furthest = horizon + min(STRETCH, self._settings.look_ahead / 2)
        left_out = await left_out_of(transaction, cursors, furthest)
        standings = await self._standings(transaction, cursors, now)
        moves: list[Move] = []
        slots = 0
        enough_deadline = time.monotonic() + self._planning
        for treated, cursor in enumerate(cursors):
            if treated and (slots >= most_slots or time.monotonic() >= enough_deadline):
                return moves, list(cursors[treated:])
            key = (cursor.tenant_id, cursor.job_id)
            until = min(furthest, now + max(FIRST_STEP, 2 * (cursor.next_slot - now)))
            try:
                standing = standings.get(key)
                if standing is None:
                    skipped = left_out.get(key, ())
                    move = move_from(cursor, now=now, settings=self._settings, until=until, left_out=skipped)
                else:
                    move = await rezoning.step(
                        transaction, standing, now=now, settings=self._settings, until=until
                    )
            except Exception as error:  # noqa: BLE001  # one job's plan must not stop all the others' slots
                await self._set_aside(transaction, cursor, now, error)
            else:
                moves.append(move)
                slots += len(move.planned)
        return moves, []

    async def _standings(
        self, transaction: Transaction, cursors: Sequence[Cursor], now: datetime
    ) -> dict[tuple[int, UUID], Standing]:
        """Where jobs stand whose next slot was found by other rules of their zone than those installed."""
        keys = [(each.tenant_id, each.job_id) for each in cursors if _is_unsettled(each)]
        found = await transaction.standings(keys, now, rezoning.BACK) if keys else []
        return {(each.cursor.tenant_id, each.cursor.job_id): each for each in found}

    async def _set_aside(
        self, transaction: Transaction, cursor: Cursor, now: datetime, error: Exception
    ) -> None:
        """Pause a job whose plan cannot be followed, and say so where its owner looks."""
        note = f"paused by the scheduler: its slots cannot be computed ({type(error).__name__}: {error})"
        await transaction.set_job_state(
            cursor.tenant_id, cursor.job_id, "paused", now, note=note[:500], paused_at=now
        )
        await transaction.put_cursor(cursor, None, is_held=True)
        telemetry.plan_failed(job=str(cursor.job_id), error=error)


def jobs_for_next(jobs: int, slots: int, asked: int, most: int) -> int:
    """How many jobs to ask for next, after a transaction that asked for so many and had so many with so many slots: fewer at once
    where those had many, and no more than twice as many where they had few, for the next may have many."""
    return max(1, min(most, 2 * asked, jobs * SLOTS // max(slots, 1)))


def staged_to(
    shards: Collection[int],
    cursors: Sequence[Cursor],
    moves: Sequence[Move],
    left: Sequence[Cursor],
    horizon: datetime,
    each: int,
) -> dict[int, datetime]:
    """Up to where each shard is staged after a look that found these: the horizon, or the last cursor that was found where they were
    as many as were asked for; or the first of those that were not moved as far, or not moved at all."""
    found = Counter(shard_of(cursor.job_id) for cursor in cursors)
    reached = dict.fromkeys(shards, horizon)
    for cursor in cursors:
        # In the order of their slots: the last one of a shard stands.
        if found[shard := shard_of(cursor.job_id)] == each:
            reached[shard] = cursor.next_slot
    stand = [(move.cursor, move.next_slot) for move in moves if not move.awaits]
    stand += [(cursor, cursor.next_slot) for cursor in left]
    for cursor, next_slot in stand:
        if next_slot is not None:
            shard = shard_of(cursor.job_id)
            reached[shard] = min(reached[shard], next_slot)
    return reached


def _is_unsettled(cursor: Cursor) -> bool:
    try:
        return not rezoning.is_settled(cursor)
    except Exception:  # noqa: BLE001  # a plan that cannot be read is told of where its step is planned
        return False
