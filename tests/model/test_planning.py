"""Planning: each slot between cursor and horizon gets exactly one verdict, and the right one."""

from __future__ import annotations

import bisect
import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cronwell.model import planning
from cronwell.model.execution import State
from cronwell.model.job import JobSpec
from cronwell.model.planning import (
    COUNTED,
    LONGEST_DEFAULT_WINDOW,
    ROWS_FOR_MISSED,
    SLOTS_AT_ONCE,
    Plan,
    SkippedRange,
    Staging,
    load_plan,
    plan_of,
    plan_slots,
)
from cronwell.model.schedule import Schedule, effective_at, parse, slots

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
GRACE = timedelta(seconds=10)
LOOK_AHEAD = timedelta(seconds=60)
JOB = UUID("0189abcd-0000-7000-8000-00000000000f")

TEXTS = [
    "* * * * *",
    "*/7 * * * * *",
    "0 3 * * *",
    "30 2 * * *",
    "0 9 1 1 *",
    "0 0 29 2 *",
    "*/5 9-17 * * MON-FRI",
    "every 1s",
    "every 97s",
    "every 25h",
    "at 2026-05-05T12:00:30Z",
]
texts = st.sampled_from(TEXTS)
zones = st.sampled_from(["UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe"])


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    text = draw(texts)
    windows = ["30s", "1h"] if text.startswith("at ") else ["30s", "1h", "50%"]
    return Plan(
        schedule=schedule(text, draw(zones), window=draw(st.none() | st.sampled_from(windows))),
        pool=draw(st.sampled_from(["default", "gpu"])),
        priority=draw(st.integers(0, 2)),
        running_limit=draw(st.none() | st.integers(1, 5)),
        catch_up=draw(st.sampled_from(["none", "last", "all"])),
        catch_up_window=draw(
            st.none() | st.just(timedelta(days=1)) | st.timedeltas(timedelta(), timedelta(days=2))
        ),
        catch_up_limit=draw(st.integers(1, 300)),
        queueing=draw(st.sampled_from([None, "queue_one", "queue_all", "cancel_running"])),
        group=draw(st.none() | st.tuples(st.sampled_from(["db", "web"]), st.integers(1, 9))),
        is_followed=draw(st.booleans()),
    )


def schedule(text: str, zone: str = "UTC", window: str | None = None) -> Schedule:
    # Read long before any time that the tests plan at, so that there is always a slot to begin with.
    return parse(text, timezone=zone, window=window, now=datetime(2025, 1, 1, tzinfo=UTC))


@dataclass(frozen=True)
class Case:
    """A plan with a cursor that stands on one of its slots, and the time at which it is followed."""

    plan: Plan
    cursor: datetime
    now: datetime
    until: datetime

    def staging(self) -> Staging:
        return plan_slots(self.plan, JOB, self.cursor, now=self.now, until=self.until, grace=GRACE)

    def slots(self, until: datetime | None = None) -> list[datetime]:
        return slots(self.plan.schedule, self.cursor - TICK, until or self.until, 100_000)

    def missed(self) -> list[datetime]:
        return self.slots(self.now - GRACE)


@st.composite
def cases(draw: st.DrawFn, *, longest_outage: timedelta = timedelta(hours=3)) -> Case:
    plan = draw(plans())
    begun = NOON - draw(st.timedeltas(timedelta(), longest_outage))
    cursor = plan.schedule.next_after(begun - TICK)
    assume(cursor is not None)
    assert cursor is not None
    return Case(plan, cursor, NOON, NOON + draw(st.timedeltas(timedelta(), timedelta(minutes=3))))


def slots_in(case: Case, ranges: list[SkippedRange]) -> list[datetime]:
    found: list[datetime] = []
    for each in ranges:
        found += slots(case.plan.schedule, each.from_slot - TICK, each.to_slot, 100_000)
    return found


@settings(max_examples=120)
@given(cases())
def test_every_slot_up_to_the_new_cursor_has_exactly_one_verdict(case: Case) -> None:
    staging = case.staging()
    verdicts = slots_in(case, staging.ranges) + [each.slot for each in staging.planned]
    assert verdicts == sorted(set(verdicts)), "each slot once, in order, and none both in a range and a row"
    expected = case.slots()
    assert verdicts == expected[: len(verdicts)]
    following = (
        expected[len(verdicts)]
        if len(verdicts) < len(expected)
        else case.plan.schedule.next_after(case.until)
    )
    assert staging.next_slot == following, "the cursor stands on the first slot without a verdict"


@settings(max_examples=120)
@given(cases())
def test_missed_slots_run_as_the_policy_says_and_all_others_say_why_not(case: Case) -> None:
    plan, missed = case.plan, case.missed()
    staging = case.staging()
    judged = [each for each in staging.planned if each.slot <= case.now - GRACE]
    wanted = {"none": 0, "last": 1, "all": plan.catch_up_limit}[plan.catch_up]
    oldest = NOON - _window(plan, missed[-1]) if missed else NOON
    run = [slot for slot in missed[max(0, len(missed) - wanted) :] if slot >= oldest]
    assert [each.slot for each in judged if each.state is State.PENDING] == run
    assert all(each.ready_at == case.now for each in judged if each.state is State.PENDING)
    skipped = [each for each in judged if each.state is not State.PENDING]
    assert all((each.state, each.reason) == (State.SKIPPED, "catch_up") for each in skipped)
    assert all(each.reason == "catch_up" for each in staging.ranges)


def _window(plan: Plan, last: datetime) -> timedelta:
    if plan.catch_up_window is not None:
        return plan.catch_up_window
    if plan.schedule.is_one_off:
        return timedelta(days=36_525)
    following = plan.schedule.next_after(last)
    if plan.catch_up == "all" or following is None:
        return LONGEST_DEFAULT_WINDOW
    return min(following - last, LONGEST_DEFAULT_WINDOW)


@given(cases(longest_outage=GRACE))
def test_slots_ahead_are_staged_for_their_own_instants(case: Case) -> None:
    on_time = [each for each in case.staging().planned if each.slot > case.now - GRACE]
    assert all(each.state is State.PENDING and each.reason is None for each in on_time)
    assert [each.ready_at for each in on_time] == [
        effective_at(case.plan.schedule, JOB, each.slot) for each in on_time
    ]
    assert all(each.ready_at >= each.slot for each in on_time)


@given(cases(longest_outage=timedelta()), st.timedeltas(timedelta(), timedelta(minutes=3)))
def test_two_steps_are_one_step_when_nothing_is_missed(case: Case, first: timedelta) -> None:
    whole = case.staging()
    assume(len(whole.planned) < SLOTS_AT_ONCE)
    one = dataclasses.replace(case, until=min(case.until, NOON + first)).staging()
    planned = one.planned
    if one.next_slot is not None:
        two = dataclasses.replace(case, cursor=one.next_slot).staging()
        planned = planned + two.planned
        assert two.next_slot == whole.next_slot
    assert planned == whole.planned


@given(plans())
def test_a_plan_is_read_back_from_its_text(plan: Plan) -> None:
    assert load_plan(plan.canonical()) == plan
    assert load_plan(plan.canonical()).canonical() == plan.canonical()


@given(plans(), plans())
def test_two_plans_share_a_text_only_when_they_are_the_same(one: Plan, other: Plan) -> None:
    assert (one.canonical() == other.canonical()) == (one == other)


def test_a_common_plan_is_a_short_text_without_its_defaults() -> None:
    assert Plan(schedule("0 3 * * *")).canonical() == '{"schedule":{"cron":"0 3 * * *","timezone":"UTC"}}'


def test_a_definition_is_compiled_with_everything_that_staging_needs() -> None:
    spec = JobSpec.model_validate(
        {
            "name": "x",
            "target": {"handler": {"name": "work"}},
            "pool": "gpu",
            "priority": "low",
            "max_running": 3,
            "catch_up": "all",
            "catch_up_window": "2h",
            "catch_up_limit": 7,
        }
    )
    every_minute = schedule("* * * * *")
    assert plan_of(spec, every_minute) == Plan(every_minute, "gpu", 2, 3, "all", 2 * HOUR, 7)


def missed_by(plan: Plan, length: timedelta) -> Staging:
    """What is planned at noon when the last slot that was staged lies `length` before it."""
    cursor = plan.schedule.next_after(NOON - length - TICK)
    assert cursor is not None
    return Case(plan, cursor, NOON, NOON + LOOK_AHEAD).staging()


@pytest.mark.parametrize("missed", [1, 3, 60, 80, 99, 100, 101, 150, 400])
def test_all_missed_slots_are_caught_up_to_the_limit(missed: int) -> None:
    # The grace leaves the slot at noon itself on time.
    plan = Plan(schedule("* * * * *"), catch_up="all", catch_up_window=timedelta(days=1), catch_up_limit=100)
    staging = missed_by(plan, missed * MINUTE)
    run = [each.slot for each in staging.planned if each.ready_at == NOON and each.slot < NOON]
    assert run == [NOON - n * MINUTE for n in range(min(missed, 100), 0, -1)]


def test_a_slot_within_the_grace_is_on_time() -> None:
    staging = missed_by(Plan(schedule("every 1s"), catch_up="none"), timedelta(seconds=20))
    states = {(NOON - each.slot) // SECOND: each.state for each in staging.planned}
    assert {state for age, state in states.items() if age >= 10} == {State.SKIPPED}
    assert {state for age, state in states.items() if age < 10} == {State.PENDING}


def test_a_missed_one_off_runs_however_late() -> None:
    plan = Plan(schedule("at 2026-01-01T00:00:00Z"))
    staging = missed_by(plan, timedelta(days=200))
    assert [(each.state, each.ready_at) for each in staging.planned] == [(State.PENDING, NOON)]
    assert staging.next_slot is None


def test_the_last_missed_slot_is_not_run_when_the_next_is_as_near() -> None:
    # Missed at 03:00, found at noon: nine hours late is no longer the same run.
    [skipped] = missed_by(Plan(schedule("0 3 * * *")), timedelta(hours=12)).planned
    assert (skipped.state, skipped.reason) == (State.SKIPPED, "catch_up")


def test_many_missed_slots_are_one_range_with_their_number() -> None:
    staging = missed_by(Plan(schedule("every 1s")), timedelta(hours=1))
    [skipped] = staging.ranges
    rows = [each for each in staging.planned if each.slot <= NOON - GRACE]
    assert len(rows) == ROWS_FOR_MISSED
    assert skipped.slots == 3600 - 10 + 1 - ROWS_FOR_MISSED
    assert skipped.to_slot == rows[0].slot - SECOND


def test_a_very_long_range_goes_without_its_number_but_reaches_to_the_first_row() -> None:
    staging = missed_by(Plan(schedule("every 1s")), timedelta(days=1))
    [skipped] = staging.ranges
    assert timedelta(days=1) // SECOND > COUNTED
    assert skipped.slots is None
    assert skipped.from_slot == NOON - timedelta(days=1)
    assert skipped.to_slot == staging.planned[0].slot - TICK


def test_more_slots_than_fit_one_pass_wait_for_the_next() -> None:
    plan = Plan(schedule("every 1s"))
    case = Case(plan, NOON, NOON, NOON + timedelta(hours=1))
    staging = case.staging()
    assert len(staging.planned) == SLOTS_AT_ONCE
    assert staging.next_slot == NOON + SLOTS_AT_ONCE * SECOND


def test_a_dense_stretch_behind_a_long_gap_is_found_to_its_end() -> None:
    # Every second of the fifth of each month: looking back from noon meets nothing, then a whole day at once.
    plan = Plan(schedule("* * * 4 * *"), catch_up="none")
    cursor = datetime(2026, 4, 4, tzinfo=UTC)
    staging = Case(plan, cursor, NOON, NOON + LOOK_AHEAD).staging()
    end = datetime(2026, 5, 4, 23, 59, 59, tzinfo=UTC)
    assert [each.slot for each in staging.planned] == [
        end - n * SECOND for n in range(ROWS_FOR_MISSED - 1, -1, -1)
    ]
    assert staging.next_slot == datetime(2026, 6, 4, tzinfo=UTC)


@pytest.mark.parametrize("outage", [timedelta(minutes=30), timedelta(days=2), timedelta(days=300)])
@pytest.mark.parametrize("catch_up", ["none", "last", "all"])
def test_a_cursor_that_a_change_of_a_zones_rules_took_off_its_slot_is_no_trouble(
    outage: timedelta, catch_up: planning.CatchUp
) -> None:
    plan = Plan(schedule("0 * * * *"), catch_up=catch_up)
    astray = NOON - outage + timedelta(minutes=13)
    staging = Case(plan, astray, NOON, NOON + LOOK_AHEAD).staging()
    assert staging.next_slot is not None
    covered = [each.from_slot for each in staging.ranges] + [each.slot for each in staging.planned]
    assert all(each.minute == 0 for each in covered)
    assert covered == sorted(set(covered))


def test_what_a_herd_missed_is_searched_and_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = 0

    def counting(*given: Any) -> list[datetime]:
        nonlocal searches
        searches += 1
        return slots(*given)

    monkeypatch.setattr(planning, "slots", counting)
    plan = Plan(schedule("* * * * *", "Europe/Berlin"))
    stagings = [
        Case(plan, NOON - timedelta(days=3, minutes=7), NOON, NOON + LOOK_AHEAD).staging() for _ in range(20)
    ]
    assert 0 < searches < 20
    assert all(each == stagings[0] for each in stagings)


@given(skipped=st.sets(st.integers(0, 40)), max_runs=st.integers(1, 12), data=st.data())
def test_slots_that_are_left_out_use_up_no_run(skipped: set[int], max_runs: int, data: st.DataObject) -> None:
    plan = Plan(schedule("* * * * *"))
    left_out = {NOON + n * MINUTE for n in skipped}
    cursor: datetime | None = NOON
    runs_left: int | None = max_runs
    found: list[datetime] = []
    now = NOON - MINUTE
    while cursor is not None and now < NOON + 3 * HOUR:
        staging = plan_slots(
            plan,
            JOB,
            cursor,
            now=now,
            until=now + LOOK_AHEAD,
            grace=GRACE,
            runs_left=runs_left,
            left_out=left_out,
        )
        found += [each.slot for each in staging.planned if each.state is State.PENDING]
        cursor, runs_left = staging.next_slot, staging.runs_left
        now += data.draw(st.integers(1, 55)) * SECOND
    expected = [
        slot for slot in slots(plan.schedule, NOON - TICK, None, 41 + max_runs) if slot not in left_out
    ]
    assert found == expected[:max_runs]
    assert (cursor, runs_left) == (None, 0)


def test_following_a_plan_through_days_leaves_no_gap_and_no_double() -> None:
    plan = Plan(schedule("*/20 * * * *", "Europe/Berlin"))
    began = datetime(2026, 3, 28, 12, tzinfo=UTC)
    cursor = plan.schedule.next_after(began)
    found: list[datetime] = []
    now = began
    while now < began + timedelta(days=2):
        assert cursor is not None
        if cursor <= now + LOOK_AHEAD:
            staging = plan_slots(plan, JOB, cursor, now=now, until=now + LOOK_AHEAD, grace=GRACE)
            found += [each.slot for each in staging.planned]
            cursor = staging.next_slot
        now += timedelta(seconds=47)
    expected = slots(plan.schedule, began, now, 10_000)
    assert found == expected[: bisect.bisect(expected, found[-1])]
    assert all(b - a == timedelta(minutes=20) for a, b in pairwise(found))
