"""Overrides: one slot is skipped, moved or given another payload, whenever that is decided, and no other slot is."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from cronwell import errors
from cronwell.control.overrides import Decision, OverrideView
from cronwell.control.views import UpcomingSlot
from cronwell.model import instants
from cronwell.model.execution import ExecutionKey, Kind, Result, State
from cronwell.runtime.clock import ManualClock
from cronwell.store.port import Claimed, Ended, Execution, ExecutionFilter, Worker
from tests.support.house import SECOND, TENANT, House

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
SKIP = Decision("skip", note="books are closed", author="ana")
HOURLY = "0 * * * *"


async def _put(house: House, job: UUID, slot: datetime, decision: Decision = SKIP) -> OverrideView:
    return await house.overrides.put(TENANT, str(job), slot, decision)


async def _stage(house: House) -> None:
    while await house.staging().run_once():
        pass


async def _row(house: House, job: UUID, slot: datetime) -> Execution | None:
    return await house.store.get_execution(TENANT, ExecutionKey(job, Kind.SCHEDULED, slot))


async def _rows(house: House, job: UUID) -> list[tuple[float, str, str | None]]:
    """Minutes after noon, state and reason of every slot that has a row."""
    found = await house.history(job, states=tuple(State))
    return [((each.key.slot - NOON) / MINUTE, str(each.state), each.reason) for each in found]


async def _claim(house: House, at: datetime) -> list[Claimed]:
    worker = uuid4()
    now = house.clock.now()
    await house.store.register(
        Worker(worker, "w", "active", "1", ("default",), ("work",), 10, 0, now, now, at + 30 * DAY)
    )
    return await house.store.claim(worker, "default", 1, ready_by=at, limit=100, now=at)


async def _end(house: House, claimed: Claimed, at: datetime) -> None:
    ended = Ended(
        TENANT, claimed.key, claimed.fence, claimed.worker, State.SUCCEEDED, Result.SUCCEEDED, at, at
    )
    assert await house.store.complete([ended]) == [State.SUCCEEDED]


async def _upcoming(house: House, job: UUID, count: int = 3) -> list[UpcomingSlot]:
    return (await house.outlook.upcoming(TENANT, str(job), count)).items


async def _states(house: House, job: UUID) -> dict[datetime, str]:
    page = await house.overrides.page(TENANT, str(job), cursor=None, limit=100)
    return {each.slot: each.state for each in page.items}


async def test_a_skipped_slot_is_not_run_and_says_why(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule=HOURLY)
    view = await _put(still_house, job, NOON + HOUR)
    assert (view.state, view.action, view.note, view.author) == ("applied", "skip", "books are closed", "ana")
    clock.advance(2 * HOUR - 30 * SECOND)
    await _stage(still_house)
    assert await _rows(still_house, job) == [(60, "skipped", "override"), (120, "pending", None)]
    found = await still_house.explain.explain(TENANT, str(job), instants.write(NOON + HOUR))
    assert (found.verdict, found.reason) == ("skipped", "override")
    assert found.sentence == "The slot is skipped: an override by ana skips it (books are closed)."
    assert found.override is not None


@pytest.mark.parametrize("to", [NOON + 30 * MINUTE, NOON + 90 * MINUTE])
async def test_a_moved_slot_starts_where_it_was_moved_to_and_only_there(
    still_house: House, clock: ManualClock, to: datetime
) -> None:
    job = await still_house.create(schedule=HOURLY)
    await _put(still_house, job, NOON + HOUR, Decision("move", to, note="load", author="ben"))
    row = await _row(still_house, job, NOON + HOUR)
    assert row is not None
    assert (row.ready_at, row.state, row.reason) == (to, State.PENDING, "moved")
    begun: list[tuple[datetime, datetime]] = []
    while clock.now() < NOON + 3 * HOUR:
        clock.advance(30 * MINUTE)
        await _stage(still_house)
        for claimed in await _claim(still_house, clock.now()):
            begun.append((claimed.key.slot, clock.now()))
            await _end(still_house, claimed, clock.now())
    assert begun == sorted(
        [(NOON + HOUR, to), (NOON + 2 * HOUR, NOON + 2 * HOUR), (NOON + 3 * HOUR, NOON + 3 * HOUR)]
    )
    found = await still_house.explain.explain(TENANT, str(job), instants.write(NOON + HOUR))
    assert found.verdict == "executed"
    assert found.sentence.startswith("It started on time where it was moved to")
    assert "An override by ben moves it to" in found.sentence


async def test_another_payload_is_that_of_one_slot(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule=HOURLY, payload={"n": 1})
    await _put(still_house, job, NOON + HOUR, Decision("payload", payload='{"n": 2}'))
    clock.advance(HOUR)
    await _stage(still_house)
    [claimed] = await _claim(still_house, clock.now())
    assert (claimed.payload, claimed.ready_at) == ('{"n": 2}', NOON + HOUR)
    await _end(still_house, claimed, clock.now())
    detail = await still_house.executions.get(TENANT, str(claimed.key))
    assert detail.payload == {"n": 2}
    assert detail.override is not None
    clock.advance(HOUR)
    await _stage(still_house)
    [claimed] = await _claim(still_house, clock.now())
    assert claimed.payload is None


async def test_a_slot_that_is_staged_already_is_changed_at_once(still_house: House) -> None:
    job = await still_house.create(schedule="*/10 * * * * *")
    await _put(still_house, job, NOON + 20 * SECOND)
    await _put(still_house, job, NOON + 30 * SECOND, Decision("move", NOON + 35 * SECOND))
    found = {each.key.slot: each for each in await still_house.history(job)}
    assert found[NOON + 20 * SECOND].state is State.SKIPPED
    assert found[NOON + 30 * SECOND].ready_at == NOON + 35 * SECOND
    assert found[NOON + 40 * SECOND].reason is None


async def test_a_decision_far_ahead_is_kept_and_written_when_it_comes_near(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule=HOURLY)
    slot = NOON + 10 * DAY
    assert (await _put(still_house, job, slot)).state == "waiting"
    assert await _row(still_house, job, slot) is None
    clock.advance(9 * DAY - SECOND)
    assert await still_house.overriding().run_once() == 0
    clock.advance(2 * SECOND)
    assert await still_house.overriding().run_once() == 1
    row = await _row(still_house, job, slot)
    assert row is not None
    assert row.state is State.SKIPPED
    assert await still_house.overriding().run_once() == 0
    assert await _states(still_house, job) == {slot: "applied"}


async def test_a_far_slot_that_is_moved_to_soon_is_written_at_once(still_house: House) -> None:
    job = await still_house.create(schedule="0 3 * * 1")
    slot = datetime(2026, 5, 18, 3, tzinfo=UTC)
    await _put(still_house, job, slot, Decision("move", NOON + HOUR))
    row = await _row(still_house, job, slot)
    assert row is not None
    assert row.ready_at == NOON + HOUR
    assert (await still_house.jobs.get(TENANT, str(job))).next_fire_at == NOON + HOUR


async def test_an_expired_decision_does_nothing(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule=HOURLY)
    slot = NOON + 10 * DAY
    await _put(still_house, job, slot, Decision("skip", expires_at=NOON + DAY))
    clock.advance(9 * DAY + HOUR)
    assert await still_house.overriding().run_once() == 0
    assert await _row(still_house, job, slot) is None
    assert await _states(still_house, job) == {slot: "expired"}
    found = await still_house.explain.explain(TENANT, str(job), instants.write(slot))
    assert found.verdict == "planned"
    assert "has expired" in found.sentence


async def test_a_decision_that_was_applied_outlives_its_expiry(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule=HOURLY)
    await _put(still_house, job, NOON + 3 * HOUR, Decision("skip", expires_at=NOON + HOUR))
    clock.advance(2 * HOUR)
    await still_house.jobs.patch(TENANT, str(job), {"payload": 1}, revision=None)
    row = await _row(still_house, job, NOON + 3 * HOUR)
    assert row is not None
    assert row.state is State.SKIPPED


@pytest.mark.parametrize("minutes", [0.5, 60])
async def test_a_removed_decision_leaves_the_slot_as_it_would_have_been(
    still_house: House, clock: ManualClock, minutes: float
) -> None:
    job = await still_house.create(schedule="*/30 * * * * *" if minutes < 1 else HOURLY)
    slot = NOON + minutes * MINUTE
    before = await _rows(still_house, job)
    for decision in (SKIP, Decision("move", slot + 5 * SECOND), Decision("payload", payload="1")):
        await _put(still_house, job, slot, decision)
        await still_house.overrides.remove(TENANT, str(job), slot)
        assert await _rows(still_house, job) == before
    clock.advance(slot - NOON)
    await _stage(still_house)
    [claimed] = await _claim(still_house, clock.now())
    assert (claimed.key.slot, claimed.ready_at, claimed.payload) == (slot, slot, None)


async def test_what_a_worker_has_cannot_be_decided_about_any_more(still_house: House) -> None:
    job = await still_house.create(schedule="*/10 * * * * *")
    slot = NOON + 10 * SECOND
    [claimed] = await _claim(still_house, slot)
    with pytest.raises(errors.IllegalState, match="a worker has it already"):
        await _put(still_house, job, slot)
    await _end(still_house, claimed, slot)
    with pytest.raises(errors.IllegalState, match="it has succeeded already"):
        await _put(still_house, job, slot)
    assert await _states(still_house, job) == {}


async def test_a_decision_and_a_claim_at_the_same_moment_agree(house: House) -> None:
    jobs = [await house.create(f"job-{n}", schedule="in 20s") for n in range(12)]
    slots = {job: (await house.history(job))[0].key.slot for job in jobs}

    async def decide(job: UUID) -> bool:
        try:
            await _put(house, job, slots[job])
        except errors.IllegalState:
            return False
        return True

    decided, claims = await asyncio.gather(
        asyncio.gather(*(decide(job) for job in jobs)), _claim(house, max(slots.values()))
    )
    claimed = {each.key.job_id for each in claims}
    assert {job for job, done in zip(jobs, decided, strict=True) if not done} == claimed


async def test_a_decision_and_staging_at_the_same_moment_agree(house: House) -> None:
    jobs = [await house.create(f"job-{n}", schedule="in 61s") for n in range(12)]
    ahead = {job: (await house.jobs.get(TENANT, str(job))).next_fire_at for job in jobs}

    async def stage() -> None:
        late = ManualClock(house.clock.now() + 30 * SECOND)
        while await house.staging(late).run_once():
            pass

    async def decide(job: UUID) -> None:
        slot = ahead[job]
        assert slot is not None
        await _put(house, job, slot)

    await asyncio.gather(stage(), *(decide(job) for job in jobs), stage())
    await stage()
    found = [(each.state, each.reason) for job in jobs for each in await house.history(job)]
    assert found == [(State.SKIPPED, "override")] * len(jobs)


async def test_of_two_decisions_at_once_one_holds_whole(house: House) -> None:
    job = await house.create(schedule="in 30s")
    slot = (await house.history(job))[0].key.slot
    move = Decision("move", slot + MINUTE, author="ben")
    for _ in range(5):
        await asyncio.gather(_put(house, job, slot), _put(house, job, slot, move))
        row = await _row(house, job, slot)
        [kept] = (await house.overrides.page(TENANT, str(job), cursor=None, limit=10)).items
        assert row is not None
        assert (row.state, row.ready_at) == (
            (State.SKIPPED, slot) if kept.action == "skip" else (State.PENDING, slot + MINUTE)
        )
        assert kept.author == ("ana" if kept.action == "skip" else "ben")


async def test_an_edit_and_a_decision_at_once_both_hold(house: House) -> None:
    for n in range(6):
        job = await house.create(f"job-{n}", schedule="* * * * * *")
        slot = (await house.history(job))[-5].key.slot
        await asyncio.gather(
            house.jobs.patch(TENANT, str(job), {"payload": n}, revision=None), _put(house, job, slot)
        )
        row = await _row(house, job, slot)
        assert row is not None
        assert (row.state, row.reason, row.revision) == (State.SKIPPED, "override", 2)


async def test_an_edit_keeps_the_decisions_that_fit_and_tells_the_others(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="*/30 * * * *")
    await _put(still_house, job, NOON + HOUR)
    await _put(still_house, job, NOON + 90 * MINUTE)
    await still_house.jobs.patch(TENANT, str(job), {"schedule": HOURLY}, revision=None)
    assert await _rows(still_house, job) == [(60, "skipped", "override")]
    assert await _states(still_house, job) == {NOON + HOUR: "applied", NOON + 90 * MINUTE: "not_a_slot"}
    await still_house.jobs.patch(TENANT, str(job), {"schedule": "*/15 * * * *"}, revision=None)
    assert await _rows(still_house, job) == [(60, "skipped", "override"), (90, "skipped", "override")]


async def test_a_pause_and_a_resume_keep_what_was_decided(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule="*/10 * * * * *")
    await _put(still_house, job, NOON + 40 * SECOND)
    await still_house.jobs.pause(TENANT, str(job))
    assert await _rows(still_house, job) == []
    await _put(still_house, job, NOON + 50 * SECOND, Decision("move", NOON + 2 * MINUTE))
    clock.advance(25 * SECOND)
    await still_house.jobs.resume(TENANT, str(job))
    found = {each.key.slot: each for each in await still_house.history(job)}
    assert found[NOON + 40 * SECOND].state is State.SKIPPED
    assert found[NOON + 50 * SECOND].ready_at == NOON + 2 * MINUTE
    assert found[NOON + 30 * SECOND].state is State.PENDING


async def test_what_is_fired_after_a_pause_leaves_out_what_was_to_be_skipped(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="* * * * *")
    await _put(still_house, job, NOON + 2 * MINUTE)
    await still_house.jobs.pause(TENANT, str(job))
    clock.advance(3 * MINUTE + 30 * SECOND)
    await still_house.jobs.resume(TENANT, str(job), fire_missed="all")
    assert (await _rows(still_house, job))[:3] == [
        (1, "pending", "catch_up"),
        (2, "skipped", "override"),
        (3, "pending", "catch_up"),
    ]


async def test_a_skipped_slot_uses_up_no_run(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule={"cron": HOURLY, "max_runs": 2})
    await _put(still_house, job, NOON + HOUR)
    ran: list[datetime] = []
    for _ in range(5):
        clock.advance(HOUR)
        await _stage(still_house)
        for claimed in await _claim(still_house, clock.now()):
            ran.append(claimed.key.slot)
            await _end(still_house, claimed, clock.now())
    await still_house.finishing().run_once()
    assert ran == [NOON + 2 * HOUR, NOON + 3 * HOUR]
    assert (await still_house.jobs.get(TENANT, str(job))).state == "finished"


async def test_the_last_run_passes_to_the_next_slot_when_its_own_is_skipped(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule={"cron": "*/10 * * * * *", "max_runs": 2})
    assert await _rows(still_house, job) == [(10 / 60, "pending", None), (20 / 60, "pending", None)]
    await _put(still_house, job, NOON + 20 * SECOND)
    states = [(each.key.slot - NOON, each.state) for each in await still_house.history(job)]
    assert states == [
        (10 * SECOND, State.PENDING),
        (20 * SECOND, State.SKIPPED),
        (30 * SECOND, State.PENDING),
    ]
    await still_house.overrides.remove(TENANT, str(job), NOON + 20 * SECOND)
    assert await _rows(still_house, job) == [(10 / 60, "pending", None), (20 / 60, "pending", None)]


async def test_a_slot_behind_the_last_run_cannot_be_decided_about(still_house: House) -> None:
    job = await still_house.create(schedule={"cron": HOURLY, "max_runs": 2})
    with pytest.raises(errors.Invalid, match="max_runs"):
        await _put(still_house, job, NOON + 3 * HOUR)
    await _put(still_house, job, NOON + HOUR)
    move = Decision("move", NOON + 30 * MINUTE)
    await _put(still_house, job, NOON + 3 * HOUR, move)
    await still_house.overrides.remove(TENANT, str(job), NOON + HOUR)
    # Its run is needed before, so that it must not run as well.
    assert await _row(still_house, job, NOON + 3 * HOUR) is None
    assert await _states(still_house, job) == {NOON + 3 * HOUR: "not_a_slot"}


async def test_edits_do_not_change_how_often_a_job_with_decisions_runs(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule={"cron": "*/10 * * * * *", "max_runs": 3})
    await _put(still_house, job, NOON + 20 * SECOND)
    await _put(still_house, job, NOON + 30 * SECOND, Decision("move", NOON + 5 * SECOND))
    [claimed] = await _claim(still_house, NOON + 5 * SECOND)
    assert claimed.key.slot == NOON + 30 * SECOND
    for n in range(3):
        await still_house.jobs.patch(TENANT, str(job), {"payload": n}, revision=None)
    states = [((each.key.slot - NOON) // SECOND, str(each.state)) for each in await still_house.history(job)]
    assert states == [(10, "pending"), (20, "skipped"), (30, "running"), (40, "pending")]


async def test_a_moved_slot_holds_up_no_other_until_it_is_ready(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule=HOURLY)
    await _put(still_house, job, NOON + HOUR, Decision("move", NOON + 150 * MINUTE))
    clock.advance(2 * HOUR)
    await _stage(still_house)
    assert await still_house.store.skip_blocked(["default"], clock.now()) == 0
    [claimed] = await _claim(still_house, clock.now())
    assert claimed.key.slot == NOON + 2 * HOUR
    clock.advance(30 * MINUTE)
    # It waits for the one that runs: the job allows one at a time.
    assert await _claim(still_house, clock.now()) == []
    assert await still_house.store.skip_blocked(["default"], clock.now()) == 0
    await _end(still_house, claimed, clock.now())
    [claimed] = await _claim(still_house, clock.now())
    assert claimed.key.slot == NOON + HOUR


async def test_a_slot_that_began_before_its_time_holds_up_those_before_it(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule=HOURLY)
    await _put(still_house, job, NOON + 3 * HOUR, Decision("move", NOON + 30 * MINUTE))
    clock.advance(30 * MINUTE)
    [moved] = await _claim(still_house, clock.now())
    assert moved.key.slot == NOON + 3 * HOUR
    clock.advance(30 * MINUTE)
    await _stage(still_house)
    assert await _claim(still_house, clock.now()) == []
    assert await still_house.store.skip_blocked(["default"], clock.now()) == 1
    assert await _rows(still_house, job) == [(60, "skipped", "overlap"), (180, "running", "moved")]


async def test_upcoming_marks_what_was_decided_and_follows_a_move(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule=HOURLY)
    await _put(still_house, job, NOON + HOUR)
    await _put(still_house, job, NOON + 2 * HOUR, Decision("move", NOON + 150 * MINUTE, author="ben"))
    first, second, third = await _upcoming(still_house, job)
    assert first.override is not None
    assert (first.override.action, first.override.note, first.override.author) == (
        "skip",
        "books are closed",
        "ana",
    )
    assert second.override is not None
    assert (second.effective_at, second.override.to) == (NOON + 150 * MINUTE, NOON + 150 * MINUTE)
    assert (third.override, third.effective_at) == (None, NOON + 3 * HOUR)
    clock.advance(2 * HOUR + MINUTE)
    await _stage(still_house)
    late, following, _ = await _upcoming(still_house, job)
    assert (late.slot, late.effective_at) == (NOON + 2 * HOUR, NOON + 150 * MINUTE)
    assert following.slot == NOON + 3 * HOUR


async def test_the_next_fire_minds_what_was_decided(still_house: House) -> None:
    job = await still_house.create(schedule="0 3 * * *")

    async def following() -> datetime | None:
        return (await still_house.jobs.get(TENANT, str(job))).next_fire_at

    tomorrow = datetime(2026, 5, 6, 3, tzinfo=UTC)
    await _put(still_house, job, tomorrow + DAY, Decision("payload", payload="1"))
    assert await following() == tomorrow
    await _put(still_house, job, tomorrow)
    assert await following() == tomorrow + DAY
    await _put(still_house, job, tomorrow + DAY)
    assert await following() == tomorrow + 2 * DAY
    await _put(still_house, job, tomorrow + 2 * DAY, Decision("move", tomorrow + 2 * DAY + HOUR))
    assert await following() == tomorrow + 2 * DAY + HOUR
    await _put(still_house, job, tomorrow, Decision("move", NOON + HOUR))
    assert await following() == NOON + HOUR


@pytest.mark.parametrize(
    ("fold", "first", "second"),
    [("both", True, True), ("first", True, False), ("second", False, True)],
)
async def test_the_two_passes_of_a_doubled_hour_are_decided_about_apart(
    still_house: House, clock: ManualClock, fold: str, first: bool, second: bool
) -> None:
    clock.advance(datetime(2026, 10, 24, 12, tzinfo=UTC) - NOON)
    schedule = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "dst": {"fold": fold}}
    job = await still_house.create(schedule=schedule)
    passes = [datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)]
    for slot, is_slot in zip(passes, (first, second), strict=True):
        if is_slot:
            assert (await _put(still_house, job, slot)).local.startswith("2026-10-25T02:30:00")
        else:
            with pytest.raises(errors.Invalid, match="is not a slot"):
                await _put(still_house, job, slot)
    found = [each.key.slot for each in await still_house.history(job) if each.state is State.SKIPPED]
    assert found == [slot for slot, is_slot in zip(passes, (first, second), strict=True) if is_slot]


@pytest.mark.parametrize(
    ("schedule", "slot", "part"),
    [
        (HOURLY, NOON + 30 * MINUTE, "the nearest: 2026-05-05T13:00:00Z"),
        (HOURLY, NOON + 90 * MINUTE, "2026-05-05T13:00:00Z and 2026-05-05T14:00:00Z"),
        (HOURLY, NOON - HOUR, "has passed"),
        (HOURLY, NOON, "has passed"),
        (None, NOON + HOUR, "has no schedule"),
        ("every 1h after finish", NOON + HOUR, "none is known ahead"),
        ("at 2026-05-05T13:00:00Z", NOON + 2 * HOUR, "the nearest: 2026-05-05T13:00:00Z"),
    ],
)
async def test_what_is_no_coming_slot_is_refused_with_the_nearest(
    still_house: House, schedule: Any, slot: datetime, part: str
) -> None:
    job = await still_house.create(**({} if schedule is None else {"schedule": schedule}))
    with pytest.raises(errors.Invalid, match=part):
        await _put(still_house, job, slot)
    assert await _states(still_house, job) == {}


async def test_a_finished_job_and_a_passed_slot_are_left_alone(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="in 30s")
    slot = NOON + 30 * SECOND
    await _put(still_house, job, slot)
    await still_house.finishing().run_once()
    with pytest.raises(errors.IllegalState, match="is finished"):
        await _put(still_house, job, slot)
    with pytest.raises(errors.IllegalState, match="is finished"):
        await still_house.overrides.remove(TENANT, str(job), slot)
    clock.advance(MINUTE)
    with pytest.raises(errors.IllegalState, match="has passed"):
        await still_house.overrides.remove(TENANT, str(job), slot)
    assert await _states(still_house, job) == {slot: "applied"}


async def test_a_job_has_only_so_many_decisions_ahead(
    still_house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cronwell.control.overrides.MOST_AHEAD", 2)
    job = await still_house.create(schedule=HOURLY)
    await _put(still_house, job, NOON + HOUR)
    await _put(still_house, job, NOON + 2 * HOUR)
    await _put(still_house, job, NOON + 2 * HOUR)
    with pytest.raises(errors.IllegalState, match="2 overrides ahead"):
        await _put(still_house, job, NOON + 3 * HOUR)


async def test_old_decisions_are_forgotten_with_their_history(still_house: House, clock: ManualClock) -> None:
    job = await still_house.create(schedule=HOURLY)
    await _put(still_house, job, NOON + HOUR)
    clock.advance(30 * DAY)
    await still_house.overriding().run_once()
    assert len(await _states(still_house, job)) == 1
    clock.advance(2 * HOUR)
    await still_house.overriding().run_once()
    assert await _states(still_house, job) == {}


async def test_a_trigger_is_not_refused_for_a_slot_that_was_moved_away(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule=HOURLY)
    await _put(still_house, job, NOON + HOUR, Decision("move", NOON + 90 * MINUTE))
    clock.advance(65 * MINUTE)
    await _stage(still_house)
    assert (await still_house.trigger()).job_id == job


async def test_what_began_before_its_slot_is_seen_in_the_history_of_its_job(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 3 * * *")
    slot = datetime(2026, 5, 7, 3, tzinfo=UTC)
    await _put(still_house, job, slot, Decision("move", NOON + HOUR))
    where = ExecutionFilter(job_id=job)

    async def seen() -> tuple[list[datetime], list[datetime], State | None]:
        page = await still_house.executions.page(TENANT, where, cursor=None, limit=10)
        detail = await still_house.jobs.get(TENANT, str(job))
        status = await still_house.outlook.status(TENANT, str(job))
        return (
            [each.slot for each in page.items],
            [each.slot for each in detail.latest_executions],
            status.status,
        )

    assert await seen() == ([], [], None)
    clock.advance(HOUR)
    [claimed] = await _claim(still_house, clock.now())
    await _end(still_house, claimed, clock.now())
    assert await seen() == ([slot], [slot], State.SUCCEEDED)


async def test_a_slot_that_was_moved_by_days_is_what_fires_next(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule="0 0 6 * *")
    slot = datetime(2026, 5, 6, tzinfo=UTC)
    await _put(still_house, job, slot, Decision("move", slot + 10 * DAY))
    clock.advance(5 * DAY)
    await _stage(still_house)
    assert (await still_house.jobs.get(TENANT, str(job))).next_fire_at == slot + 10 * DAY


async def test_a_decision_behind_the_last_run_is_left_waiting_without_staging_anew(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule={"cron": "0 3 * * *", "max_runs": 3})
    slots = [datetime(2026, 5, 6, 3, tzinfo=UTC) + n * DAY for n in range(4)]
    await _put(still_house, job, slots[0])
    await _put(still_house, job, slots[3], Decision("payload", payload="1"))
    await still_house.overrides.remove(TENANT, str(job), slots[0])
    assert await _states(still_house, job) == {slots[3]: "not_a_slot"}
    for slot in slots[:3]:
        clock.advance(slot - 30 * SECOND - clock.now())
        await _stage(still_house)
        assert await still_house.overriding().run_once() == 0
    assert await _row(still_house, job, slots[3]) is None


async def test_a_far_decision_of_a_job_that_counts_its_runs_is_written_when_it_comes_near(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule={"cron": "0 3 * * *", "max_runs": 3})
    slots = [datetime(2026, 5, 6, 3, tzinfo=UTC) + n * DAY for n in range(4)]
    await _put(still_house, job, slots[2])
    clock.advance(slots[1] - NOON + MINUTE)
    await _stage(still_house)
    assert await still_house.overriding().run_once() == 1
    clock.advance(2 * DAY)
    await _stage(still_house)
    found = [(each.key.slot, each.state) for each in await still_house.history(job)]
    assert (slots[2], State.SKIPPED) in found
    assert found[-1] == (slots[3], State.PENDING)


async def test_a_change_of_a_calendar_keeps_the_decisions_that_fit(still_house: House) -> None:
    await still_house.calendars.put(TENANT, "lunch", {"dates": ["2030-01-01"]})
    job = await still_house.create(schedule={"cron": "*/15 * * * * *", "exclude": "lunch"})
    await _put(still_house, job, NOON + 15 * SECOND)
    await _put(still_house, job, NOON + 45 * SECOND)
    closed = {"windows": [{"from": "2026-05-05T12:00:40Z", "to": "2026-05-05T12:00:50Z"}]}
    await still_house.calendars.put(TENANT, "lunch", closed)
    await still_house.following_calendars().run_once()
    assert await _rows(still_house, job) == [
        (0.25, "skipped", "override"),
        (0.5, "pending", None),
        (1, "pending", None),
    ]
    assert await _states(still_house, job) == {
        NOON + 15 * SECOND: "applied",
        NOON + 45 * SECOND: "not_a_slot",
    }


async def test_a_slot_that_was_moved_to_before_its_time_waits_for_what_runs_and_is_not_skipped(
    still_house: House, clock: ManualClock
) -> None:
    job = await still_house.create(schedule=HOURLY)
    await _put(still_house, job, NOON + 2 * HOUR, Decision("move", NOON + 70 * MINUTE))
    clock.advance(HOUR)
    await _stage(still_house)
    [running] = await _claim(still_house, clock.now())
    assert running.key.slot == NOON + HOUR
    clock.advance(10 * MINUTE)
    assert await _claim(still_house, clock.now()) == []
    assert await still_house.store.skip_blocked(["default"], clock.now()) == 0
    await _end(still_house, running, clock.now())
    [moved] = await _claim(still_house, clock.now())
    assert moved.key.slot == NOON + 2 * HOUR
