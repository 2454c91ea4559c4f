"""Schedules in words, and what is worth a warning."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings

from cronwell.model import cron, schedule
from cronwell.model.describe import describe, warnings
from cronwell.model.words import in_words, ordinal
from tests.model import expressions

NOW = datetime(2027, 1, 1, 12, tzinfo=UTC)


def parse(
    raw: str | Mapping[str, object], timezone: str | None = None, window: str | None = None
) -> schedule.Schedule:
    return schedule.parse(raw, timezone=timezone, window=window, now=NOW)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 3 * * *", "At 03:00 every day"),
        ("10 30 2 * * *", "At 02:30:10 every day"),
        ("0 8,12,16 * * *", "At 08:00, 12:00 and 16:00 every day"),
        ("* * * * *", "Every minute"),
        ("* * * * * *", "Every second"),
        ("*/10 * * * * *", "Every 10 seconds"),
        ("30 * * * * *", "At second 30 of every minute"),
        ("15,45 */5 * * * *", "At seconds 15 and 45, every 5 minutes"),
        ("*/5 * * * *", "Every 5 minutes"),
        ("*/7 * * * *", "Every 7 minutes from minute 0 through 56 of every hour"),
        ("*/90 * * * *", "At minute 0 of every hour"),
        ("0,30 * * * *", "At minutes 0 and 30 of every hour"),
        ("10-20 3 * * *", "At minutes 10 through 20 of hour 3"),
        ("0 */2 * * *", "At minute 0 of every 2nd hour"),
        ("0 1/3 * * *", "At minute 0 of every 3rd hour from hour 1 through 22"),
        ("*/15 9-17 * * MON-FRI", "Every 15 minutes from 09:00 through 17:59 on Monday through Friday"),
        ("* 2,4-6 * * *", "Every minute of hours 2 and 4 through 6"),
        ("0 9 * * MON#2", "At 09:00 on the 2nd Monday of every month"),
        ("0 9 * * 5L", "At 09:00 on the last Friday of every month"),
        ("0 0 1 1 *", "At 00:00 on the 1st of January"),
        ("0 0 31 * *", "At 00:00 on the 31st of every month"),
        ("0 0 L * *", "At 00:00 on the last day of every month"),
        ("0 0 LW 1-3 *", "At 00:00 on the last day from Monday to Friday of January through March"),
        ("0 0 1-31/2 * *", "At 00:00 on every 2nd day from the 1st through 31st of every month"),
        ("0 0 * 6-8 *", "At 00:00 every day in June through August"),
        ("0 0 * 6 0", "At 00:00 on Sunday in June"),
        ("0 0 13 * FRI", "At 00:00 on the 13th of every month, and also on Friday"),
        ("0 0 13 6 FRI", "At 00:00 on the 13th of June, and also on Friday in June"),
        ("0 0 */12 * FRI", "At 00:00 on the 1st, 13th and 25th of every month when that is Friday"),
    ],
)
def test_expressions_in_words(expression: str, words: str) -> None:
    assert in_words(cron.parse(expression)) == words


@given(expressions.expressions)
@settings(max_examples=200, deadline=None)
def test_every_expression_has_words_that_begin_a_sentence(expression: str) -> None:
    words = in_words(cron.parse(expression))
    assert words.startswith(("At ", "Every "))
    assert "  " not in words


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (22, "22nd"), (31, "31st")]
)  # fmt: skip
def test_ordinals(number: int, text: str) -> None:
    assert ordinal(number) == text


@pytest.mark.parametrize(
    ("raw", "timezone", "window", "text"),
    [
        ("0 3 * * *", "America/Los_Angeles", None, "At 03:00 every day, America/Los_Angeles"),
        ("@hourly", None, "10m", "At minute 0 of every hour, UTC; spread over 10m"),
        (
            "@hourly",
            None,
            "50%",
            "At minute 0 of every hour, UTC; spread over 50% of the time to the next slot",
        ),
        ("every 15m", None, None, "Every 15m, counted from 2027-01-01T12:00:00Z"),
        ("at 2027-07-01T08:00:00Z", "Europe/Berlin", None, "Once, at 2027-07-01 10:00:00, Europe/Berlin"),
        (
            {"cron": "@daily", "start": "2027-02-01T00:00:00Z", "end": "2027-03-01T00:00:00Z"},
            None,
            None,
            "At 00:00 every day, UTC; from 2027-02-01T00:00:00Z; until 2027-03-01T00:00:00Z",
        ),
    ],
)
def test_schedules_in_words(
    raw: str | dict[str, object], timezone: str | None, window: str | None, text: str
) -> None:
    assert describe(parse(raw, timezone, window)) == text


@pytest.mark.parametrize(
    ("raw", "timezone", "window", "expected"),
    [
        ("17 3 * * *", None, None, []),
        ("17 * * * *", "America/New_York", None, []),
        ("17 1 * * *", "America/New_York", None, []),  # once in the fold: as expected
        ("every 15m", None, "5m", []),
        ("in 5m", None, None, []),
        ("0 3 * * *", None, "5m", []),
        ("0 3 * * *", None, None, ["on the full hour"]),
        ("* * * * * *", None, None, ["every second"]),
        ("every 1s", None, None, ["every second"]),
        ("17 0 29 2 *", None, None, ["rarely: the next slots are on 2028-02-29 and 2032-02-29"]),
        ("17 0 31 * *", None, None, ["months that have no day 31; L is"]),
        ("17 0 30 * *", None, None, ["months that have no day 30"]),
        ("17 0 31 1,3 *", None, None, []),
        ("17 0 31,L * *", None, None, []),
        ("17 0 13 * FRI", None, None, ["match either of them"]),
        ("*/90 * * * *", None, "1s", ["is the same as 0"]),
        ("*/7 * * * *", None, None, ['write "every 7m"']),
        ("17 */5 * * *", None, None, ['write "every 5h"']),
        ("30 2 * * *", "America/New_York", None, ["02:30 does not exist on 2027-03-14 in America/New_York", "at 03:00 instead"]),
        ("15 2 * * *", "Australia/Lord_Howe", None, ["02:15 does not exist on 2027-10-03", "at 02:30 instead"]),
        ("30 2 1 * *", "America/New_York", None, []),  # that night is not a first of the month
        ("*/30 2 * * *", "America/New_York", None, ["02:00 does not exist", "is left out"]),
        ("*/30 1 * * *", "America/New_York", None, ["01:00 comes twice on 2027-11-07", "fires both times"]),
        ("0 30 2 * * *", "America/New_York", None, ["is left out", "written with five fields"]),
        ("0 30 1 * * *", "America/New_York", None, ["fires both times", "written with five fields"]),
        ("every 15m", None, "30m", ["longer than the 15m between slots"]),
        ({"every": "1d", "anchor": "2027-06-01T00:00:00Z"}, None, None, ["sets the phase only", "add `start`"]),
        ({"every": "1d", "anchor": "2027-06-01T00:00:00Z", "start": "2027-06-01T00:00:00Z"}, None, None, []),
        ("at 2027-11-07T01:30:00", "America/New_York", None, ["comes twice", "this is the first one"]),
        ("at 2027-11-07T01:30:00-05:00", "America/New_York", None, ["comes twice", "this is the second one"]),
    ],
)  # fmt: skip
def test_what_may_surprise_is_said_and_nothing_else(
    raw: str | dict[str, object], timezone: str | None, window: str | None, expected: list[str]
) -> None:
    found = warnings(parse(raw, timezone, window), NOW)
    assert len(found) == min(1, len(expected)), found
    for part in expected:
        assert part in found[0]


def test_a_schedule_that_is_over_says_so() -> None:
    assert "no slot after" in warnings(parse("in 5m"), NOW + timedelta(hours=1))[0]
    assert (
        "no slot after"
        in warnings(parse({"cron": "17 3 * * *", "end": "2027-02-01T00:00:00Z"}), NOW + timedelta(days=40))[0]
    )
