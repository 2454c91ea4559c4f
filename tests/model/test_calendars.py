"""Calendars: what belongs to them and why, when that changes, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronwell import errors
from cronwell.model import calendars, public_holidays, zones
from cronwell.model.calendars import Calendar

BERLIN = zones.find("Europe/Berlin")
NEW_YORK = zones.find("America/New_York")
MINUTE = timedelta(minutes=1)
DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")

EVERYTHING: dict[str, Any] = {
    "dates": ["2026-12-24", "2026-12-28/2027-01-02"],
    "rrules": [
        "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=31",
        {"rule": "FREQ=WEEKLY;INTERVAL=2", "start": "2026-01-09"},
    ],
    "holidays": [{"country": "DE", "region": "BY"}, {"country": "US"}],
    "hours": [
        {"days": "MON-FRI", "from": "09:00", "to": "17:30"},
        {"days": "SAT,SUN", "from": "00:00", "to": "24:00"},
    ],
    "windows": [
        {"from": "2026-12-20T18:00", "to": "2027-01-03T06:00"},
        {"from": "2026-06-01T10:00:30+02:00", "to": "2026-06-01T09:00:00Z"},
    ],
    "description": "when nobody is there, „Betriebsruhe“",
}


def berlin(text: str, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold)


def why(raw: Mapping[str, object], text: str) -> str | None:
    return calendars.parse(raw).why(berlin(text))


def test_a_date_is_a_whole_day_by_the_clock_of_the_zone_that_is_asked() -> None:
    calendar = calendars.parse({"dates": ["2026-12-24"]})
    assert calendar.why(berlin("2026-12-24T00:00")) == "2026-12-24"
    assert calendar.why(berlin("2026-12-24T23:59:59.999999")) == "2026-12-24"
    assert calendar.why(berlin("2026-12-23T23:59:59")) is None
    assert calendar.why(berlin("2026-12-25T00:00")) is None
    # The same instant, an afternoon in Berlin and still the day before in Honolulu.
    instant = berlin("2026-12-24T05:00")
    assert calendar.contains(instant)
    assert not calendar.contains(instant.astimezone(zones.find("Pacific/Honolulu")))


def test_a_range_of_days_holds_both_its_ends() -> None:
    raw = {"dates": ["2026-12-28/2027-01-02", "2027-01-02/2027-01-03"]}
    assert why(raw, "2026-12-27T23:59") is None
    assert why(raw, "2026-12-28T00:00") == "2026-12-28 to 2027-01-03"
    assert why(raw, "2027-01-03T23:59") == "2026-12-28 to 2027-01-03"
    assert why(raw, "2027-01-04T00:00") is None


def test_a_rule_gives_days() -> None:
    raw = {"rrules": ["FREQ=MONTHLY;BYDAY=-1FR"]}
    assert why(raw, "2026-11-27T13:00") == "FREQ=MONTHLY;BYDAY=-1FR"
    assert why(raw, "2026-11-20T13:00") is None


def test_a_rule_with_an_interval_is_counted_from_its_own_start() -> None:
    raw = {"rrules": [{"rule": "FREQ=WEEKLY;INTERVAL=2", "start": "2026-01-09"}]}
    fridays = [f"2026-01-{day:02d}T12:00" for day in (2, 9, 16, 23, 30)]
    assert [why(raw, friday) is not None for friday in fridays] == [False, True, False, True, False]


# The day, where, its name, and who says so.
HOLIDAYS = [
    ("2026-10-03", "DE", None, "German Unity Day"),  # Einigungsvertrag, article 2 (2)
    (
        "2026-06-04",
        "DE",
        "BY",
        "Corpus Christi",
    ),  # Bavaria's FTG, article 1 (1): Fronleichnam, 60 days after Easter
    ("2026-06-04", "DE", "BE", None),  # not in Berlin
    ("2026-11-26", "US", None, "Thanksgiving Day"),  # 5 U.S.C. 6103: the fourth Thursday in November
    ("2026-07-03", "US", None, "Independence Day (observed)"),  # the 4th is a Saturday: Executive Order 11582
    ("2026-12-28", "GB", "ENG", "Boxing Day (observed)"),  # gov.uk/bank-holidays: substitute day
    ("2026-07-14", "FR", None, "National Day"),  # Code du travail, L3133-1
    ("2027-01-11", "JP", None, "Coming of Age Day"),  # 祝日法, article 2: the second Monday in January
    ("2026-11-26", "DE", None, None),
]


@pytest.mark.parametrize(("day", "country", "region", "name"), HOLIDAYS)
def test_holidays_are_those_of_the_law(day: str, country: str, region: str | None, name: str | None) -> None:
    calendar = calendars.parse({"holidays": [{"country": country, "region": region}]})
    found = calendar.why(berlin(f"{day}T12:00"))
    assert found == name


def test_every_known_country_has_holidays_that_can_be_asked_for() -> None:
    # Two years of each: some follow a moon, some have an end, some have no English names.
    known = sorted(public_holidays.countries())
    assert len(known) > 200
    asked = {country: public_holidays.of(country, None, year) for country in known for year in (2026, 2100)}
    assert all(list(year.days) == sorted(year.names) for year in asked.values())


def test_a_year_of_holidays_is_computed_once_for_all_calendars() -> None:
    raw = {"holidays": [{"country": "NZ", "region": "AUK"}]}
    for _ in range(3):
        assert calendars.parse(raw).contains(berlin("2026-02-06T12:00"))
    before = public_holidays.of.cache_info()
    assert calendars.parse(raw).contains(berlin("2026-04-25T12:00"))
    after = public_holidays.of.cache_info()
    assert (after.misses, after.hits) == (before.misses, before.hits + 1)


def test_the_package_of_holidays_is_loaded_only_when_a_calendar_has_some() -> None:
    code = (
        "import sys; from cronwell.model import calendars; calendars.parse({'dates': ['2026-12-24']});"
        "print('holidays' in sys.modules);"
        "calendars.parse({'holidays': [{'country': 'DE'}]}); print('holidays' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "True"]


def test_hours_hold_their_first_minute_and_not_their_last() -> None:
    raw = {"hours": [{"days": "mon - fri", "from": "09:00", "to": "17:30"}]}
    assert why(raw, "2026-11-16T08:59:59") is None
    assert why(raw, "2026-11-16T09:00") == "Monday 09:00-17:30"
    assert why(raw, "2026-11-16T17:29:59") == "Monday 09:00-17:30"
    assert why(raw, "2026-11-16T17:30") is None
    assert why(raw, "2026-11-15T12:00") is None


@pytest.mark.parametrize(
    ("days", "normal"),
    [("FRI-MON", "MON,FRI-SUN"), ("SUN,SAT", "SAT,SUN"), ("MON-SUN", "MON-SUN"), ("WED-WED", "WED"), ("TUE,MON,WED", "MON-WED")],
)  # fmt: skip
def test_days_of_the_week_may_run_over_sunday(days: str, normal: str) -> None:
    calendar = calendars.parse({"hours": [{"days": days, "from": "00:00", "to": "24:00"}]})
    assert json.loads(calendar.canonical())["hours"][0]["days"] == normal


def test_a_window_without_an_offset_is_by_the_zone_that_is_asked_and_one_with_an_offset_is_not() -> None:
    local = calendars.parse({"windows": [{"from": "2026-12-20T18:00", "to": "2027-01-03T06:00"}]})
    for zone in (BERLIN, NEW_YORK, UTC):
        begin = datetime(2026, 12, 20, 18, tzinfo=zone)
        assert local.why(begin) == "2026-12-20T18:00 to 2027-01-03T06:00"
        assert not local.contains(begin - timedelta(microseconds=1))
        assert not local.contains(datetime(2027, 1, 3, 6, tzinfo=zone))
    fixed = calendars.parse(
        {"windows": [{"from": "2026-12-20T18:00:00Z", "to": "2026-12-20T20:00:00+01:00"}]}
    )
    assert fixed.why(berlin("2026-12-20T19:30")) == "2026-12-20T18:00:00Z to 2026-12-20T19:00:00Z"
    assert not fixed.contains(datetime(2026, 12, 20, 19, 30, tzinfo=NEW_YORK))


def test_a_window_at_a_time_that_comes_twice_takes_both() -> None:
    # 2026-10-25 in Berlin: 02:00 to 03:00 comes twice.
    calendar = calendars.parse({"windows": [{"from": "2026-10-25T02:30", "to": "2026-10-25T02:40"}]})
    shown = [("02:29", 0), ("02:30", 0), ("02:50", 0), ("02:10", 1), ("02:39", 1), ("02:40", 1)]
    found = [calendar.contains(berlin(f"2026-10-25T{face}", fold)) for face, fold in shown]
    assert found == [False, True, True, True, True, False]


def test_a_window_at_a_time_that_is_jumped_over_begins_after_the_gap() -> None:
    # 2026-03-29 in Berlin: 02:00 to 03:00 is missing.
    calendar = calendars.parse({"windows": [{"from": "2026-03-29T02:30", "to": "2026-03-29T03:10"}]})
    found = [calendar.contains(berlin(f"2026-03-29T{face}")) for face in ("01:59", "03:00", "03:09", "03:10")]
    assert found == [False, True, True, False]


def test_the_canonical_text_gives_the_same_calendar() -> None:
    calendar = calendars.parse(EVERYTHING)
    again = calendars.load(calendar.canonical())
    assert again == calendar
    assert again.canonical() == calendar.canonical()
    assert calendars.load(calendar.canonical()) is again


def test_the_order_in_which_fields_are_written_does_not_matter() -> None:
    backwards = dict(reversed(EVERYTHING.items()))
    assert calendars.parse(backwards).canonical() == calendars.parse(EVERYTHING).canonical()


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"dates": 3}'])
def test_what_is_no_stored_calendar_is_refused(text: str) -> None:
    with pytest.raises(errors.Invalid):
        calendars.load(text)


@pytest.mark.parametrize(
    ("raw", "has_only_days"),
    [
        (
            {"dates": ["2026-12-24"], "holidays": [{"country": "DE"}], "rrules": ["FREQ=WEEKLY;BYDAY=SU"]},
            True,
        ),
        ({"dates": ["2026-12-24"], "hours": EVERYTHING["hours"]}, False),
        ({"windows": EVERYTHING["windows"]}, False),
    ],
)
def test_a_calendar_knows_whether_it_is_of_whole_days(raw: dict[str, object], has_only_days: bool) -> None:
    assert calendars.parse(raw).has_only_days is has_only_days


# What is written, the field to blame, and a part of the message.
BAD: list[tuple[Any, str, str]] = [
    ({}, "calendar", "no times in it"),
    ({"description": "nothing"}, "calendar", "no times in it"),
    ({"dates": []}, "calendar", "no times in it"),
    ([], "calendar", "not an object"),
    ({"holiday": []}, "calendar.holiday", "did you mean holidays"),
    ({3: []}, "calendar.3", "no such field"),
    ({"dates": "2026-12-24"}, "calendar.dates", "not a list"),
    ({"dates": ["2026-12-24"] * 1001}, "calendar.dates", "1001 items"),
    ({"dates": ["2026-02-30"]}, "calendar.dates.0", "there is no day '2026-02-30'"),
    ({"dates": ["2026-12-24", "24.12.2026"]}, "calendar.dates.1", "'24.12.2026' is not a day"),
    ({"dates": ["2026-12-24/2026-12-23"]}, "calendar.dates.0", "ends before it begins"),
    ({"dates": ["2101-01-01"]}, "calendar.dates.0", "not between the years 1970 and 2100"),
    ({"dates": ["2026-12-24/"]}, "calendar.dates.0", "'' is not a day"),
    ({"dates": [20261224]}, "calendar.dates.0", "not text"),
    ({"dates": ["2" * 100]}, "calendar.dates.0", "100 characters"),
    ({"rrules": ["FREQ=YEARLY;BYMONTH=13"]}, "calendar.rrules.0", "'13' is not a number"),
    ({"rrules": ["FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"]}, "calendar.rrules.0", "no day matches"),
    ({"rrules": ["FREQ=HOURLY"]}, "calendar.rrules.0", "whole days"),
    ({"rrules": ["FREQ=DAILY;BYHOUR=9"]}, "calendar.rrules.0", "whole days"),
    ({"rrules": ["FREQ=WEEKLY;INTERVAL=2;BYDAY=MO"]}, "calendar.rrules.0", "depends on where it starts"),
    ({"rrules": ["FREQ=WEEKLY"]}, "calendar.rrules.0", "depends on where it starts"),
    ({"rrules": ["FREQ=YEARLY;BYMONTH=3"]}, "calendar.rrules.0", "depends on where it starts"),
    ({"rrules": [{"rule": "FREQ=WEEKLY", "start": "soon"}]}, "calendar.rrules.0.start", "'soon' is not a day"),
    ({"rrules": [{"start": "2026-01-01"}]}, "calendar.rrules.0.rule", "not text"),
    ({"rrules": [3]}, "calendar.rrules.0", "not text"),
    ({"rrules": ["FREQ=DAILY"] * 21}, "calendar.rrules", "21 items"),
    ({"holidays": [{"country": "GERMANY"}]}, "calendar.holidays.0.country", "did you mean DE"),
    ({"holidays": [{"country": "DEU"}]}, "calendar.holidays.0.country", "did you mean DE"),
    ({"holidays": [{"country": "../../etc"}]}, "calendar.holidays.0.country", "no country '../../etc'"),
    ({"holidays": [{"country": "__class__"}]}, "calendar.holidays.0.country", "no country"),
    ({"holidays": [{"country": "DE", "region": "Bayern"}]}, "calendar.holidays.0.region", "did you mean BY"),
    ({"holidays": [{"country": "DE", "region": "XX"}]}, "calendar.holidays.0.region", "DE has no region 'XX'"),
    ({"holidays": [{"country": "VA", "region": "X"}]}, "calendar.holidays.0.region", "VA has no regions"),
    ({"holidays": [{"region": "BY"}]}, "calendar.holidays.0.country", "missing"),
    ({"holidays": [{"country": "DE", "region": 3}]}, "calendar.holidays.0.region", "not text"),
    ({"holidays": ["DE"]}, "calendar.holidays.0", "not an object"),
    ({"holidays": [{"county": "DE"}]}, "calendar.holidays.0.county", "did you mean country"),
    ({"hours": [{"days": "MON-FRI", "from": "9:00", "to": "17:00"}]}, "calendar.hours.0.from", "'9:00' is not a time"),
    ({"hours": [{"days": "MON-FRI", "from": "09:00", "to": "24:01"}]}, "calendar.hours.0.to", "'24:01' is not"),
    ({"hours": [{"days": "MON-FRI", "from": "09:60", "to": "12:00"}]}, "calendar.hours.0.from", "'09:60' is not"),
    ({"hours": [{"days": "MON-FRI", "from": "22:00", "to": "06:00"}]}, "calendar.hours.0.to", "two entries"),
    ({"hours": [{"days": "MON-FRY", "from": "09:00", "to": "17:00"}]}, "calendar.hours.0.days", "did you mean FRI"),
    ({"hours": [{"days": "", "from": "09:00", "to": "17:00"}]}, "calendar.hours.0.days", "'' is not a day"),
    ({"hours": [{"from": "09:00", "to": "17:00"}]}, "calendar.hours.0.days", "missing"),
    ({"windows": [{"from": "2026-12-20T18:00"}]}, "calendar.windows.0.to", "missing"),
    ({"windows": [{"from": "now", "to": "2026-12-20T18:00"}]}, "calendar.windows.0.from", "'now' is not a time"),
    ({"windows": [{"from": "2026-12-20T18:00", "to": "2026-12-20T18:00"}]}, "calendar.windows.0.to", "not come after"),
    ({"windows": [{"from": "2026-12-20T18:00", "to": "2026-12-20T18:00:00Z"}]}, "calendar.windows.0", "one of its times"),
    ({"dates": ["2026-12-24"], "description": "x" * 1001}, "calendar.description", "length"),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "field", "message"), BAD)
def test_bad_calendars_are_refused_by_field(raw: Any, field: str, message: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        calendars.parse(raw)
    (problem,) = caught.value.problems
    assert problem.field == field
    assert message in problem.message


def test_every_wrong_field_is_told_at_once_below_the_name_that_is_given() -> None:
    raw = {
        "dates": ["x", "2026-12-24", "y"],
        "hours": [{"days": "MON", "from": "a", "to": "10:00"}],
        "rrules": ["FREQ=NEVER"],
        "colour": "red",
    }
    with pytest.raises(errors.Invalid) as caught:
        calendars.parse(raw, "exclude.0")
    fields = [problem.field for problem in caught.value.problems]
    assert fields == [
        "exclude.0.colour", "exclude.0.dates.0", "exclude.0.dates.2", "exclude.0.rrules.0", "exclude.0.hours.0.from"
    ]  # fmt: skip


def test_a_thousand_wrong_names_are_not_all_explained() -> None:
    with pytest.raises(errors.Invalid) as caught:
        calendars.parse({f"x{number}": number for number in range(5000)})
    assert len(caught.value.problems) <= 50


@settings(deadline=None, max_examples=200)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["dates", "rrules", "holidays", "hours", "windows", "country", "days", "from", "to"]), inner, max_size=4)
        ),
        max_leaves=12,
    )
)  # fmt: skip
def test_any_json_is_read_or_refused(raw: Any) -> None:
    assert isinstance(_read(raw), Calendar | errors.Invalid)


def _read(raw: Any) -> Calendar | errors.Invalid:
    try:
        return calendars.parse(raw)
    except errors.Invalid as error:
        return error


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
