"""The whole dialect and every rule for gap and fold, against oracles that look at one minute after another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronwell.model import cron, zones
from cronwell.model.cron import Days
from cronwell.model.dst import FOLDS, GAPS, DstRule, Fold, Gap
from cronwell.model.kinds import CronTimes
from cronwell.model.wallclock import compiled
from tests.model import expressions
from tests.model.faces import matches
from tests.model.walker import walk_faces

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)

# One change of each sort: an ordinary hour, half an hour, two hours, midnight, and a whole day that is missing.
CHANGES = [
    ("America/New_York", "2027-03-14T07:00Z"),
    ("America/New_York", "2027-11-07T06:00Z"),
    ("Europe/Dublin", "2027-03-28T01:00Z"),
    ("Europe/Dublin", "2027-10-31T01:00Z"),
    ("Australia/Lord_Howe", "2027-10-02T15:30Z"),
    ("Australia/Lord_Howe", "2027-04-03T15:00Z"),
    ("Africa/Cairo", "2027-04-29T22:00Z"),
    ("Africa/Cairo", "2027-10-28T21:00Z"),
    ("Antarctica/Troll", "2027-03-28T01:00Z"),
    ("Antarctica/Troll", "2027-10-31T01:00Z"),
    ("Africa/Casablanca", "2026-02-15T02:00Z"),
    ("Africa/Casablanca", "2026-03-22T02:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00Z"),
    ("America/Sao_Paulo", "2019-02-17T02:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"),
    ("America/St_Johns", "2010-03-14T03:31Z"),
    ("America/St_Johns", "2010-11-07T02:31Z"),
]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_the_clocks_change_where_the_tests_say(zone: str, change: str) -> None:
    before, after = ((at(change) - n * MINUTE).astimezone(zones.find(zone)).utcoffset() for n in (1, 0))
    assert before != after


@given(
    st.sampled_from(CHANGES),
    expressions.five_by_night,
    st.sampled_from(GAPS),
    st.sampled_from(FOLDS),
    st.integers(-40, 40),
)
@settings(max_examples=60, deadline=None)
def test_every_rule_for_gap_and_fold_agrees_with_the_walker(
    change: tuple[str, str], expression: str, gap: Gap, fold: Fold, hours: int
) -> None:
    name, moment = change
    after = at(moment) + timedelta(hours=hours, minutes=-7)
    until = max(after, at(moment)) + timedelta(hours=30)
    times = CronTimes.of(cron.parse(expression), name, DstRule(gap, fold))
    expected = walk_faces(lambda face: matches(expression, face), zones.find(name), after, until, gap, fold)
    found: list[datetime] = []
    slot = times.next_after(after)
    while slot is not None and slot <= until:
        found.append(slot)
        slot = times.next_after(slot)
    assert found == expected


# The clock, the expression, the rule, and what becomes of the night. New York's clock goes from 02:00 to 03:00 on
# 2027-03-14 and from 02:00 back to 01:00 on 2027-11-07.
NIGHTS = [
    ("30 2 * * *", "skip", "first", "2027-03-13T12:00Z", ["2027-03-15T06:30Z"]),
    ("30 2 * * *", "first_after", "first", "2027-03-13T12:00Z", ["2027-03-14T07:00Z", "2027-03-15T06:30Z"]),
    ("30 2 * * *", "shift", "first", "2027-03-13T12:00Z", ["2027-03-14T07:30Z", "2027-03-15T06:30Z"]),
    ("30 1 * * *", "skip", "first", "2027-11-07T04:00Z", ["2027-11-07T05:30Z", "2027-11-08T06:30Z"]),
    ("30 1 * * *", "skip", "second", "2027-11-07T04:00Z", ["2027-11-07T06:30Z", "2027-11-08T06:30Z"]),
    ("30 1 * * *", "skip", "both", "2027-11-07T04:00Z", ["2027-11-07T05:30Z", "2027-11-07T06:30Z"]),
    # Shifted times mix with those that come after the gap, and two that fall on one instant are one.
    ("0,30 2-3 * * *", "shift", "first", "2027-03-14T06:59Z", ["2027-03-14T07:00Z", "2027-03-14T07:30Z", "2027-03-15T06:00Z"]),
    ("15 2,3 * * *", "shift", "first", "2027-03-14T07:00Z", ["2027-03-14T07:15Z", "2027-03-15T06:15Z"]),
    # A wildcard hour can be told to keep to one pass.
    ("*/30 1 * * *", "skip", "second", "2027-11-07T04:00Z", ["2027-11-07T06:00Z", "2027-11-07T06:30Z"]),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "gap", "fold", "after", "expected"), NIGHTS)
def test_a_schedule_chooses_what_a_clock_change_does(
    expression: str, gap: Gap, fold: Fold, after: str, expected: list[str]
) -> None:
    times = CronTimes.of(cron.parse(expression), "America/New_York", DstRule(gap, fold))
    moment = at(after)
    for wanted in expected:
        slot = times.next_after(moment)
        assert slot == at(wanted)
        moment = slot


def test_a_missing_day_is_over_when_it_is_over() -> None:
    """Samoa had no 30 December 2011: its clock went from the end of the 29th to the beginning of the 31st."""
    midnight = at("2011-12-30T10:00Z")
    faces = cron.parse("0 9 * * *")
    found = {
        gap: CronTimes.of(faces, "Pacific/Apia", DstRule(gap, "first")).next_after(midnight - MINUTE)
        for gap in GAPS
    }
    nine = midnight + timedelta(hours=9)
    assert found == {"skip": nine, "first_after": midnight, "shift": nine}


# Dates without a source are counted on the calendar of that year.
DATES = [
    ("0 9 15W * *", "2027-05-01", ["2027-05-14", "2027-06-15", "2027-07-15", "2027-08-16"]),
    ("0 9 1W * *", "2027-05-01", ["2027-05-03", "2027-06-01"]),  # 1 May 2027 is a Saturday: not 30 April
    ("0 9 31W * *", "2027-10-01", ["2027-10-29", "2027-12-31"]),  # 31 October is a Sunday; November has none
    ("0 9 L-3 * *", "2028-02-01", ["2028-02-26", "2028-03-28"]),  # 2028 is a leap year
    ("0 9 L-1W * *", "2027-05-01", ["2027-05-31", "2027-06-29"]),  # 30 May 2027 is a Sunday
    ("0 9 LW * *", "2027-07-01", ["2027-07-30", "2027-08-31"]),
    ("0 9 * * FRI-MON", "2027-05-01", ["2027-05-01", "2027-05-02", "2027-05-03", "2027-05-07"]),
    ("0 0 9 1 1 ? 2028,2040/20", "2027-01-01", ["2028-01-01", "2040-01-01", "2060-01-01", "2080-01-01", "2100-01-01"]),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "since", "expected"), DATES)
def test_dates_of_the_wider_dialect(expression: str, since: str, expected: list[str]) -> None:
    times = CronTimes.of(cron.parse(expression), "UTC")
    moment: datetime | None = at(f"{since}T00:00Z")
    for wanted in expected:
        assert moment is not None
        moment = times.next_after(moment)
        assert moment == at(f"{wanted}T09:00Z")
    if expected[-1].startswith("2100"):
        assert moment is not None
        assert times.next_after(moment) is None


def test_days_and_needs_both_fields() -> None:
    friday_13th = CronTimes.of(cron.parse("0 0 13 * FRI", days="and"), "UTC")
    assert friday_13th.next_after(at("2027-01-01T00:00Z")) == at("2027-08-13T00:00Z")
    either = CronTimes.of(cron.parse("0 0 13 * FRI"), "UTC")
    assert either.next_after(at("2027-01-01T00:00Z")) == at("2027-01-08T00:00Z")


@given(expressions.wide, st.sampled_from(["or", "and"]), st.integers(0, 40_000))
@settings(max_examples=60, deadline=None)
def test_dates_and_times_match_like_the_oracle(expression: str, days: Days, day: int) -> None:
    """Walk 45 days by date, and the matching ones minute by minute."""
    read = cron.parse(expression, days=days)
    faces = compiled(read)
    begin = at("1990-01-01T00:00Z").replace(tzinfo=None) + day * DAY
    wall = (begin - timedelta(seconds=1)).replace(tzinfo=UTC)
    found: set[datetime] = set()
    while len(found) < 60:
        following = faces.next_after(wall)
        if following is None or following.replace(tzinfo=None) >= begin + 45 * DAY:
            break
        wall = following
        found.add(wall.replace(tzinfo=None))
    end = wall.replace(tzinfo=None) if len(found) == 60 else begin + 45 * DAY - timedelta(seconds=1)
    assert all(matches(expression, each, days) for each in found)
    second = min(read.seconds.values)
    expected: set[datetime] = set()
    date = begin
    while date <= end:
        if any(
            matches(expression, date.replace(hour=h, minute=min(read.minutes.values), second=second), days)
            for h in read.hours.values[:1]
        ):
            face = date
            while face < date + DAY and face <= end:
                if (
                    matches(expression, face.replace(second=second), days)
                    and face.replace(second=second) <= end
                ):
                    expected.add(face.replace(second=second))
                face += MINUTE
        date += DAY
    assert {each for each in found if each.second == second} == expected


@given(expressions.wide, st.integers(0, 30_000))
@settings(max_examples=100, deadline=None)
def test_a_run_of_matches_ends_where_it_says(expression: str, day: int) -> None:
    read = cron.parse(expression)
    faces = compiled(read)
    hit = faces.next_after(at("2000-01-01T00:00Z") + day * DAY)
    if hit is None:
        return
    end = faces.run_ends(hit)
    assert hit < end <= hit.replace(hour=0, minute=0, second=0) + DAY
    span = int((end - hit).total_seconds())
    for n in {1, 2, span // 2, span - 1, *range(0, span, 601)}:
        if 0 <= n < span:
            assert matches(expression, (hit + timedelta(seconds=n)).replace(tzinfo=None))
