"""Backfill: a range of past slots is run once each, in its order, at its rate, by the definition that was asked for."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import orjson
import pytest

from cronwell import errors
from cronwell.config import Settings
from cronwell.control.backfill_views import STEP, BackfillView
from cronwell.control.backfills import Asked
from cronwell.model.execution import Kind, State
from cronwell.runtime.clock import ManualClock
from cronwell.scheduler.chores.backfilling import Backfilling
from cronwell.scheduler.chores.retention import Retention
from cronwell.store.port import Execution
from cronwell.store.postgres.transaction import PostgresTransaction
from tests.support.house import SECOND, TENANT, House
from tests.support.waiting import until_async

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


async def _start(house: House, job: UUID, begin: datetime, end: datetime | None = None, **how: Any) -> UUID:
    answered = await house.backfills.start(TENANT, str(job), Asked(begin, end, **how))
    assert answered.status == 201
    return UUID(orjson.loads(answered.body)["id"])


async def _rows(house: House, job: UUID) -> list[Execution]:
    return await house.history(job, kind=Kind.BACKFILL)


async def _slots(house: House, job: UUID) -> list[datetime]:
    return [each.key.slot for each in await _rows(house, job)]


async def _shown(house: House, backfill: UUID) -> BackfillView:
    return await house.backfills.get(TENANT, str(backfill))


async def _end_all(house: House, state: State = State.SUCCEEDED) -> None:
    await house.database.execute(
        "update executions set state = $1, finished_at = ready_at"
        " where kind = 'backfill' and state in ('pending', 'running', 'retrying')",
        state,
    )


async def _run_through(house: House, clock: ManualClock, backfill: UUID, steps: int = 1000) -> list[datetime]:
    """Move on until it is finished, as if each execution ended at once; the slots in the order of their staging."""
    order: list[datetime] = []
    for _ in range(steps):
        await house.backfilling().run_once()
        rows = await house.database.fetch(
            "select slot from executions where kind = 'backfill' and state = 'pending' order by ready_at"
        )
        order += [row["slot"] for row in rows]
        await _end_all(house)
        if (await _shown(house, backfill)).state == "finished":
            return order
        clock.advance(STEP)
    raise AssertionError("it does not come to an end")


@pytest.mark.parametrize("definition", ["current", "then"])
async def test_a_worker_runs_each_slot_of_the_range_once(house: House, definition: Any) -> None:
    seen: list[tuple[str, datetime, Any]] = []

    def work(context: Any) -> None:
        seen.append((context.execution_id, context.slot, context.payload))

    house.registry.add(work, "work")
    now = house.clock.now()
    job = await house.create(schedule="*/10 * * * * *", payload={"n": 1})
    await house.jobs.pause(TENANT, str(job))  # only what is asked for runs, and no slot of this moment
    await house.database.execute("update jobs set created_at = $1, defined_at = $1", now - DAY)
    begin = (now - MINUTE).replace(microsecond=0)
    made = await _start(house, job, begin, begin + 30 * SECOND, concurrency=2, rate=50, definition=definition)
    async with house.working(), _chore(house):
        shown = await _until_over(house, made)
    expected = [begin + n * SECOND for n in range(30) if (begin + n * SECOND).second % 10 == 0]
    assert [slot for _, slot, _ in sorted(seen, key=lambda each: each[1])] == expected
    assert {payload["n"] for _, _, payload in seen} == {1}
    assert (shown.slots, shown.staged, shown.succeeded, shown.unfinished, shown.remaining) == (3, 3, 3, 0, 0)
    assert {each.reason for each in await _rows(house, job)} == {
        "backfill" if definition == "current" else "backfill_then"
    }


async def test_no_more_than_the_concurrency_run_at_once(house: House) -> None:
    running = most = 0

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        async with asyncio.timeout(30):
            await until_async(lambda: _some_time(house))
        running -= 1

    house.registry.add(work, "work")
    now = house.clock.now().replace(microsecond=0)
    job = await house.create(schedule="* * * * * *", overlap="allow", timeout="1m")
    await house.jobs.pause(TENANT, str(job))
    made = await _start(house, job, now - 20 * SECOND, now - 8 * SECOND, concurrency=3, rate=1000)
    async with house.working(), _chore(house):
        shown = await _until_over(house, made)
    assert (most, shown.succeeded) == (3, 12)


async def test_a_backfill_that_is_asked_for_twice_runs_each_slot_once(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 * * * *")
    first = await _start(still_house, job, NOON - DAY, NOON - DAY / 2, concurrency=4)
    both = await _start(still_house, job, NOON - DAY, NOON, concurrency=4)
    await _run_through(still_house, clock, first)
    await _run_through(still_house, clock, both)
    again = await _start(still_house, job, NOON - DAY, NOON, concurrency=4)
    assert await _run_through(still_house, clock, again, steps=3) == []
    shown = [await _shown(still_house, each) for each in (first, both, again)]
    assert sum(each.staged for each in shown) == 24
    assert [(each.slots, each.staged + each.passed_over) for each in shown] == [(12, 12), (24, 24), (24, 24)]
    assert (shown[2].staged, shown[2].passed_over) == (0, 24)
    assert await _slots(still_house, job) == [NOON - DAY + n * HOUR for n in range(24)]


async def test_a_crash_between_staging_and_commit_loses_nothing_and_doubles_nothing(
    still_house: House, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await still_house.create(schedule="0 * * * *")
    made = await _start(still_house, job, NOON - DAY, NOON, concurrency=5)
    await still_house.backfilling().run_once()
    await _end_all(still_house)
    before = await _shown(still_house, made)
    clock.advance(SECOND)

    class Crash(Exception):
        pass

    async def dies(*_: Any) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(PostgresTransaction, "put_backfill", dies)
        with pytest.raises(Crash):
            await still_house.backfilling().run_once()
    assert len(await _slots(still_house, job)) == before.staged
    assert (await _shown(still_house, made)).reached == before.reached
    await _run_through(still_house, clock, made)
    assert await _slots(still_house, job) == [NOON - DAY + n * HOUR for n in range(24)]
    assert (await _shown(still_house, made)).succeeded == 24


async def test_two_schedulers_at_once_stage_each_slot_once(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="* * * * *")
    made = await _start(still_house, job, NOON - HOUR, NOON, concurrency=7, rate=100)
    for _ in range(12):
        await asyncio.gather(*(still_house.backfilling().run_once() for _ in range(4)))
        open_rows = [each for each in await _rows(still_house, job) if each.state is State.PENDING]
        assert len(open_rows) <= 7
        await _end_all(still_house)
        clock.advance(SECOND)
    await still_house.backfilling().run_once()
    shown = await _shown(still_house, made)
    assert (shown.state, shown.staged, shown.succeeded) == ("finished", 60, 60)


@pytest.mark.parametrize(("rate", "apart"), [(5.0, SECOND / 5), ("30/m", 2 * SECOND), ("1/h", HOUR)])
async def test_the_rate_is_kept_and_unused_time_is_not_made_up_for(
    still_house: House, clock: ManualClock, rate: Any, apart: timedelta
) -> None:
    job = await still_house.create(schedule="* * * * *")
    await _start(still_house, job, NOON - 5 * HOUR, NOON, concurrency=1000, rate=rate)
    for length in (SECOND / 4, SECOND, STEP, MINUTE, STEP, SECOND / 3, 3 * HOUR, STEP, STEP):
        await still_house.backfilling().run_once()
        clock.advance(length)
    starts = sorted(each.ready_at for each in await _rows(still_house, job))
    gaps = [after - before for before, after in pairwise(starts)]
    assert len(starts) >= 2
    assert min(gaps) >= apart - timedelta(microseconds=1)
    assert starts[0] == NOON


async def test_the_rate_is_reached_where_there_are_places(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="* * * * *")
    await _start(still_house, job, NOON - DAY, NOON, concurrency=1000, rate=20)
    for _ in range(20):
        await still_house.backfilling().run_once()
        clock.advance(STEP)
    ready = [each for each in await _rows(still_house, job) if each.ready_at < NOON + 10 * SECOND]
    assert len(ready) == 200


async def test_newest_first_goes_back_through_the_same_slots(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule={"cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin"})
    made = await _start(still_house, job, NOON - 14 * DAY, NOON, order="newest", concurrency=3)
    order = await _run_through(still_house, clock, made)
    slots = await _slots(still_house, job)
    assert len(slots) == 10
    assert order == slots[::-1]


async def test_each_slot_is_run_by_the_definition_of_its_time(house: House) -> None:
    seen: dict[datetime, Any] = {}
    house.registry.add(lambda context: seen.__setitem__(context.slot, context.payload), "work")
    now = house.clock.now().replace(microsecond=0)
    job = await house.create(schedule="0 * * * * *", payload="old")
    await house.jobs.patch(TENANT, str(job), {"schedule": "30 * * * * *", "payload": "middle"}, revision=None)
    await house.jobs.patch(TENANT, str(job), {"schedule": "0 0 0 * * *", "payload": "new"}, revision=None)
    begin = (now - HOUR).replace(second=0)
    await house.database.execute(
        "update jobs set created_at = $1, defined_at = $2", begin, begin + 4 * MINUTE
    )
    await house.database.execute(
        "update job_revisions set valid_from = $1, valid_to = $2 where revision = 1",
        begin,
        begin + 2 * MINUTE,
    )
    await house.database.execute(
        "update job_revisions set valid_from = $1, valid_to = $2 where revision = 2",
        begin + 2 * MINUTE,
        begin + 4 * MINUTE,
    )
    made = await _start(
        house, job, begin - HOUR, begin + 6 * MINUTE, definition="then", concurrency=10, rate=100
    )
    async with house.working(), _chore(house):
        await _until_over(house, made)
    assert seen == {
        # The slot at the very instant of an edit was the old definition's.
        begin + MINUTE: "old",
        begin + 2 * MINUTE: "old",
        begin + 2 * MINUTE + 30 * SECOND: "middle",
        begin + 3 * MINUTE + 30 * SECOND: "middle",
    }
    assert [each.revision for each in await _rows(house, job)] == [1, 1, 2, 2]


async def test_no_other_definition_is_run_where_the_one_of_the_time_is_gone(house: House) -> None:
    house.registry.add(lambda: None, "work")
    now = house.clock.now()
    job = await house.create(schedule="* * * * * *")
    await _start(house, job, now - 3 * SECOND, now - 2 * SECOND)
    await house.backfilling().run_once()
    await house.database.execute("update executions set revision = 99 where kind = 'backfill'")
    [row] = await _rows(house, job)
    async with house.working():
        ended = await house.until_state(row.key, State.SUCCEEDED, State.CANCELLED)
    assert (ended.state, ended.error_kind) == (State.CANCELLED, "no_job")


async def test_by_the_current_definition_slots_before_the_job_was_made_are_run(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="every 1h")
    then = await still_house.backfills.preview(
        TENANT, str(job), Asked(NOON - 3 * HOUR, NOON, definition="then")
    )
    assert (then.count, then.first, then.last) == (0, None, None)
    assert any("was made at" in each for each in then.warnings)
    with pytest.raises(errors.Invalid, match="there is no slot"):
        await _start(still_house, job, NOON - 3 * HOUR, NOON, definition="then")
    current = await still_house.backfills.preview(TENANT, str(job), Asked(NOON - 3 * HOUR, NOON))
    assert (current.count, current.first, current.last) == (3, NOON - 3 * HOUR, NOON - HOUR)


async def test_a_finished_job_is_backfilled_by_its_last_schedule(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule={"cron": "0 * * * *", "end": "2026-05-05T13:30:00Z"})
    clock.advance(3 * HOUR)
    await still_house.staging().run_once()
    await still_house.database.execute("update executions set state = 'succeeded', finished_at = slot")
    await still_house.finishing().run_once()
    assert (await still_house.jobs.get(TENANT, str(job))).state == "finished"
    await still_house.jobs.patch(TENANT, str(job), {"timeout": "1m"}, revision=None)
    backfill = await _start(still_house, job, NOON - 3 * HOUR, NOON)
    assert await _run_through(still_house, clock, backfill) == [NOON - n * HOUR for n in (3, 2, 1)]


async def test_an_edit_leaves_then_alone_and_reaches_current(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="0 * * * *")
    clock.advance(5 * HOUR)
    await _start(still_house, job, NOON + HOUR, NOON + 3 * HOUR, definition="then", concurrency=10)
    await _start(still_house, job, NOON + 3 * HOUR, NOON + 5 * HOUR, concurrency=10)
    await still_house.backfilling().run_once()
    await still_house.jobs.patch(
        TENANT, str(job), {"payload": 2, "priority": "high", "pool": "other"}, revision=None
    )
    rows = await _rows(still_house, job)
    assert [(each.revision, each.priority, each.pool) for each in rows] == [
        (1, 2, "other"),
        (1, 2, "other"),
        (2, 2, "other"),
        (2, 2, "other"),
    ]


async def test_a_pause_of_the_job_does_not_stop_it_and_its_deletion_does(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 * * * *")
    made = await _start(still_house, job, NOON - DAY, NOON, concurrency=3)
    await still_house.backfilling().run_once()
    await still_house.jobs.pause(TENANT, str(job))
    assert [each.state for each in await _rows(still_house, job)] == [State.PENDING] * 3
    clock.advance(STEP)
    await _end_all(still_house)
    assert await still_house.backfilling().run_once() == 3
    await still_house.jobs.delete(TENANT, str(job))
    clock.advance(STEP)
    assert await still_house.backfilling().run_once() == 0
    shown = await _shown(still_house, made)
    assert (shown.state, shown.staged, shown.succeeded, shown.cancelled) == ("cancelled", 6, 3, 3)
    assert shown.finished_at == clock.now()
    with pytest.raises(errors.NotFound, match="deleted"):
        await _start(still_house, job, NOON - DAY, NOON)


async def test_a_paused_backfill_of_a_deleted_job_ends_too(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="0 * * * *")
    made = await _start(still_house, job, NOON - DAY, NOON)
    await still_house.backfills.pause(TENANT, str(made))
    await still_house.jobs.delete(TENANT, str(job))
    await still_house.backfilling().run_once()
    assert (await _shown(still_house, made)).state == "cancelled"


async def test_a_backfill_is_paused_resumed_and_cancelled(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="0 * * * *")
    made = await _start(still_house, job, NOON - DAY, NOON, concurrency=4)
    await still_house.backfilling().run_once()
    assert (await still_house.backfills.pause(TENANT, str(made))).eta is None
    clock.advance(SECOND)
    await _end_all(still_house)
    assert await still_house.backfilling().run_once() == 0
    shown = await _shown(still_house, made)
    assert (shown.state, shown.succeeded, shown.unfinished, shown.remaining) == ("paused", 4, 0, 20)
    resumed = await still_house.backfills.resume(TENANT, str(made))
    assert resumed.eta is not None
    await still_house.backfilling().run_once()
    [started, *rest] = [each.key for each in await _rows(still_house, job) if each.state is State.PENDING]
    await still_house.database.execute(
        "update executions set state = 'running', attempt = 1, fence = 1 where slot = $1", started.slot
    )
    cancelled = await still_house.backfills.cancel(TENANT, str(made))
    assert (cancelled.state, cancelled.staged, cancelled.unfinished) == ("cancelled", 5, 1)
    assert [await still_house.store.get_execution(TENANT, key) for key in rest] == [None] * 3
    assert cancelled.finished_at is None
    await _end_all(still_house)
    await still_house.backfilling().run_once()
    over = await _shown(still_house, made)
    assert (over.succeeded, over.unfinished, over.finished_at) == (5, 0, clock.now())
    with pytest.raises(errors.IllegalState, match="is cancelled"):
        await still_house.backfills.resume(TENANT, str(made))
    assert (await still_house.backfills.cancel(TENANT, str(made))).state == "cancelled"
    # What was taken back may be asked for again.
    again = await _start(still_house, job, NOON - DAY, NOON, concurrency=24)
    await _run_through(still_house, clock, again)
    assert len(await _slots(still_house, job)) == 24


async def test_a_dead_letter_of_a_backfill_counts_as_failed_and_is_not_run_again(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 * * * *")
    made = await _start(still_house, job, NOON - 2 * HOUR, NOON, concurrency=5)
    await still_house.backfilling().run_once()
    await _end_all(still_house, State.FAILED)
    await still_house.backfilling().run_once()
    shown = await _shown(still_house, made)
    assert (shown.state, shown.failed, shown.succeeded) == ("finished", 2, 0)


async def test_a_backfill_keeps_no_live_slot_and_no_trigger_waiting(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="* * * * *")
    await _start(still_house, job, NOON - HOUR, NOON, concurrency=5)
    await still_house.backfilling().run_once()
    rows = await still_house.database.fetch(
        "select distinct running_limit from executions where kind = 'backfill'"
    )
    assert [row["running_limit"] for row in rows] == [None]
    await still_house.trigger()


async def test_retention_keeps_what_is_unfinished_and_is_not_fought_with(
    still_house: House, clock: ManualClock
) -> None:
    kept = still_house.settings.retention.executions
    retention = Retention(still_house.store, clock, still_house.settings.retention)
    job = await still_house.create(schedule="0 */6 * * *")
    oldest = (NOON - kept).replace(hour=0)
    made = await _start(still_house, job, oldest, NOON - kept + 3 * DAY, order="newest", rate="1/h")
    await still_house.backfilling().run_once()
    [row] = await _rows(still_house, job)
    await retention.run_once()
    assert await still_house.store.get_execution(TENANT, row.key) is not None
    # Days later the first days of the range are past retention: they are neither staged nor made anew.
    clock.advance(2 * DAY)
    await _end_all(still_house)
    days = []
    for _ in range(20):
        await still_house.backfilling().run_once()
        await _end_all(still_house)
        days += await still_house.store.days()
        await retention.run_once()
        clock.advance(HOUR)
    assert min(days) >= (oldest + 2 * DAY).date()
    shown = await _shown(still_house, made)
    assert (shown.state, shown.slots) == ("finished", 14)
    assert shown.staged + shown.passed_over == shown.slots
    assert shown.passed_over >= 8


async def test_a_dry_run_counts_and_stores_nothing(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="*/5 * * * *")
    made = await _start(still_house, job, NOON - HOUR, NOON - HOUR / 2, concurrency=10)
    await still_house.backfilling().run_once()
    plan = await still_house.backfills.preview(
        TENANT, str(job), Asked(NOON - HOUR, NOON, rate="6/m", concurrency=2)
    )
    assert (plan.count, plan.first, plan.last) == (12, NOON - HOUR, NOON - 5 * MINUTE)
    assert (plan.already, plan.load_per_minute, plan.takes) == (6, 6.0, "2m")
    assert any(str(made) in each for each in plan.warnings)
    assert any("no worker serves" in each for each in plan.warnings)
    assert len(await still_house.store.list_backfills(TENANT, job, None, None, 10)) == 1


@pytest.mark.parametrize(
    ("asked", "field", "part"),
    [
        ({"begin": NOON - HOUR, "end": NOON + SECOND}, "to", "future"),
        ({"begin": NOON - HOUR, "end": NOON - 2 * HOUR}, "from", "not before"),
        ({"begin": NOON, "end": NOON}, "from", "not before"),
        ({"begin": NOON - timedelta(days=36_500)}, "from", "history is kept for 30d"),
        ({"begin": NOON - 31 * DAY}, "from", "2026-04-05"),
        ({"begin": NOON - HOUR, "rate": "fast"}, "rate", "10/s"),
        ({"begin": NOON - HOUR, "rate": "5000/s"}, "rate", "too fast"),
        ({"begin": NOON - HOUR, "rate": "0/s"}, "rate", "too slow"),
        ({"begin": NOON - HOUR, "payload": float("nan")}, "payload", "finite"),
        ({"begin": NOON - 10 * SECOND, "end": NOON - 5 * SECOND}, "from", "no slot"),
    ],
)
async def test_what_cannot_be_backfilled_is_refused_by_field(
    still_house: House, asked: dict[str, Any], field: str, part: str
) -> None:
    job = await still_house.create(schedule="* * * * *")
    with pytest.raises(errors.Invalid) as refused:
        await still_house.backfills.start(TENANT, str(job), Asked(**asked))
    [problem] = refused.value.problems
    assert problem.field == field
    assert part in str(problem)
    assert await still_house.store.list_backfills(TENANT, None, None, None, 1) == []


async def test_a_hundred_years_of_seconds_are_refused_in_bounded_time(
    migrated_url: str, clock: ManualClock
) -> None:
    settings = Settings()
    settings = dataclasses.replace(
        settings, retention=dataclasses.replace(settings.retention, executions=timedelta(days=36_500))
    )
    house = await House.open(migrated_url, settings, clock)
    clock.set(datetime(2080, 1, 1, tzinfo=UTC))
    job = await house.create(schedule="* * * * * *")
    async with asyncio.timeout(20):
        with pytest.raises(errors.Invalid, match="slots in that range"):
            await house.backfills.preview(TENANT, str(job), Asked(datetime(1981, 1, 1, tzinfo=UTC)))
    await house.close()


@pytest.mark.parametrize(
    ("schedule", "part"), [(None, "no schedule"), ("every 1h after finish", "after each execution")]
)
async def test_a_job_without_known_slots_has_nothing_to_backfill(
    still_house: House, schedule: str | None, part: str
) -> None:
    job = await still_house.create(**({} if schedule is None else {"schedule": schedule}))
    with pytest.raises(errors.IllegalState, match=part):
        await _start(still_house, job, NOON - HOUR)


async def test_a_payload_of_its_own_goes_with_each_execution(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="0 * * * *", payload=1)
    made = await _start(still_house, job, NOON - 2 * HOUR, NOON, payload={"again": True}, note="why")
    await _run_through(still_house, clock, made)
    assert {each.payload for each in await _rows(still_house, job)} == {'{"again":true}'}
    shown = await _shown(still_house, made)
    assert (shown.payload, shown.note) == ({"again": True}, "why")


async def test_explain_shows_the_backfill_of_a_slot(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="0 * * * *")
    await _run_through(still_house, clock, await _start(still_house, job, NOON - HOUR, NOON))
    found = await still_house.explain.explain(TENANT, str(job), "2026-05-05T11:00:00Z")
    assert [each.kind for each in found.others] == [Kind.BACKFILL]


async def test_a_backfill_whose_slots_cannot_be_computed_is_set_aside(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 * * * *")
    broken = await _start(still_house, job, NOON - DAY, NOON)
    await still_house.database.execute(
        "update backfills set spans = replace(spans::text, '\"UTC\"', '\"Nowhere/Gone\"')::json"
    )
    sound = await _start(still_house, job, NOON - DAY, NOON)
    assert await still_house.backfilling().run_once() == 1
    shown = await _shown(still_house, broken)
    assert shown.state == "paused"
    assert "Nowhere/Gone" in (shown.note or "")
    assert (await _shown(still_house, sound)).staged == 1


def _chore(house: House) -> _Chore:
    return _Chore(house.backfilling())


class _Chore:
    """The chore, again and again for as long as the block lasts."""

    def __init__(self, chore: Backfilling) -> None:
        self._chore = chore

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._chore.run_once()
            await asyncio.sleep(0)


async def _until_over(house: House, backfill: UUID) -> BackfillView:
    async def over() -> bool:
        return (await _shown(house, backfill)).state == "finished"

    await until_async(over, within=30)
    return await _shown(house, backfill)


async def _some_time(house: House) -> object:
    """A few round trips: long enough for others to start meanwhile."""
    for _ in range(50):
        await house.store.ping()
    return True
