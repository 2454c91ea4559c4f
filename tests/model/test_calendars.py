"""What calendars contain."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from cronwell.model import calendars, public_holidays, zones
from tests.model.wall import BERLIN, NEW_YORK, berlin


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
