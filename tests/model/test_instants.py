"""Moments as they are written."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell.model import instants, zones
from cronwell.model.instants import EARLIEST, HORIZON

BERLIN = zones.find("Europe/Berlin")
whole_range = st.timedeltas(timedelta(), HORIZON - EARLIEST - timedelta(microseconds=1)).map(
    lambda past: EARLIEST + past
)


@given(whole_range)
def test_what_is_written_reads_back_as_the_same_moment(moment: datetime) -> None:
    assert instants.parse(instants.write(moment)) == moment


@given(whole_range)
def test_a_moment_is_read_the_same_in_any_offset(moment: datetime) -> None:
    text = moment.astimezone(BERLIN).isoformat()
    assert instants.parse(text) == moment


@given(st.text(max_size=70))
def test_any_text_is_a_moment_in_range_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert EARLIEST <= instants.parse(text, BERLIN) < HORIZON


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2027-05-05T10:00:00Z", "2027-05-05T10:00:00Z"),
        ("2027-05-05t10:00:00z", "2027-05-05T10:00:00Z"),
        ("2027-05-05 10:00:00+02:00", "2027-05-05T08:00:00Z"),
        ("2027-05-05T10:00-00:30", "2027-05-05T10:30:00Z"),
        ("2027-05-05T10:00:00.1234569Z", "2027-05-05T10:00:00.123456Z"),
        ("  2027-05-05T10:00:00Z ", "2027-05-05T10:00:00Z"),
        ("2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z"),
    ],
)
def test_rfc_3339_is_understood(text: str, written: str) -> None:
    assert instants.write(instants.parse(text)) == written


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a time"),
        ("tomorrow", "is not a time"),
        ("2027-05-05", "is not a time"),
        ("1800000000", "is not a time"),
        ("2027-05-05T10:00:00+2", "is not a time"),
        ("2027-05-05T10:00:00Z" + " " * 100 + "x", "is not a time"),
        ("2027-02-29T10:00:00Z", "day is out of range"),
        ("2027-13-01T10:00:00Z", "month must be in"),
        ("2027-05-05T24:00:00Z", "hour must be in"),
        ("2027-05-05T10:00:60Z", "second must be in"),
        ("2027-05-05T10:00:00+99:00", "the offset"),
        ("2027-05-05T10:00:00+10:99", "the offset"),
        ("0001-01-01T00:00:00+14:00", "between the years 1970 and 2100"),
        ("9999-12-31T23:59:59-14:00", "between the years 1970 and 2100"),
        ("1970-01-01T00:00:00+14:00", "between the years 1970 and 2100"),
        ("2100-12-31T23:00:00-01:00", "between the years 1970 and 2100"),
        ("2027-05-05T10:00:00", "has no offset"),
    ],
)
def test_other_texts_are_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        instants.parse(text)


def test_a_time_without_an_offset_is_the_wall_clock_of_the_zone() -> None:
    assert instants.parse("2027-07-01T10:00:00", BERLIN) == datetime(2027, 7, 1, 8, tzinfo=UTC)
    assert instants.parse("2027-07-01T10:00:00Z", BERLIN) == datetime(2027, 7, 1, 10, tzinfo=UTC)


def test_a_time_that_comes_twice_is_the_first_of_the_two() -> None:
    assert instants.parse("2027-10-31T02:30:00", BERLIN) == datetime(2027, 10, 31, 0, 30, tzinfo=UTC)


def test_a_time_that_the_clock_jumps_over_is_refused_and_said_so() -> None:
    with pytest.raises(ValueError, match="does not exist in Europe/Berlin: the clock jumps over it to 03:00"):
        instants.parse("2027-03-28T02:30:00", BERLIN)
