"""What becomes of a job's next slot when the rules of its zone change.

A cursor says by which release of the rules its next slot was found. When another release is installed the slots from the
last one staged are found anew; where they differ from what is staged ahead and from the cursor, there are two ways to go:

- *apply*: what is staged ahead is taken back and staged where the new rules have it. A slot that they place before now is
  late and judged by the job's catch-up policy, like any other that nobody staged in time.
- *hold*: what is staged and the next slot stay where they were told; those after it follow the new rules. The slots of the
  new rules that the held ones stand for are skipped, and said to be. A held slot that is missed all the same is judged by
  the new rules.

A chore looks at all cursors when a scheduler starts, and does what the setting says. A cursor that comes due before it is
looked at is treated here alike, in the transaction that stages it. With `ask` the chore changes nothing; a slot about which
nobody has decided by the time it is staged is held.

While a fleet is upgraded two releases are at work. The older one leaves alone what the newer one has found; what it stages
by its own rules the newer one looks at again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from datetime import datetime, timedelta

from cronwell.config import SchedulerSettings
from cronwell.control.overriding import lay
from cronwell.control.scheduling import left_out_of, move_from, standstill
from cronwell.model import zones
from cronwell.model.planning import PlannedSlot, SkippedRange, load_plan
from cronwell.model.schedule import Schedule, effective_at, slots
from cronwell.store.port import Cursor, Move, Standing, Transaction

BACK = timedelta(hours=26)
"""No change of a zone's rules has moved its clocks further: a day where the date line was moved, and summer time."""
REASON = "tzdata"
"""Why a slot of the new rules is skipped: a held one stands for it."""

_MARK = " held"
_TICK = timedelta(microseconds=1)
_MOST_SKIPPED = 1000


def held() -> str:
    """What a cursor goes by whose slot is held against the rules installed."""
    return zones.version() + _MARK


def settled() -> tuple[str, str]:
    """What cursors go by about which nothing is to be decided."""
    return zones.version(), held()


def is_settled(cursor: Cursor) -> bool:
    """Whether the next slot can be staged as it is: it goes by the rules installed, or by newer ones, or by none."""
    release, _, mark = (cursor.tzdata or "").partition(" ")
    if release == zones.version():
        return not mark
    return release > zones.version() or not schedule_of(cursor).is_zoned


def is_newer(cursor: Cursor) -> bool:
    """Whether the slot was found by newer rules than are installed here."""
    return (cursor.tzdata or "") > held()


def schedule_of(cursor: Cursor) -> Schedule:
    return load_plan(cursor.plan).schedule


def found_anew(standing: Standing, now: datetime) -> list[datetime] | None:
    """The slots by the rules installed, in place of those staged ahead and the next one; None where they are the same."""
    cursor = standing.cursor
    olds = [*standing.ahead, cursor.next_slot]
    floor = min(now, max(standing.since, cursor.next_slot - BACK, standing.reached or standing.since))
    news = slots(schedule_of(cursor), floor, None, len(olds))
    return None if news == olds else news


async def step(
    transaction: Transaction,
    standing: Standing,
    *,
    now: datetime,
    settings: SchedulerSettings,
    until: datetime | None = None,
) -> Move:
    """The step of a due cursor that is not settled."""
    cursor = standing.cursor
    if cursor.tzdata != held():
        news = found_anew(standing, now)
        if news is None:
            left_out = await _left_out(transaction, cursor, now, settings, until)
            return move_from(cursor, now=now, settings=settings, until=until, left_out=left_out)
        if settings.tzdata == "apply":
            return await apply(transaction, standing, now=now, settings=settings, until=until)
    if cursor.next_slot <= now - settings.late_grace:
        return await apply(transaction, standing, now=now, settings=settings, until=until)
    return _stage_held(standing, await _left_out(transaction, cursor, now, settings, until))


async def apply(
    transaction: Transaction,
    standing: Standing,
    *,
    now: datetime,
    settings: SchedulerSettings,
    until: datetime | None = None,
) -> Move:
    """Take back what is staged ahead, and go on from the first slot that the rules installed have.

    What was decided about slots that are slots still is laid over them anew.
    """
    cursor = standing.cursor
    news = found_anew(standing, now)
    first = cursor.next_slot if news is None else news[0] if news else None
    runs_left = cursor.runs_left
    if standing.ahead and news is not None:
        if runs_left is not None:
            # What overrides skip is dropped too, but was no run.
            runs_left += await transaction.count_ahead(cursor.tenant_id, cursor.job_id, now, cursor.next_slot)
        await transaction.drop_staged(cursor.tenant_id, cursor.job_id, now)
    if first is None:
        return standstill(cursor, load_plan(cursor.plan))
    start = dataclasses.replace(cursor, next_slot=first, runs_left=runs_left)
    await lay(transaction, start, now=now)
    left_out = await _left_out(transaction, start, now, settings, until)
    move = move_from(start, now=now, settings=settings, until=until, left_out=left_out)
    # The cursor is moved from where it stands, whatever the slot that its step begins with.
    return dataclasses.replace(move, cursor=cursor)


async def _left_out(
    transaction: Transaction,
    cursor: Cursor,
    now: datetime,
    settings: SchedulerSettings,
    until: datetime | None,
) -> Collection[datetime]:
    """The slots from a cursor on that overrides have skipped: they use up no run."""
    found = await left_out_of(transaction, [cursor], until or now + settings.look_ahead)
    return found.get((cursor.tenant_id, cursor.job_id), ())


def _stage_held(standing: Standing, left_out: Collection[datetime]) -> Move:
    """Stage the next slot where it was told, and skip those of the rules installed that it stands for."""
    cursor = standing.cursor
    plan = load_plan(cursor.plan)
    if cursor.runs_left == 0:
        return standstill(cursor, plan)
    slot, schedule = cursor.next_slot, plan.schedule
    floor = max(standing.since, slot - BACK, standing.reached or standing.since, *standing.ahead)
    passed = slots(schedule, floor, slot - _TICK, _MOST_SKIPPED)
    ranges = [SkippedRange(passed[0], passed[-1], REASON, len(passed))] if passed else []
    following = schedule.next_after(slot)
    if schedule.next_after(slot - _TICK) != slot and following is not None:
        is_nearest = not passed or following - slot < slot - passed[-1]
        if is_nearest and following - slot <= BACK:
            ranges.append(SkippedRange(following, following, REASON, 1))
            following = schedule.next_after(following)
    runs_left = cursor.runs_left
    if runs_left is not None and slot not in left_out:
        runs_left -= 1
    return dataclasses.replace(
        standstill(cursor, plan),
        planned=[PlannedSlot(slot, effective_at(schedule, cursor.job_id, slot))],
        ranges=ranges,
        next_slot=None if runs_left == 0 else following,
        runs_left=runs_left,
    )
