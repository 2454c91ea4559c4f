"""How calendars are read, kept and refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronwell import errors
from cronwell.model import calendars
from cronwell.model.calendars import Calendar
from tests.model.wall import EVERYTHING


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
