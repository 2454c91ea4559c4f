"""When what a calendar contains may change, and how long it stays."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronwell.model import calendars, zones
from tests.model.wall import BERLIN, DAYS, EVERYTHING, MINUTE, NEW_YORK, berlin

# Where clocks change, near the change: an hour, half an hour, over midnight, a whole day.
CHANGES = [
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Africa/Cairo", "2026-04-24"),
    ("Africa/Cairo", "2026-10-30"),
    ("America/Sao_Paulo", "2018-02-18"),
    ("America/Havana", "2026-11-01"),
    ("Pacific/Apia", "2011-12-30"),
    ("Asia/Kathmandu", "2026-06-15"),
    ("UTC", "2026-06-15"),
]


@st.composite
def near(draw: st.DrawFn) -> tuple[dict[str, Any], tzinfo, datetime]:
    """Draw a calendar with something on most days around a clock change, its zone, and a moment a little before."""
    name, text = draw(st.sampled_from(CHANGES))
    change, zone = date.fromisoformat(text), zones.find(name)
    day = st.integers(-3, 3).map(lambda offset: str(change + timedelta(offset)))
    clock = st.one_of(st.integers(0, 4 * 60), st.integers(0, 1439)).map(
        lambda minute: f"{minute // 60:02d}:{minute % 60:02d}"
    )
    local = st.builds("{}T{}".format, day, clock)
    fixed = st.builds("{}T{}:00Z".format, day, clock)
    raw: dict[str, Any] = {"dates": draw(st.lists(day, max_size=2))}
    raw["hours"] = [
        {
            "days": ",".join(draw(st.lists(st.sampled_from(DAYS), min_size=1, unique=True))),
            "from": begin,
            "to": end,
        }
        for begin, end in [sorted((draw(clock), draw(clock))) for _ in range(draw(st.integers(0, 2)))]
        if begin < end
    ]
    bounds = [
        sorted((draw(each), draw(each)))
        for each in draw(st.lists(st.sampled_from([local, fixed]), max_size=2))
    ]
    raw["windows"] = [{"from": begin, "to": end} for begin, end in bounds if begin < end]
    if draw(st.booleans()):
        raw["rrules"] = [
            f"FREQ=DAILY;BYDAY={draw(st.sampled_from(['MO', 'SU', 'SA,SU', 'MO,TU,WE,TH,FR,SA,SU']))}"
        ]
    if not any(raw.values()):
        raw["dates"] = [text]
    begin = datetime.fromisoformat(f"{text}T00:00Z") - timedelta(minutes=draw(st.integers(0, 36 * 60)))
    return raw, zone, begin


@settings(deadline=None, max_examples=100)
@given(near())
def test_a_calendar_contains_what_a_simple_reading_of_it_contains_and_no_change_is_skipped(
    case: tuple[dict[str, Any], tzinfo, datetime],
) -> None:
    raw, zone, moment = case
    calendar = calendars.parse(raw)
    # Nothing is known of the first minute: it counts as a change.
    change: datetime | None = moment
    held = False
    for _ in range(48 * 60):
        wall = moment.astimezone(zone)
        contains = calendar.contains(wall)
        assert contains == _contains(raw, wall), wall
        if moment == change:
            found = calendar.next_change(wall)
            assert found is None or found.tzinfo is zone
            change, held = (None if found is None else found.astimezone(UTC)), contains
        assert contains == held, f"it changed at {wall}, before {change}"
        assert change is None or change > moment, f"a full minute was missed at {wall}"
        moment += MINUTE


@settings(deadline=None, max_examples=100)
@given(near())
def test_an_answer_stays_for_as_long_as_is_told(case: tuple[dict[str, Any], tzinfo, datetime]) -> None:
    raw, zone, moment = case
    calendar = calendars.parse(raw)
    told: datetime | None = moment
    held = False
    for _ in range(48 * 60):
        wall = moment.astimezone(zone)
        if told is not None and moment >= told:
            told, held = calendar.stays_until(wall), calendar.contains(wall)
            assert told is None or told > moment
        assert calendar.contains(wall) == held, f"it changed at {wall}, before {told}"
        moment += MINUTE


def test_what_touches_stays_as_one_stretch() -> None:
    calendar = calendars.parse(
        {
            "dates": ["2026-12-24"],
            "rrules": [
                "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=25",
                {"rule": "FREQ=DAILY;COUNT=2", "start": "2026-12-26"},
            ],
            "windows": [{"from": "2026-12-27T08:00", "to": "2026-12-28T10:00"}],
            "hours": [{"days": day, "from": "09:00", "to": "24:00"} for day in ("MON", "TUE")]
            + [{"days": "TUE", "from": "00:00", "to": "09:00"}],
        }
    )
    begin = berlin("2026-12-22T23:59")
    shown = []
    for _ in range(6):
        shown.append((f"{begin:%a %d %H:%M}", calendar.contains(begin)))
        begin = (calendar.stays_until(begin) or begin).astimezone(BERLIN)
    assert shown == [
        ("Tue 22 23:59", True), ("Wed 23 00:00", False), ("Thu 24 00:00", True), ("Mon 28 00:00", True),
        ("Mon 28 10:00", True), ("Wed 30 00:00", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "raw",
    [
        {"rrules": ["FREQ=DAILY"]},
        {"rrules": [{"rule": "FREQ=DAILY;INTERVAL=2", "start": f"2026-01-0{day}"} for day in (1, 2)]},
        {"dates": ["1970-01-01/2100-12-31"], "holidays": [{"country": "DE"}]},
        {"hours": [{"days": "MON-SUN", "from": "00:00", "to": "12:00"}, {"days": "MON-SUN", "from": "12:00", "to": "24:00"}]},
    ],
)  # fmt: skip
def test_a_calendar_that_has_every_time_stays_for_good(raw: dict[str, Any]) -> None:
    assert calendars.parse(raw).stays_until(berlin("2026-12-24T12:00")) is None


def _contains(raw: dict[str, Any], wall: datetime) -> bool:
    """Read a calendar in the plainest way; its rules are of weekdays."""
    face = f"{wall:%H:%M}"
    weekdays = {day for rule in raw.get("rrules", []) for day in rule.split("=")[-1].split(",")}
    return (
        f"{wall:%Y-%m-%d}" in raw["dates"]
        or f"{wall:%a}".upper()[:2] in weekdays
        or any(
            f"{wall:%a}".upper() in each["days"] and each["from"] <= face < each["to"]
            for each in raw["hours"]
        )
        or any(_is_between(each["from"], each["to"], wall) for each in raw["windows"])
    )


def _is_between(begin: str, end: str, wall: datetime) -> bool:
    first, last = min(_readings(begin, wall.tzinfo)), max(_readings(end, wall.tzinfo))
    return first <= wall.timestamp() < last


@lru_cache(maxsize=1000)
def _readings(text: str, zone: tzinfo | None) -> list[float]:
    """Return each instant at which the clock shows this time, or the one at which it jumps over it."""
    bound = datetime.fromisoformat(text)
    if bound.tzinfo is not None:
        return [bound.timestamp()]
    around = [bound.replace(tzinfo=UTC) + MINUTE * offset for offset in range(-27 * 60, 27 * 60)]
    faces = [moment.astimezone(zone).replace(tzinfo=None) for moment in around]
    shown = [moment.timestamp() for moment, face in zip(around, faces, strict=True) if face == bound]
    return shown or [
        next(moment.timestamp() for moment, face in zip(around, faces, strict=True) if face > bound)
    ]


def test_a_dense_search_leaps_over_a_whole_day_or_window() -> None:
    calendar = calendars.parse(
        {
            "dates": ["2026-12-24/2026-12-26"],
            "windows": [{"from": "2026-12-27T08:00", "to": "2026-12-30T10:00"}],
        }
    )
    leaps = [berlin("2026-12-20T12:00")]
    while (change := calendar.next_change(leaps[-1])) is not None:
        leaps.append(change)
    assert [f"{leap:%d %H:%M}" for leap in leaps[1:]] == ["24 00:00", "27 00:00", "27 08:00", "30 10:00"]


def test_hours_that_come_twice_change_in_both_passes() -> None:
    # 2026-10-25 in Berlin: at 03:00 the clock goes back to 02:00, which may be a change.
    calendar = calendars.parse({"hours": [{"days": "SUN", "from": "02:30", "to": "02:45"}]})
    leaps = [berlin("2026-10-25T01:00")]
    for _ in range(6):
        change = calendar.next_change(leaps[-1])
        assert change is not None
        leaps.append(change)
    assert [(f"{leap:%m-%d %H:%M}", leap.fold) for leap in leaps[1:]] == [
        ("10-25 02:30", 0),
        ("10-25 02:45", 0),
        ("10-25 02:00", 1),
        ("10-25 02:30", 1),
        ("10-25 02:45", 1),
        ("11-01 02:30", 0),
    ]


def test_holidays_are_leapt_over_and_to() -> None:
    calendar = calendars.parse({"holidays": [{"country": "DE"}]})
    assert calendar.next_change(berlin("2026-12-24T12:00")) == berlin("2026-12-25T00:00")
    assert calendar.next_change(berlin("2026-12-27T12:00")) == berlin("2027-01-01T00:00")


def test_a_rule_of_every_day_is_not_followed_to_the_end_of_time() -> None:
    calendar = calendars.parse({"rrules": ["FREQ=DAILY"]})
    change = calendar.next_change(berlin("2026-12-24T12:00"))
    assert change is not None
    assert timedelta(days=30) < change - berlin("2026-12-24T12:00") < timedelta(days=100)


def test_nothing_changes_after_the_last_date_nor_after_the_horizon() -> None:
    assert calendars.parse({"dates": ["2026-12-24"]}).next_change(berlin("2026-12-25T00:00")) is None
    for raw in (
        {"hours": EVERYTHING["hours"]},
        {"rrules": ["FREQ=WEEKLY;BYDAY=SU"]},
        {"holidays": [{"country": "DE"}]},
    ):
        assert calendars.parse(raw).next_change(berlin("2100-12-31T23:30")) is None
    # In New York it is still the last evening of 2100 when the horizon comes.
    evening = calendars.parse({"hours": [{"days": "MON-SUN", "from": "20:00", "to": "21:00"}]})
    assert evening.next_change(datetime(2100, 12, 31, 18, tzinfo=NEW_YORK)) is None
    assert evening.next_change(datetime(2100, 12, 30, 18, tzinfo=NEW_YORK)) is not None
