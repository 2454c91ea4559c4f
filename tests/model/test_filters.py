"""Schedules that follow calendars: what is left out, what is kept, and what is moved to an open day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronwell import errors
from cronwell.model import calendars
from cronwell.model import schedule as schedules
from cronwell.model.filters import Filter
from cronwell.model.schedule import Schedule, load, slots
from cronwell.model.walk import walk

NOW = datetime(2026, 12, 1, tzinfo=UTC)
DAY = timedelta(days=1)

KNOWN = {
    "german": calendars.parse({"holidays": [{"country": "DE"}]}),
    "weekends": calendars.parse({"rrules": ["FREQ=WEEKLY;BYDAY=SA,SU"]}),
    "office": calendars.parse({"hours": [{"days": "MON-FRI", "from": "09:00", "to": "17:00"}]}),
    "freeze": calendars.parse({"windows": [{"from": "2026-12-20T18:00", "to": "2027-01-03T06:00"}]}),
    "months": calendars.parse({"rrules": ["FREQ=DAILY;BYMONTH=1,3,6,9"]}),
    "inventory": calendars.parse({"dates": ["2026-12-28/2026-12-30"]}),
}


def parse(raw: dict[str, Any]) -> Schedule:
    return schedules.parse(raw, timezone=None, window=None, now=NOW, calendars=KNOWN)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def days_of(schedule: Schedule, after: datetime, count: int) -> list[str]:
    return [f"{slot.astimezone(schedule.zone):%m-%d %H:%M}" for slot in slots(schedule, after, None, count)]


def test_what_a_calendar_contains_is_left_out() -> None:
    schedule = parse({"cron": "0 9 * * *", "timezone": "Europe/Berlin", "exclude": "german"})
    assert days_of(schedule, at("2026-12-23T12:00Z"), 3) == ["12-24 09:00", "12-27 09:00", "12-28 09:00"]
    reason, why = schedule.refusal(at("2026-12-25T08:00Z")) or ("", "")
    assert reason == "calendar"
    assert "in the calendar german" in why


def test_only_what_every_calendar_contains_is_kept() -> None:
    schedule = parse(
        {"cron": "0 */4 * * *", "only": ["office"], "exclude": ["freeze"], "timezone": "Europe/Berlin"}
    )
    assert days_of(schedule, at("2026-12-18T00:00Z"), 4) == [
        "12-18 12:00", "12-18 16:00", "01-04 12:00", "01-04 16:00",
    ]  # fmt: skip


def test_a_slot_on_a_closed_day_is_moved_to_the_next_open_day() -> None:
    schedule = parse(
        {
            "cron": "0 9 25 * *",
            "timezone": "Europe/Berlin",
            "exclude": ["german", "weekends", "inventory"],
            "shift": "next",
        }
    )
    # The 25th and 26th are holidays, the 27th a Sunday, then comes the inventory.
    assert days_of(schedule, at("2026-12-01T00:00Z"), 2) == ["12-31 09:00", "01-25 09:00"]


def test_a_slot_on_a_closed_day_is_moved_to_the_previous_open_day() -> None:
    schedule = parse(
        {
            "cron": "0 9 L * *",
            "timezone": "Europe/Berlin",
            "exclude": ["german", "weekends"],
            "shift": "previous",
        }
    )
    assert days_of(schedule, at("2027-01-01T00:00Z"), 3) == ["01-29 09:00", "02-26 09:00", "03-31 09:00"]


def test_times_that_are_moved_mix_with_those_of_the_day_and_meet_as_one() -> None:
    schedule = parse({"cron": "0 9,15 * * SAT,MON", "exclude": "weekends", "shift": "next"})
    assert days_of(schedule, at("2026-12-04T12:00Z"), 3) == ["12-07 09:00", "12-07 15:00", "12-14 09:00"]
    mixed = parse({"any": ["30 9 * * MON", "0 9,15 * * SAT"], "exclude": "weekends", "shift": "next"})
    assert days_of(mixed, at("2026-12-04T12:00Z"), 4) == [
        "12-07 09:00", "12-07 09:30", "12-07 15:00", "12-14 09:00",
    ]  # fmt: skip


@given(
    st.sampled_from(
        ["0 9 * * *", "0 */6 * * *", "30 23 * * *", "0 0 1,15,L * *", "15 2 * * SUN", "0 12 * * MON-FRI"]
    ),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
    st.lists(st.sampled_from(["german", "weekends", "inventory"]), min_size=1, max_size=3, unique=True),
    st.sampled_from(["next", "previous"]),
    st.integers(0, 400),
)
@settings(max_examples=150, deadline=None)
def test_moved_slots_are_those_that_moving_each_by_itself_gives(
    expression: str, zone: str, exclude: list[str], shift: str, day: int
) -> None:
    schedule = parse({"cron": expression, "timezone": zone, "exclude": exclude, "shift": shift})
    plain = parse({"cron": expression, "timezone": zone})
    begin = NOW + day * DAY
    until = begin + 30 * DAY
    moved: set[datetime] = set()
    for slot in slots(plain, begin - 40 * DAY, until + 40 * DAY, 10_000):
        wall = slot.astimezone(schedule.zone)
        for _ in range(32):
            if not any(KNOWN[name].contains(wall.replace(hour=12)) for name in exclude):
                moved.add(wall.astimezone(UTC))
                break
            wall += DAY if shift == "next" else -DAY
    expected = sorted(slot for slot in moved if begin < slot <= until)
    assert slots(schedule, begin, until, 10_000) == expected


@given(
    st.sampled_from(["0 9 * * *", "0 */6 * * *", "30 23 * * MON-FRI", "0 0 1,15,L * *"]),
    st.sampled_from(
        [
            {"exclude": ["weekends", "inventory"]},
            {"only": "weekends"},
            {"only": "months"},
            {"exclude": "months"},
        ]
    ),
    st.sampled_from(["next", "previous"]),
    st.integers(0, 60),
    st.integers(1, 60 * 24),
)
@settings(max_examples=100, deadline=None)
def test_a_walk_that_ends_early_has_all_slots_that_are_moved_to_before_its_end(
    expression: str, days: dict[str, Any], shift: str, day: int, hours: int
) -> None:
    schedule = parse({"cron": expression, "timezone": "Europe/Berlin", "shift": shift} | days)
    begin = NOW + day * DAY
    before = begin + timedelta(hours=hours)
    found = list(walk(schedule, begin, before))
    assert found == [slot for slot in slots(schedule, begin, before, 10_000) if slot < before]


@given(
    st.sampled_from(["*/7 * * * *", "0 * * * *", "0 9 * * *", "*/30 8-18 * * MON-SAT"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
    st.lists(st.sampled_from(sorted(KNOWN)), max_size=2, unique=True),
    st.lists(st.sampled_from(["office", "weekends"]), max_size=1),
    st.integers(0, 200),
)
@settings(max_examples=100, deadline=None)
def test_a_filter_neither_invents_nor_loses_a_slot(
    expression: str, zone: str, exclude: list[str], only: list[str], day: int
) -> None:
    if not exclude and not only:
        return
    raw: dict[str, Any] = {"cron": expression, "timezone": zone}
    plain = parse(raw)
    raw |= ({"exclude": exclude} if exclude else {}) | ({"only": only} if only else {})
    begin = NOW + day * DAY
    until = begin + 12 * DAY
    expected = [
        slot
        for slot in slots(plain, begin, until, 10_000)
        if not any(KNOWN[name].contains(slot.astimezone(plain.zone)) for name in exclude)
        and all(KNOWN[name].contains(slot.astimezone(plain.zone)) for name in only)
    ]
    try:
        schedule = parse(raw)
    except errors.Invalid:
        assert not expected
        return
    assert slots(schedule, begin, until, 10_000) == expected
    assert load(schedule.canonical()).canonical() == schedule.canonical()
    assert slots(load(schedule.canonical()), begin, until, 10_000) == expected


def test_a_dense_schedule_leaps_over_a_closed_day() -> None:
    schedule = parse({"cron": "* * * * * *", "exclude": "freeze"})
    assert schedule.next_after(at("2026-12-20T17:59:59Z")) == at("2027-01-03T06:00Z")


@pytest.mark.parametrize("closed", [{"dates": ["1970-01-01/2100-12-31"]}, {"rrules": ["FREQ=DAILY"]}])
def test_a_schedule_has_no_slot_beyond_the_days_that_a_calendar_can_close(closed: dict[str, Any]) -> None:
    known = {"closed": calendars.parse(closed)}
    raw = {"cron": "49 9 1 * *", "exclude": "closed"}
    with pytest.raises(errors.Invalid, match="never fires"):
        schedules.parse(raw, timezone=None, window=None, now=NOW, calendars=known)


@pytest.mark.parametrize(
    "closed",
    [
        {"rrules": [{"rule": "FREQ=DAILY;INTERVAL=2", "start": f"2026-01-0{day}"} for day in (1, 2)]},
        {"rrules": [f"FREQ=MONTHLY;BYMONTH={n};BYMONTHDAY={','.join(map(str, range(1, 32)))}" for n in range(1, 13)]},
        {"hours": [{"days": day, "from": f"{h:02d}:00", "to": f"{h + 4:02d}:00"} for day in ("MON-WED", "THU-SUN") for h in range(0, 24, 4)]},
        {"holidays": [{"country": "DE"}, {"country": "FR"}], "rrules": ["FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR,SA,SU"]},
    ],
)  # fmt: skip
def test_a_calendar_of_many_parts_that_leaves_nothing_is_told_in_one_leap(
    monkeypatch: pytest.MonkeyPatch, closed: dict[str, Any]
) -> None:
    leaps: list[datetime] = []
    left_out_until = Filter.left_out_until

    def counted(self: Filter, slot: datetime, zone: tzinfo) -> datetime | None:
        leaps.append(slot)
        return left_out_until(self, slot, zone)

    monkeypatch.setattr(Filter, "left_out_until", counted)
    known = {"closed": calendars.parse(closed)}
    with pytest.raises(errors.Invalid, match="its calendars leave it no slot"):
        schedules.parse(
            {"cron": "*/5 * * * *", "exclude": "closed"}, timezone=None, window=None, now=NOW, calendars=known
        )
    assert len(leaps) == 1


def test_each_day_is_looked_at_once_where_slots_find_no_open_day(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[date] = []
    is_open = Filter.is_open

    def counted(self: Filter, day: date) -> bool:
        asked.append(day)
        return is_open(self, day)

    monkeypatch.setattr(Filter, "is_open", counted)
    known = {"far": calendars.parse({"dates": ["2100-12-31"]})}
    raw = {"cron": "0 9 * * *", "only": "far", "shift": "previous"}
    with pytest.raises(errors.Invalid, match="never fires"):
        schedules.parse(raw, timezone=None, window=None, now=NOW, calendars=known)
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize(
    ("raw", "field", "message"),
    [
        ({"cron": "0 9 * * *", "exclude": "germn"}, "schedule.exclude", "did you mean german"),
        ({"cron": "0 9 * * *", "exclude": ["german", "x"]}, "schedule.exclude.1", "no calendar 'x'"),
        ({"cron": "0 9 * * *", "exclude": [5]}, "schedule.exclude.0", "is not text"),
        ({"cron": "0 9 * * *", "exclude": ["german"] * 11}, "schedule.exclude", "11 calendars"),
        ({"cron": "0 9 * * *", "only": "office", "shift": "next"}, "schedule.shift", "whole days"),
        (
            {"cron": "0 9 * * *", "exclude": "german", "shift": "later"},
            "schedule.shift",
            "is not one of them",
        ),
        (
            {"cron": "*/5 * * * *", "exclude": "german", "shift": "next"},
            "schedule.shift",
            "more than 48 slots a day",
        ),
        ({"cron": "0 3 * * *", "only": "office"}, "schedule.cron", "never fires"),
        ({"cron": "0 3 * * SAT", "exclude": "weekends"}, "schedule.cron", "never fires"),
    ],
)
def test_what_cannot_be_filtered_is_refused(raw: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        parse(raw)
    assert [problem.field for problem in caught.value.problems] == [field]
    assert message in caught.value.problems[0].message
