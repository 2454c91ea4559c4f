"""Cron slots: golden nights, and agreement with cronsim and with a walker that looks at every minute and second."""

from __future__ import annotations

import time
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from cronwell.model import cron, zones
from cronwell.model.kinds import CronTimes
from tests.model import expressions
from tests.model.walker import walk

# Each night of a clock change: what jumps, and when (UTC). Sources: the rules of tzdata for these zones.
GAPS_AND_FOLDS = [
    ("America/New_York", "2027-03-14T07:00Z"),  # 02:00 → 03:00
    ("America/New_York", "2027-11-07T06:00Z"),  # 02:00 → 01:00
    ("Europe/Berlin", "2027-03-28T01:00Z"),  # 02:00 → 03:00
    ("Europe/Berlin", "2027-10-31T01:00Z"),  # 03:00 → 02:00
    ("Australia/Lord_Howe", "2027-10-02T15:30Z"),  # 02:00 → 02:30
    ("Australia/Lord_Howe", "2027-04-03T15:00Z"),  # 02:00 → 01:30
    ("Africa/Cairo", "2027-04-29T22:00Z"),  # 00:00 → 01:00
    ("Africa/Cairo", "2027-10-28T21:00Z"),  # 00:00 → 23:00 of the day before
]
START = datetime(2000, 1, 1, tzinfo=UTC)
ZONES_WITHOUT_ODD_JUMPS = ["UTC", "America/New_York", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns"]

nights = st.sampled_from(GAPS_AND_FOLDS)
moments = st.timedeltas(timedelta(), timedelta(days=14_000)).map(lambda past: START + past)


def cron_times(expression: str, zone: str) -> CronTimes:
    return CronTimes.of(cron.parse(expression), zone)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def sequence(times: CronTimes, after: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    while len(found) < count:
        slot = times.next_after(found[-1] if found else after)
        if slot is None:
            break
        found.append(slot)
    return found


# ── golden nights ────────────────────────────────────────────────────────────────────────────────────────────────────

GOLDEN = [
    # A fixed time in the gap fires right after it, and is back in its place the next day.
    ("30 2 * * *", "America/New_York", "2027-03-13T12:00Z", ["2027-03-14T07:00Z", "2027-03-15T06:30Z"]),
    ("30 2 * * *", "Europe/Berlin", "2027-03-27T12:00Z", ["2027-03-28T01:00Z", "2027-03-29T00:30Z"]),
    # Several fixed times in one gap become one slot; one that lies on the gap's end merges with them.
    ("15,45 2 * * *", "America/New_York", "2027-03-13T12:00Z", ["2027-03-14T07:00Z", "2027-03-15T06:15Z"]),
    ("0 2,3 * * *", "America/New_York", "2027-03-13T12:00Z", ["2027-03-14T07:00Z", "2027-03-15T06:00Z"]),
    # What follows the clock's face has nothing in the gap.
    ("*/30 2 * * *", "America/New_York", "2027-03-13T12:00Z", ["2027-03-15T06:00Z", "2027-03-15T06:30Z"]),
    ("0 */2 * * *", "America/New_York", "2027-03-14T04:59Z", ["2027-03-14T05:00Z", "2027-03-14T08:00Z"]),
    ("*/30 * * * *", "America/New_York", "2027-03-14T06:29Z", ["2027-03-14T06:30Z", "2027-03-14T07:00Z"]),
    # With seconds the clock's face rules, as in cronsim: left out in the gap, twice in the fold.
    ("0 30 2 * * *", "America/New_York", "2027-03-13T12:00Z", ["2027-03-15T06:30Z"]),
    ("0 30 1 * * *", "America/New_York", "2027-11-07T04:00Z", ["2027-11-07T05:30Z", "2027-11-07T06:30Z"]),
    # A fixed time in the fold fires in the first pass only, also when asked from within the second.
    ("30 1 * * *", "America/New_York", "2027-11-06T12:00Z", ["2027-11-07T05:30Z", "2027-11-08T06:30Z"]),
    ("30 1 * * *", "America/New_York", "2027-11-07T06:10Z", ["2027-11-08T06:30Z"]),
    ("30 2 * * *", "Europe/Berlin", "2027-10-30T12:00Z", ["2027-10-31T00:30Z", "2027-11-01T01:30Z"]),
    # What follows the clock's face fires in both passes.
    (
        "*/30 1 * * *",
        "America/New_York",
        "2027-11-07T04:59Z",
        [
            "2027-11-07T05:00Z",
            "2027-11-07T05:30Z",
            "2027-11-07T06:00Z",
            "2027-11-07T06:30Z",
            "2027-11-08T06:00Z",
        ],
    ),
    ("0 * * * *", "Europe/Berlin", "2027-10-31T00:00Z", ["2027-10-31T01:00Z", "2027-10-31T02:00Z"]),
    # Half an hour: 02:15 is missing, 03:00 is not. (cronsim loses 03:00 and 03:20 that night.)
    ("15 2 * * *", "Australia/Lord_Howe", "2027-10-02T00:00Z", ["2027-10-02T15:30Z", "2027-10-03T15:15Z"]),
    ("*/20 3 * * *", "Australia/Lord_Howe", "2027-10-02T15:00Z", ["2027-10-02T16:00Z", "2027-10-02T16:20Z"]),
    ("45 1 * * *", "Australia/Lord_Howe", "2027-04-03T00:00Z", ["2027-04-03T14:45Z", "2027-04-04T15:15Z"]),
    (
        "*/15 1 * * *",
        "Australia/Lord_Howe",
        "2027-04-03T14:20Z",
        [
            "2027-04-03T14:30Z",
            "2027-04-03T14:45Z",
            "2027-04-03T15:00Z",
            "2027-04-03T15:15Z",
            "2027-04-04T14:30Z",
        ],
    ),
    # Midnight itself is missing, and 23:00 to 24:00 comes twice.
    ("0 0 * * *", "Africa/Cairo", "2027-04-29T12:00Z", ["2027-04-29T22:00Z", "2027-04-30T21:00Z"]),
    ("0 0 30 * *", "Africa/Cairo", "2027-04-29T12:00Z", ["2027-04-29T22:00Z", "2027-05-29T21:00Z"]),
    ("30 23 * * *", "Africa/Cairo", "2027-10-28T12:00Z", ["2027-10-28T20:30Z", "2027-10-29T21:30Z"]),
    ("0 0 * * *", "Africa/Cairo", "2027-10-28T12:00Z", ["2027-10-28T22:00Z"]),
    # Two hours at once.
    ("30 1 * * *", "Antarctica/Troll", "2027-03-27T12:00Z", ["2027-03-28T01:00Z", "2027-03-28T23:30Z"]),
    # Samoa had no 30 December 2011: its slot fires as the 31st begins.
    (
        "0 9 * * *",
        "Pacific/Apia",
        "2011-12-29T12:00Z",
        ["2011-12-29T19:00Z", "2011-12-30T10:00Z", "2011-12-30T19:00Z"],
    ),
    ("*/30 9 30 12 *", "Pacific/Apia", "2011-12-29T12:00Z", ["2012-12-29T19:00Z"]),
    # No change at all, an odd offset.
    ("0 6 * * *", "Asia/Kathmandu", "2027-01-01T00:15Z", ["2027-01-02T00:15Z"]),
    # Ireland's summer time is its standard time and winter is the exception; the clock does what London's does.
    ("30 1 * * *", "Europe/Dublin", "2027-03-27T12:00Z", ["2027-03-28T01:00Z", "2027-03-29T00:30Z"]),
    ("30 1 * * *", "Europe/Dublin", "2027-10-30T12:00Z", ["2027-10-31T00:30Z", "2027-11-01T01:30Z"]),
    (
        "*/30 1 * * *",
        "Europe/Dublin",
        "2027-10-30T23:59Z",
        ["2027-10-31T00:00Z", "2027-10-31T00:30Z", "2027-10-31T01:00Z", "2027-10-31T01:30Z"],
    ),
    # Brazil changed at midnight (decree 9,242 of 2017) until summer time was abolished (decree 9,772 of 2019).
    ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00Z", ["2018-11-04T03:00Z", "2018-11-05T02:00Z"]),
    ("*/30 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00Z", ["2018-11-05T02:00Z"]),
    ("30 23 * * *", "America/Sao_Paulo", "2019-02-16T12:00Z", ["2019-02-17T01:30Z", "2019-02-18T02:30Z"]),
    ("0 0 * * *", "America/Sao_Paulo", "2019-11-02T12:00Z", ["2019-11-03T03:00Z", "2019-11-04T03:00Z"]),
    # Morocco goes back for Ramadan and forward after it; in 2026 on 15 February and 22 March.
    ("30 2 * * *", "Africa/Casablanca", "2026-02-14T12:00Z", ["2026-02-15T01:30Z", "2026-02-16T02:30Z"]),
    ("30 2 * * *", "Africa/Casablanca", "2026-03-21T12:00Z", ["2026-03-22T02:00Z", "2026-03-23T01:30Z"]),
    # Newfoundland changed a minute after midnight until 2011: 00:01 to 01:01, and 00:01 back to 23:01.
    ("30 0 * * *", "America/St_Johns", "2010-03-13T12:00Z", ["2010-03-14T03:31Z", "2010-03-15T03:00Z"]),
    ("30 23 * * *", "America/St_Johns", "2010-11-06T12:00Z", ["2010-11-07T02:00Z", "2010-11-08T03:00Z"]),
    # Two hours back: a fixed time once, the wildcard hour in all four.
    ("30 1 * * *", "Antarctica/Troll", "2027-10-30T12:00Z", ["2027-10-30T23:30Z", "2027-11-01T01:30Z"]),
    (
        "0 * * * *",
        "Antarctica/Troll",
        "2027-10-30T22:30Z",
        ["2027-10-30T23:00Z", "2027-10-31T00:00Z", "2027-10-31T01:00Z", "2027-10-31T02:00Z"],
    ),
    # A month's last day that the clock changes on.
    ("0 0 L 4 *", "Africa/Cairo", "2027-04-01T00:00Z", ["2027-04-29T22:00Z"]),
    ("30 2 L 10 *", "Europe/Berlin", "2027-10-01T00:00Z", ["2027-10-31T00:30Z"]),
    ("0 0 L * *", "Asia/Kathmandu", "2027-02-01T00:00Z", ["2027-02-27T18:15Z", "2027-03-30T18:15Z"]),
    # Month ends, and weekdays counted within the month.
    (
        "0 0 L * *",
        "UTC",
        "2028-01-31T00:00Z",
        ["2028-02-29T00:00Z", "2028-03-31T00:00Z", "2028-04-30T00:00Z"],
    ),
    (
        "0 0 LW * *",
        "UTC",
        "2027-01-01T00:00Z",
        ["2027-01-29T00:00Z", "2027-02-26T00:00Z", "2027-03-31T00:00Z"],
    ),
    ("0 0 * * MON#2", "UTC", "2027-01-01T00:00Z", ["2027-01-11T00:00Z", "2027-02-08T00:00Z"]),
    ("0 0 * * SUN#5", "UTC", "2027-01-01T00:00Z", ["2027-01-31T00:00Z", "2027-05-30T00:00Z"]),
    ("0 0 * * 5L", "UTC", "2027-01-01T00:00Z", ["2027-01-29T00:00Z", "2027-02-26T00:00Z"]),
    ("0 0 * * FRIL", "UTC", "2027-01-01T00:00Z", ["2027-01-29T00:00Z", "2027-02-26T00:00Z"]),
    ("0 0 ? * MON-SUN", "UTC", "2027-01-01T00:00Z", ["2027-01-02T00:00Z", "2027-01-03T00:00Z"]),
    ("0 0 29 2 *", "UTC", "2096-02-29T00:00Z", []),  # 2100 is no leap year, and the horizon ends there
    ("0 0 29 2 *", "UTC", "2088-03-01T00:00Z", ["2092-02-29T00:00Z", "2096-02-29T00:00Z"]),
    # Either day when both are plain, both when one starts with a star.
    ("0 0 13 * FRI", "UTC", "2027-01-09T00:00Z", ["2027-01-13T00:00Z", "2027-01-15T00:00Z"]),
    ("0 0 */12 * FRI", "UTC", "2027-01-02T00:00Z", ["2027-06-25T00:00Z", "2027-08-13T00:00Z"]),
    # Seconds first.
    ("*/20 * * * * *", "UTC", "2027-01-01T00:00:59Z", ["2027-01-01T00:01:00Z", "2027-01-01T00:01:20Z"]),
    ("59 59 23 31 12 *", "UTC", "2027-12-31T23:59:59Z", ["2028-12-31T23:59:59Z"]),
]


@pytest.mark.parametrize(("expression", "zone", "after", "expected"), GOLDEN)
def test_slots_on_golden_nights(expression: str, zone: str, after: str, expected: list[str]) -> None:
    found = sequence(cron_times(expression, zone), at(after), max(1, len(expected)))
    assert found == [at(text) for text in expected]


@pytest.mark.parametrize(("zone", "change"), GAPS_AND_FOLDS)
def test_the_golden_nights_are_where_the_zones_change(zone: str, change: str) -> None:
    moment = at(change)
    found = zones.transitions(
        zones.find(zone), moment - timedelta(days=3, seconds=0.5), moment + timedelta(days=3)
    )
    assert [transition.at for transition in found] == [moment]


# ── properties ───────────────────────────────────────────────────────────────────────────────────────────────────────


@given(nights, expressions.five_by_night, st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_five_fields_agree_with_the_minute_walker(
    night: tuple[str, str], expression: str, part: float
) -> None:
    zone, change = night
    low, high = at(change) - timedelta(hours=30), at(change) + timedelta(hours=30)
    check_against_walker(expression, zone, low, high, part)


@given(nights, expressions.six_by_night, st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_six_fields_agree_with_the_second_walker(
    night: tuple[str, str], expression: str, part: float
) -> None:
    zone, change = night
    low, high = at(change) - timedelta(minutes=90), at(change) + timedelta(minutes=90)
    check_against_walker(expression, zone, low, high, part)


def check_against_walker(expression: str, zone: str, low: datetime, high: datetime, part: float) -> None:
    times = cron_times(expression, zone)
    expected = walk(expression, zones.find(zone), low, high)
    # Every slot in turn (up to a few hundred), and then from a moment that is on no boundary.
    assert sequence(times, low, min(len(expected), 300)) == expected[:300]
    moment = low + (high - low) * part
    following = bisect_right(expected, moment)
    found = times.next_after(moment)
    if following < len(expected):
        assert found == expected[following]
    else:
        assert found is None or found > high


@given(expressions.expressions, st.sampled_from(ZONES_WITHOUT_ODD_JUMPS), moments)
@settings(max_examples=250, deadline=None)
def test_it_agrees_with_cronsim_where_both_speak(expression: str, zone: str, after: datetime) -> None:
    times = cron_times(expression, zone)
    wall = after.astimezone(zones.find(zone))
    if wall.fold:
        return  # cronsim answers with the past there
    try:
        simulated = CronSim(expression, wall)
    except Exception:  # noqa: BLE001 - whatever cronsim refuses, only we speak about
        assert times.next_after(after) is None
        return
    expected = [slot.astimezone(UTC) for slot in islice(simulated, 4)]
    assert sequence(times, after, len(expected) or 1) == expected


@given(expressions.expressions, st.sampled_from(sorted(zones.names())), moments)
@settings(max_examples=200, deadline=None)
def test_the_next_slot_is_strictly_later_and_matches_the_clock(
    expression: str, zone: str, after: datetime
) -> None:
    times = cron_times(expression, zone)
    found = sequence(times, after, 3)
    assert all(earlier < later for earlier, later in pairwise([after, *found]))
    assert all(slot.tzinfo is UTC and slot.microsecond == 0 for slot in found)
    # Nothing was stepped over: just before a slot, that slot is still the next one.
    assert all(times.next_after(slot - timedelta(microseconds=1)) == slot for slot in found)
    assert all(times.next_after(slot + timedelta(microseconds=1)) != slot for slot in found)


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 30 2 *",
        "0 0 31 2,4,6,9,11 *",
        "0 0 */30 2 1#5",
        "0 0 */29 2 1",  # the first of February on a Monday: every few years
        "0 0 29 2 */7",  # a leap day on a Sunday: every 28 years
        "* * * 2 6#5",
        "* 2 29 2 */6",
        "*/5 2 * 3 0#2",  # in New York, the hour that is missing in every year
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_rarest_expressions_answer_within_milliseconds(expression: str, zone: str) -> None:
    times = cron_times(expression, zone)
    starts = [datetime(year, 3, 1, tzinfo=UTC) for year in (1970, 2027, 2073, 2097)]
    begun = time.process_time()
    for start in starts:
        times.next_after(start)
    # Bounded by a step per month up to the horizon. The limit leaves room for a slow machine.
    assert (time.process_time() - begun) / len(starts) < 0.02
