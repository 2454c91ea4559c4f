"""Lengths of time as people write them."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell import durations

LONGEST = timedelta(days=36_525)


@given(st.timedeltas(min_value=timedelta(), max_value=LONGEST))
def test_what_is_written_reads_back_as_the_same_length(length: timedelta) -> None:
    assert durations.parse(durations.write(length)) == length


@given(st.timedeltas(min_value=timedelta(), max_value=LONGEST))
def test_iso_and_unit_forms_agree_to_the_microsecond(length: timedelta) -> None:
    seconds = f"{length // timedelta(seconds=1)}.{length.microseconds:06d}"
    assert durations.parse(f"PT{seconds}S") == durations.parse(f"{seconds}s") == length


@given(st.text(max_size=80))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert timedelta() <= durations.parse(text) <= LONGEST


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("30s", timedelta(seconds=30)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("1 h 30 m", timedelta(hours=1, minutes=30)),
        ("  15m  ", timedelta(minutes=15)),
        ("1.5h", timedelta(minutes=90)),
        ("500ms", timedelta(milliseconds=500)),
        ("250us", timedelta(microseconds=250)),
        ("2w3d", timedelta(weeks=2, days=3)),
        ("0s", timedelta()),
        ("PT15M", timedelta(minutes=15)),
        ("pt15m", timedelta(minutes=15)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("P2W", timedelta(weeks=2)),
        ("PT0,5S", timedelta(milliseconds=500)),
        ("0.4us0.4us", timedelta(microseconds=1)),
    ],
)
def test_usual_forms_are_understood(text: str, length: timedelta) -> None:
    assert durations.parse(text) == length


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "5",
        "m",
        "15 minutes",
        "15M",
        "-5m",
        "+5m",
        "1h-5m",
        "1e3s",
        "1\nh",
        "٣m",
        "P",
        "PT",
        "P1DT",
        "P1Y",
        "P1M",
    ],
)
def test_other_forms_are_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; write a duration such as"):
        durations.parse(text)


@pytest.mark.parametrize("text", ["36526d", "999999999999w", "P9999999999W", "999999999999w" * 3])
def test_more_than_a_hundred_years_is_called_too_long(text: str) -> None:
    with pytest.raises(ValueError, match="longer than a hundred years"):
        durations.parse(text)


def test_an_endless_text_is_refused_without_repeating_it() -> None:
    with pytest.raises(ValueError, match="is not a duration") as caught:
        durations.parse("1s" * 100_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(), "0s"),
        (timedelta(minutes=15), "15m"),
        (timedelta(hours=25, milliseconds=1), "1d1h1ms"),
        (timedelta(weeks=2), "14d"),
    ],
)
def test_it_is_written_the_short_way(length: timedelta, text: str) -> None:
    assert durations.write(length) == text


def test_a_negative_length_is_not_written_as_another() -> None:
    with pytest.raises(ValueError, match="negative"):
        durations.write(timedelta(seconds=-1))
