"""Times that people type and read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell import durations
from cronwell.cli import times

NOW = datetime(2027, 5, 5, 12, 0, tzinfo=UTC)
MOMENTS = st.timedeltas(timedelta(days=-20_000), timedelta(days=25_000)).map(lambda length: NOW + length)


@given(MOMENTS)
def test_a_moment_survives_the_way_to_the_api_and_back(moment: datetime) -> None:
    assert times.read_moment(times.write_moment(moment)) == moment


@given(MOMENTS)
def test_a_written_moment_is_read_as_an_option_too(moment: datetime) -> None:
    assert times.parse_moment(times.write_moment(moment), now=NOW, toward="past") == moment


@given(st.timedeltas(timedelta(), timedelta(days=3000)))
def test_a_duration_counts_from_now_in_the_direction_asked_for(length: timedelta) -> None:
    text = durations.write(length)
    assert times.parse_moment(text, now=NOW, toward="past") == NOW - length
    assert times.parse_moment(text, now=NOW, toward="future") == NOW + length


@pytest.mark.usefixtures("clean_environment")
def test_a_time_without_an_offset_is_local() -> None:
    assert times.parse_moment("2027-05-05 10:00", now=NOW, toward="past") == datetime(
        2027, 5, 5, 10, tzinfo=UTC
    )


def test_more_digits_than_microseconds_are_cut() -> None:
    assert times.read_moment("2027-05-05T10:00:00.123456789Z").microsecond == 123456


def test_now_is_now() -> None:
    assert times.parse_moment("now", now=NOW, toward="past") == NOW


@pytest.mark.parametrize("text", ["", "soon", "25:00", "2027-13-01", "5 parsecs"])
def test_what_is_no_time_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time; write a time such as"):
        times.parse_moment(text, now=NOW, toward="past")


@pytest.mark.parametrize(
    ("ahead", "shown"),
    [
        (timedelta(), "now"),
        (timedelta(milliseconds=900), "now"),
        (timedelta(seconds=42), "in 42s"),
        (timedelta(minutes=-5, seconds=-3), "5m3s ago"),
        (timedelta(hours=2), "in 2h"),
        (timedelta(days=-1, hours=-5, minutes=-59), "1d5h ago"),
        (timedelta(days=400, hours=7), "in 400d"),
    ],
)
def test_a_distance_has_at_most_two_units(ahead: timedelta, shown: str) -> None:
    assert times.distance(NOW + ahead, NOW) == shown


@given(st.timedeltas(timedelta(), timedelta(days=9)))
def test_rounding_loses_less_than_the_smaller_unit(length: timedelta) -> None:
    shown = durations.parse(times.rounded(length))
    assert timedelta() <= length - shown < max(timedelta(seconds=1), length / 24)


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0.04, "0.0ms"),
        (-3.21, "-3.2ms"),
        (12.4, "12ms"),
        (1250, "1.25s"),
        (200_000, "3m20s"),
        (-90_000, "-1m30s"),
    ],
)
def test_a_measured_time_shows_the_digits_that_matter(milliseconds: float, shown: str) -> None:
    assert times.elapsed(milliseconds) == shown
