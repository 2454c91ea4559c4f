"""Several specs in one schedule: their union, minus exceptions, within bounds; and what came before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cronwell import errors
from cronwell.model import calendars
from cronwell.model import schedule as schedules
from cronwell.model.instants import HORIZON
from cronwell.model.kinds import CronTimes
from cronwell.model.schedule import Schedule, load, previous, slots

NOW = datetime(2027, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TICK = timedelta(microseconds=1)

SPECS: list[Any] = [
    "0 3 * * *",
    "*/30 9-17 * * MON-FRI",
    {"cron": "30 2 * * *", "timezone": "America/New_York"},
    {"cron": "0 0 13 * FRI", "days": "and"},
    {"every": "7h", "anchor": "2027-01-01T00:00:00Z"},
    {"every": "90m", "anchor": "2027-01-02T00:15:00Z"},
    {"at": ["2027-01-02T03:00:00Z", "2027-02-03T04:05:06Z"]},
    {"cron": ["0 6 * * *", "0 18 * * *"], "dst": {"gap": "shift", "fold": "second"}},
]

DENSE: list[Any] = ["* * * * *", "*/7 8-9 * * * *", {"every": "41s", "anchor": "2027-01-01T00:00:00.5Z"}]
KNOWN = {
    "weekends": calendars.parse({"rrules": ["FREQ=WEEKLY;BYDAY=SA,SU"]}),
    "christmas": calendars.parse({"dates": ["2026-12-24/2026-12-26"]}),
}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def parse(raw: Any, now: datetime = NOW) -> Schedule:
    return schedules.parse(raw, timezone=None, window=None, now=now, calendars=KNOWN)


def every_slot(raw: Any, until: datetime, now: datetime = NOW) -> set[datetime]:
    return set(slots(parse(raw), now, until, 100_000))


@given(
    st.lists(st.sampled_from(SPECS), min_size=1, max_size=4),
    st.lists(st.sampled_from(SPECS), max_size=2),
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
)
@settings(max_examples=80, deadline=None)
def test_a_union_minus_exceptions_neither_invents_nor_loses_a_slot(
    specs: list[Any], excepts: list[Any], zone: str
) -> None:
    until = NOW + timedelta(days=40)
    united = set().union(*(every_slot({"any": [spec], "timezone": zone}, until) for spec in specs))
    taken = set().union(*(every_slot({"any": [spec], "timezone": zone}, until) for spec in excepts))
    raw = {"any": specs, "timezone": zone} | ({"except": excepts} if excepts else {})
    expected = sorted(united - taken)
    if not expected:
        return  # nothing in these days; whether there is something later is another matter
    found = slots(parse(raw), NOW, until, 100_000)
    assert found == expected
    assert slots(load(parse(raw).canonical()), NOW, until, 100_000) == expected


@given(st.sampled_from(SPECS), st.sampled_from(SPECS), st.integers(0, 50_000))
@settings(max_examples=80, deadline=None)
def test_previous_is_the_last_slot_before(first: Any, second: Any, minutes: int) -> None:
    schedule = parse({"any": [first, second], "start": "2027-01-01T00:00:00Z"})
    t = NOW + timedelta(minutes=minutes)
    before = previous(schedule, t)
    if before is None:
        assert slots(schedule, at("2026-12-01T00:00Z"), t - timedelta(microseconds=1), 1) == []
        return
    assert before < t
    following = schedule.next_after(before)
    assert following is None or following >= t
    after = schedule.next_after(t)
    if after is not None:
        assert previous(schedule, after) in (before, t)
    assert schedule.next_after(before - timedelta(microseconds=1)) == before


@given(
    st.lists(st.sampled_from([*SPECS, *DENSE]), min_size=1, max_size=3),
    st.lists(st.sampled_from([*SPECS, "* 0-20 * * *"]), max_size=2),
    st.sampled_from(
        [
            {},
            {"exclude": "weekends"},
            {"only": "weekends"},
            {"exclude": "weekends", "shift": "next"},
            {"only": "weekends", "shift": "previous"},
        ]
    ),
    st.integers(1, 14_400),
    st.integers(0, 40_000),
    st.integers(-1, 1),
)
@settings(max_examples=150, deadline=None)
def test_previous_is_the_last_slot_of_a_walk_also_long_after_the_end(
    specs: list[Any], excepts: list[Any], days: dict[str, str], length: int, minutes: int, ticks: int
) -> None:
    begin = datetime(2027, 1, 1, tzinfo=UTC)
    raw = {"any": specs, "timezone": "Europe/Berlin", "start": begin.isoformat()} | days
    end = begin + timedelta(seconds=length * 13)
    raw |= {"end": end.isoformat()} | ({"except": excepts} if excepts else {})
    try:
        schedule = parse(raw, begin - HOUR)
    except errors.Invalid:
        assume(False)
        raise
    every = slots(schedule, begin - TICK, None, 1_000_000)
    t = begin + timedelta(minutes=minutes) + ticks * TICK
    assert previous(schedule, t) == max((slot for slot in every if slot < t), default=None)
    beside = every[minutes % len(every)]
    assert previous(schedule, beside + ticks * TICK) == max(
        (slot for slot in every if slot < beside + ticks * TICK), default=None
    )


@pytest.mark.parametrize(
    ("raw", "last"),
    [
        ({"cron": "* * * * *", "end": "2027-01-01T00:00:00Z"}, "2027-01-01T00:00:00Z"),
        ("* * * * * * 2026", "2026-12-31T23:59:59Z"),
        ({"any": ["* * * * * * 2026"], "except": "59 59 23 31 12 *"}, "2026-12-31T23:59:58Z"),
        ({"cron": "*/30 * * * *", "only": "christmas"}, "2026-12-26T23:30:00Z"),
    ],
)
def test_previous_does_not_walk_through_all_slots_of_a_schedule_that_has_ended(
    raw: Any, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a time long after, the first slot that is found lies decades, and a billion slots, before the last."""
    schedule = parse(raw, datetime(2026, 11, 1, tzinfo=UTC))
    asked = 0
    ask = CronTimes.next_after

    def count(self: CronTimes, t: datetime) -> datetime | None:
        nonlocal asked
        asked += 1
        assert asked < 200, "it walks"
        return ask(self, t)

    monkeypatch.setattr(CronTimes, "next_after", count)
    assert previous(schedule, at("2100-01-01T00:00:00Z")) == at(last)


def test_previous_knows_of_no_slot_beyond_the_horizon() -> None:
    assert previous(parse("* * * * *"), datetime.max.replace(tzinfo=UTC)) == at("2100-12-31T23:59:00Z")
    assert previous(parse("every 7h"), at("2200-01-01T00:00:00Z")) == previous(parse("every 7h"), HORIZON)
    assert previous(parse("* * * * *"), at("1969-01-01T00:00:00Z")) is None


def test_a_dense_schedule_leaps_over_what_is_excepted() -> None:
    """82,800 seconds in a row are left out, and the next slot is found without trying each of them."""
    schedule = parse({"cron": "* * * * * *", "except": "* * 0-22 * * *"})
    assert schedule.next_after(NOW) == at("2027-01-01T23:00:00Z")
    assert schedule.next_after(at("2027-01-01T23:59:59Z")) == at("2027-01-02T23:00:00Z")


def test_every_second_but_the_full_minute() -> None:
    schedule = parse({"cron": "* * * * * *", "except": ["* * * * *", {"cron": "30 * * * * *"}]})
    found = slots(schedule, NOW, NOW + timedelta(minutes=1), 100)
    assert len(found) == 58
    assert NOW + timedelta(seconds=30) not in found


def test_an_exception_that_lies_in_the_past_takes_nothing_away() -> None:
    schedule = parse(
        {"cron": "0 * * * *", "except": [{"at": ["2020-01-01T00:00:00Z", "2027-01-01T13:00:00Z"]}]}
    )
    assert schedule.next_after(NOW) == NOW + 2 * HOUR


def test_each_spec_may_have_a_zone_of_its_own() -> None:
    schedule = parse(
        {
            "any": ["0 9 * * *", {"cron": "0 9 * * *", "timezone": "America/New_York"}],
            "timezone": "Europe/Berlin",
        }
    )
    assert slots(schedule, NOW, None, 3) == [
        at("2027-01-01T14:00Z"),
        at("2027-01-02T08:00Z"),
        at("2027-01-02T14:00Z"),
    ]


def test_why_a_time_is_no_slot() -> None:
    schedule = parse({"cron": "0 * * * *", "except": "0 13 * * *"})
    assert schedule.refusal(NOW + HOUR) == ("except", "the schedule excepts it")
    assert schedule.refusal(NOW + 2 * HOUR) is None
    assert schedule.refusal(NOW + timedelta(minutes=5)) is None


@pytest.mark.parametrize(
    ("raw", "field", "message"),
    [
        ({"any": []}, "schedule.any", "0 specs are given"),
        ({"any": ["0 3 * * *"] * 51}, "schedule.any", "51 specs are given"),
        ({"any": ["0 3 * * *", "61 * * * *"]}, "schedule.any.1", "'61' is not a minute"),
        ({"any": ["in 5m"]}, "schedule.any.0", "`in` does not go here"),
        ({"any": [{"cron": "0 3 * * *", "window": "5m"}]}, "schedule.any.0.window", "no such field"),
        ({"any": [{"any": ["0 3 * * *"]}]}, "schedule.any.0.any", "no such field"),
        ({"any": [5]}, "schedule.any.0", "neither text nor an object"),
        ({"any": [{"cron": "0 3 * * *", "every": "5m"}]}, "schedule.any.0", "cron and every are given"),
        ({"any": ["0 3 * * *"], "days": "and"}, "schedule.days", "specs of `any`"),
        ({"cron": "0 3 * * *", "any": ["0 4 * * *"]}, "schedule", "cron and any are given"),
        ({"cron": []}, "schedule.cron", "0 are given"),
        ({"rrule": ["FREQ=DAILY"] * 51}, "schedule.rrule", "51 are given"),
        ({"cron": ["0 3 * * *", 5]}, "schedule.cron.1", "is not text"),
        ({"cron": "0 3 * * *", "days": "xor"}, "schedule.days", "is not one of them"),
        ({"cron": "0 3 * * *", "dst": "skip"}, "schedule.dst", "is not an object"),
        ({"cron": "0 3 * * *", "dst": {"gap": "jump"}}, "schedule.dst.gap", "is not one of them"),
        ({"cron": "0 3 * * *", "dst": {"gab": "skip"}}, "schedule.dst.gab", "did you mean gap"),
        ({"every": "5m", "dst": {"gap": "skip"}}, "schedule.dst", "goes with `cron` and `rrule`"),
        ({"every": "5m", "after": "start"}, "schedule.after", "is not one of them"),
        ({"every": "5m", "after": "finish", "window": "1m"}, "schedule.window", "after finish"),
        ({"cron": "0 3 * * *", "max_runs": 0}, "schedule.max_runs", "is not such a number"),
        ({"cron": "0 3 * * *", "max_runs": True}, "schedule.max_runs", "is not such a number"),
        ({"cron": "0 3 * * *", "shift": "next"}, "schedule.shift", "needs calendars"),
        ({"cron": "0 3 * * *", "exclude": "holidays"}, "schedule.exclude", "no calendar 'holidays'"),
        ({"cron": "0 3 * * *", "except": "0 3 * * *"}, "schedule.cron", "never fires"),
        ({"cron": "* * * * * *", "except": "* * * * * *"}, "schedule.cron", "never fires"),
        ({"every": "1s", "except": {"every": "1s"}}, "schedule.every", "never fires"),
        ({"at": ["2027-02-01T00:00:00Z"] * 1001}, "schedule.at", "1001 are given"),
        ({"at": ["2027-02-01T00:00:00Z", "2026-02-01T00:00:00Z"]}, "schedule.at.1", "is past"),
    ],
)
def test_what_cannot_be_combined_is_refused_by_its_field(raw: Any, field: str, message: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        parse(raw)
    assert [problem.field for problem in caught.value.problems] == [field]
    assert message in caught.value.problems[0].message


def test_of_many_specs_only_those_are_asked_whose_time_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = parse(
        {"any": [f"{n} {n % 24} * * *" for n in range(50)], "except": [f"{n} 3 * * *" for n in range(50)]}
    )
    asked = 0
    next_after = CronTimes.next_after

    def counted(self: CronTimes, t: datetime) -> datetime | None:
        nonlocal asked
        asked += 1
        return next_after(self, t)

    monkeypatch.setattr(CronTimes, "next_after", counted)
    assert len(slots(schedule, NOW, None, 500)) == 500
    assert asked < 50 + 50 + 1200, "each slot asked every spec: 50,000"


@pytest.mark.parametrize("shift", [{}, {"shift": "next"}, {"shift": "previous"}])
def test_slots_in_a_row_are_those_that_are_found_one_by_one(shift: dict[str, str]) -> None:
    days = {
        "days": calendars.parse(
            {"rrules": ["FREQ=WEEKLY;BYDAY=TU,SA,SU"], "dates": ["2026-12-20/2027-01-07"]}
        )
    }
    raw: dict[str, Any] = {
        "any": ["0 9 * * *", "30 */7 * * 1-5", "15 14 1,15 * *"],
        "except": ["0 9 * * 4"],
        "exclude": "days",
    }
    schedule = schedules.parse(raw | shift, timezone="Europe/Berlin", window=None, now=NOW, calendars=days)
    at, one_by_one = NOW, []
    for _ in range(300):
        following = schedule.next_after(at)
        assert following is not None
        at = following
        one_by_one.append(at)
    assert slots(schedule, NOW, None, 300) == one_by_one
