"""Schedules: what users write, what is stored, and the slots that come of it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import cast
from uuid import UUID, uuid4

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cronwell import durations, errors
from cronwell.model import schedule as schedules
from cronwell.model.instants import HORIZON
from cronwell.model.schedule import Schedule, effective_at, first_after, load, next_slot, slots
from tests.model import expressions

NOW = datetime(2027, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
START = datetime(2000, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

moments = st.timedeltas(timedelta(), timedelta(days=32_000)).map(lambda past: START + past)
windows = st.none() | st.sampled_from(
    ["1s", "90s", "10m", "1.5h", "7d", "1%", "12.5%", "50%", "99.99%", "100%"]
)
zone_names = st.sampled_from(
    ["UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo"]
)
lengths = st.timedeltas(timedelta(seconds=1), timedelta(days=400))


def parse(
    raw: str | Mapping[str, object],
    *,
    timezone: str | None = None,
    window: str | None = None,
    now: datetime = NOW,
    seed: str = "",
) -> Schedule:
    return schedules.parse(raw, timezone=timezone, window=window, now=now, seed=seed)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@st.composite
def parsed(draw: st.DrawFn) -> Schedule:
    """Any schedule that `parse` accepts."""
    raw: dict[str, object] = draw(
        st.one_of(
            expressions.expressions.map(lambda text: {"cron": text}),
            lengths.map(lambda length: {"every": durations.write(length)}),
            st.builds(
                lambda length, anchor: {"every": durations.write(length), "anchor": anchor.isoformat()},
                lengths,
                moments,
            ),
            st.timedeltas(MICROSECOND, timedelta(days=9999)).map(
                lambda length: {"in": durations.write(length)}
            ),
            st.timedeltas(MICROSECOND, timedelta(days=26_000)).map(
                lambda length: {"at": (NOW + length).isoformat()}
            ),
        )
    )
    for bound in ("start", "end"):
        if draw(st.booleans()):
            raw[bound] = draw(moments).isoformat()
    try:
        return parse(raw, timezone=draw(zone_names), window=draw(windows))
    except errors.Invalid:
        assume(False)
        raise


# ── what users write ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("raw", "canonical", "first"),
    [
        ("0 3 * * *", {"cron": "0 3 * * *"}, "2027-01-02T03:00Z"),
        ("  0  3 * *\t*", {"cron": "0 3 * * *"}, "2027-01-02T03:00Z"),
        ("*/1 * * * * *", {"cron": "*/1 * * * * *"}, "2027-01-01T12:00:01Z"),
        ("@hourly", {"cron": "0 * * * *"}, "2027-01-01T13:00Z"),
        ("every 15m", {"every": 900_000_000, "anchor": "2027-01-01T12:00:00Z"}, "2027-01-01T12:15Z"),
        ("@every 90s", {"every": 90_000_000, "anchor": "2027-01-01T12:00:00Z"}, "2027-01-01T12:01:30Z"),
        ("EVERY PT1H", {"every": 3_600_000_000, "anchor": "2027-01-01T12:00:00Z"}, "2027-01-01T13:00Z"),
        ("in 5m", {"at": "2027-01-01T12:05:00.250000Z"}, "2027-01-01T12:05:00.250Z"),
        ("at 2027-05-05T10:00:00+02:00", {"at": "2027-05-05T08:00:00Z"}, "2027-05-05T08:00Z"),
        ({"cron": "30 4 * * MON"}, {"cron": "30 4 * * MON"}, "2027-01-04T04:30Z"),
        ({"cron": "30 4 * * *", "window": None, "end": None}, {"cron": "30 4 * * *"}, "2027-01-02T04:30Z"),
        ({"in": "1h"}, {"at": "2027-01-01T13:00:00.250000Z"}, "2027-01-01T13:00:00.250Z"),
        (
            {"every": "1h", "anchor": "2020-02-03T00:20:00Z"},
            {"every": 3_600_000_000, "anchor": "2020-02-03T00:20:00Z"},
            "2027-01-01T12:20Z",
        ),
        (
            {"cron": "0 3 * * *", "start": "2027-06-01T00:00:00Z", "end": "2027-07-01T00:00:00Z"},
            {"cron": "0 3 * * *", "start": "2027-06-01T00:00:00Z", "end": "2027-07-01T00:00:00Z"},
            "2027-06-01T03:00Z",
        ),
    ],
)
def test_accepted_forms(raw: str | dict[str, object], canonical: dict[str, object], first: str) -> None:
    schedule = parse(raw)
    assert json.loads(schedule.canonical()) == {"timezone": "UTC", **canonical}
    assert schedule.next_after(NOW) == at(first)


@pytest.mark.parametrize(
    "raw", ["0 3 * * *", {"cron": "0 3 * * *"}, {"cron": "0 3 * * *", "timezone": "Asia/Tokyo"}]
)
def test_a_timezone_beside_the_schedule_fills_in_what_it_leaves_out(raw: str | dict[str, object]) -> None:
    schedule = parse(raw, timezone="Asia/Tokyo", window="10m")
    assert schedule.timezone == "Asia/Tokyo"
    assert schedule.window == timedelta(minutes=10)
    assert schedule.next_after(NOW) == at("2027-01-01T18:00Z")


def test_a_local_time_is_read_in_the_zone_that_is_given() -> None:
    assert parse({"at": "2027-07-01T10:00:00"}, timezone="Europe/Berlin").next_after(NOW) == at(
        "2027-07-01T08:00Z"
    )
    bounded = parse({"every": "1h", "timezone": "Europe/Berlin", "start": "2027-07-01T00:00:00"})
    assert bounded.next_after(NOW) == at("2027-06-30T22:00Z")


def test_only_at_and_in_are_one_offs() -> None:
    assert parse("in 5m").is_one_off
    assert parse("at 2028-01-01T00:00:00Z").is_one_off
    assert not parse("every 5m").is_one_off
    assert not parse("0 0 1 1 *").is_one_off


BAD: list[tuple[object, str, str]] = [
    ("61 * * * *", "schedule", "'61' is not a minute"),
    ({"cron": "0 3 * * MOO"}, "schedule.cron", "did you mean MON"),
    ("0 0 30 2 *", "schedule", "never fires"),
    ({"cron": "0 0 31 4,6 *"}, "schedule.cron", "never fires"),
    ({"cron": "0 0 1 * *", "end": "2027-01-31T00:00:00Z"}, "schedule.cron", "never fires"),
    ({"every": "1h", "end": "2020-01-31T00:00:00Z"}, "schedule.every", "never fires"),
    (
        {"every": "100d", "start": "2027-02-01T00:00:00Z", "end": "2027-02-02T00:00:00Z"},
        "schedule.every",
        "never fires",
    ),
    ({"at": "2028-01-01T00:00:00Z", "end": "2027-02-02T00:00:00Z"}, "schedule.at", "never fires"),
    (
        {"every": "1h", "start": "2028-01-01T00:00:00Z", "end": "2027-06-01T00:00:00Z"},
        "schedule.end",
        "before the start",
    ),
    ("at 2020-01-01T00:00:00Z", "schedule", "it is now 2027-01-01T12:00:00.250000Z"),
    ({"at": "2027-01-01T12:00:00.250Z"}, "schedule.at", "is past"),
    ({"at": "2027-05-05T10:00:00"}, "schedule.at", "has no offset"),
    (
        {"at": "2027-03-28T02:30:00", "timezone": "Europe/Berlin"},
        "schedule.at",
        "does not exist in Europe/Berlin",
    ),
    ({"at": "2101-01-01T00:00:00Z"}, "schedule.at", "between the years"),
    ({"at": "noon"}, "schedule.at", "is not a time"),
    ("at", "schedule", "is not a time"),
    ("in", "schedule", "is not a duration"),
    ("in a while", "schedule", "is not a duration"),
    ("in 0s", "schedule", "not in the future"),
    ("in 99y", "schedule", "is not a duration"),
    ("in 36000d", "schedule", "too far away"),
    ("every 15", "schedule", "is not a duration"),
    ("every 999ms", "schedule", "too often"),
    ({"every": "0s"}, "schedule.every", "too often"),
    ({"every": "90m", "anchor": "then"}, "schedule.anchor", "is not a time"),
    ({"every": 900}, "schedule.every", "is not text"),
    ({"cron": True}, "schedule.cron", "is not text"),
    ({"cron": "0 3 * * *", "anchor": "2027-01-01T00:00:00Z"}, "schedule.anchor", "goes with `every`"),
    ({"cron": "0 3 * * *", "every": "5m"}, "schedule", "cron and every are given"),
    ({}, "schedule", "none is given"),
    ({"timezone": "UTC"}, "schedule", "none is given"),
    ({"corn": "0 3 * * *"}, "schedule.corn", "did you mean cron"),
    ({"cron": "0 3 * * *", "tiemzone": "UTC"}, "schedule.tiemzone", "did you mean timezone"),
    ({"cron": "0 3 * * *", "x" * 10_000: 1}, "schedule." + "x" * 64, "no such field"),
    ({"cron": "0 3 * * *", "timezone": "Mars/Olympus"}, "schedule.timezone", "no time zone"),
    ({"cron": "0 3 * * *", "timezone": "../../etc/passwd"}, "schedule.timezone", "no time zone"),
    ({"cron": "0 3 * * *", "timezone": ""}, "schedule.timezone", "empty"),
    ({"cron": "0 3 * * *", "window": "0%"}, "schedule.window", "above 0%"),
    ({"cron": "0 3 * * *", "window": "101%"}, "schedule.window", "up to 100%"),
    ({"cron": "0 3 * * *", "window": "8d"}, "schedule.window", "between 1s and 7d"),
    ({"cron": "0 3 * * *", "window": "1ms"}, "schedule.window", "between 1s and 7d"),
    ({"cron": "0 3 * * *", "window": "wide"}, "schedule.window", "is not a duration"),
    ({"in": "5m", "window": "50%"}, "schedule.window", "no rhythm"),
    ({"cron": "0 3 * * *", "start": "soon"}, "schedule.start", "is not a time"),
    ("x" * 100_000, "schedule", "100000 characters"),
    (["0 3 * * *"], "schedule", "neither text nor an object"),
    (None, "schedule", "neither text nor an object"),
    (5, "schedule", "neither text nor an object"),
]


@pytest.mark.parametrize(("raw", "field", "message"), BAD, ids=[repr(raw)[:60] for raw, _, _ in BAD])
def test_what_cannot_be_scheduled_is_refused_by_its_field(raw: object, field: str, message: str) -> None:
    begun = time.process_time()
    with pytest.raises(errors.Invalid) as caught:
        parse(cast("str", raw))
    assert time.process_time() - begun < 0.1
    (problem,) = caught.value.problems
    assert problem.field == field
    assert message in problem.message
    assert len(str(problem)) < 500


def test_every_wrong_field_is_reported_at_once() -> None:
    with pytest.raises(errors.Invalid) as caught:
        parse({"cron": "0 99 * * *", "timezone": "Europe/Berln", "start": "x"}, window="no")
    assert [(problem.field, problem.column) for problem in caught.value.problems] == [
        ("schedule.timezone", None),
        ("schedule.cron", 3),
        ("window", None),
        ("schedule.start", None),
    ]
    assert all(problem.accepted for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("timezone", "window", "field"), [("Asia/Tokyo", None, "timezone"), (None, "5m", "window")]
)
def test_two_different_answers_to_one_question_are_refused(
    timezone: str | None, window: str | None, field: str
) -> None:
    with pytest.raises(errors.Invalid, match="differs from the schedule's own") as caught:
        parse({"cron": "0 3 * * *", "timezone": "UTC", "window": "10m"}, timezone=timezone, window=window)
    assert caught.value.problems[0].field == field


def test_a_zone_beside_the_schedule_is_blamed_where_it_stands() -> None:
    with pytest.raises(errors.Invalid) as caught:
        parse("0 3 * * *", timezone="Europe/Berln")
    assert caught.value.problems[0].field == "timezone"


def test_a_schedule_that_never_fires_is_refused_at_its_days() -> None:
    with pytest.raises(errors.Invalid) as caught:
        parse(" 0 0  30 2 *")
    assert caught.value.problems[0].column == 7


# ── what is stored ───────────────────────────────────────────────────────────────────────────────────────────────────


@given(parsed())
@settings(max_examples=200, deadline=None)
def test_the_canonical_text_reads_back_as_the_same_schedule(schedule: Schedule) -> None:
    text = schedule.canonical()
    assert load(text) == schedule
    assert load(text).canonical() == text
    assert next_slot(text, NOW) == schedule.next_after(NOW)
    assert json.dumps(json.loads(text), separators=(",", ":"), sort_keys=True) == text


def test_a_herd_shares_one_text_and_one_computation() -> None:
    texts = {parse(raw, timezone="Asia/Tokyo").canonical() for raw in ("@daily", " 0 0 * * *", "0 0  *  * *")}
    (text,) = texts
    next_slot.cache_clear()
    for _ in range(1000):
        next_slot(text, NOW)
    assert next_slot.cache_info().misses == 1


@given(parsed(), moments, st.lists(st.integers(-200_000, 200_000), max_size=5))
@settings(max_examples=100, deadline=None)
def test_a_slot_that_is_remembered_is_the_one_that_would_be_found(
    schedule: Schedule, t: datetime, steps: list[int]
) -> None:
    for step in (0, *steps):
        then = t + timedelta(seconds=step)
        assert first_after(schedule, then) == schedule.next_after(then)


def test_a_cron_text_is_read_once_unless_it_depends_on_who_has_it() -> None:
    assert parse("7 3 * * *") is parse("7 3 * * *")
    assert parse("7 3 * * *", timezone="Asia/Tokyo") != parse("7 3 * * *")
    assert parse("H H * * *", seed="a") != parse("H H * * *", seed="b")
    assert parse("in 5m", now=NOW) != parse("in 5m", now=NOW + timedelta(minutes=1))
    assert parse("every 5m", now=NOW) != parse("every 5m", now=NOW + timedelta(minutes=1))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"cron":5}', '{"at":"x","timezone":"UTC"}', '{"cron":"0 3 * * *","timezone":"Gone/Zone"}'])  # fmt: skip
def test_a_text_that_is_no_stored_schedule_is_refused(text: str) -> None:
    with pytest.raises(errors.Invalid):
        load(text)


# ── slots ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(parsed(), moments)
@settings(max_examples=200, deadline=None)
def test_slots_are_strictly_later_within_the_bounds_and_none_is_stepped_over(
    schedule: Schedule, after: datetime
) -> None:
    found = slots(schedule, after, None, 5)
    assert all(earlier < later for earlier, later in pairwise([after, *found]))
    for slot in found:
        assert slot.utcoffset() == timedelta()
        assert schedule.start is None or schedule.start <= slot
        assert schedule.end is None or slot <= schedule.end
        assert schedule.next_after(slot - MICROSECOND) == slot
    if found:
        assert slots(schedule, after, found[-1], 100) == found
        assert slots(schedule, after, found[-1] - MICROSECOND, 100) == found[:-1]


@given(lengths, moments, moments)
@settings(max_examples=200, deadline=None)
def test_a_fixed_rate_never_drifts_from_its_anchor(
    every: timedelta, anchor: datetime, after: datetime
) -> None:
    schedule = parse({"every": durations.write(every), "anchor": anchor.isoformat()})
    found = schedule.next_after(after)
    assert found is not None
    assert (found - anchor) % every == timedelta()
    assert after < found <= after + every


@given(st.timedeltas(timedelta(seconds=1), timedelta(days=9999)), moments)
def test_the_first_slot_of_a_rate_comes_one_period_after_the_second_it_was_made_in(
    every: timedelta, now: datetime
) -> None:
    assume(now + every < HORIZON)
    schedule = parse({"every": durations.write(every)}, now=now)
    assert schedule.next_after(now) == now.replace(microsecond=0) + every


def test_an_anchor_in_the_future_sets_the_phase_only() -> None:
    schedule = parse({"every": "1h", "anchor": "2027-06-01T00:20:00Z"})
    assert schedule.next_after(NOW) == at("2027-01-01T12:20Z")


def test_a_one_off_has_one_slot() -> None:
    schedule = parse("in 5m")
    assert slots(schedule, NOW, None, 10) == [NOW + timedelta(minutes=5)]
    assert schedule.next_after(NOW + timedelta(minutes=5)) is None


def test_both_bounds_belong_to_the_schedule() -> None:
    schedule = parse({"cron": "0 * * * *", "start": "2027-06-01T09:00:00Z", "end": "2027-06-01T11:00:00Z"})
    assert slots(schedule, NOW, None, 10) == [at(f"2027-06-01T{hour}:00Z") for hour in ("09", "10", "11")]


@pytest.mark.parametrize(
    "raw", ["* * * * * *", "every 1s", {"every": "36000d", "anchor": "1990-01-01T00:00:00Z"}]
)
def test_times_at_the_ends_of_time_are_answered(raw: str | dict[str, object]) -> None:
    schedule = parse(raw, timezone="America/New_York")
    assert schedule.next_after(datetime.max.replace(tzinfo=UTC)) is None
    first = schedule.next_after(datetime.min.replace(tzinfo=UTC))
    assert first is not None
    assert first.year >= 1970


@pytest.mark.parametrize(
    "raw", ["* * * * * *", "every 1s", {"every": "36000d", "anchor": "1990-01-01T00:00:00Z"}]
)
def test_nothing_is_due_beyond_the_horizon(raw: str | dict[str, object]) -> None:
    assert parse(raw).next_after(HORIZON - timedelta(seconds=1)) is None


def test_a_time_without_a_zone_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="without a zone"):
        parse("@daily").next_after(NOW.replace(tzinfo=None))


# ── windows ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(parsed(), st.uuids(), moments)
@settings(max_examples=200, deadline=None)
def test_a_job_starts_in_its_window_and_before_the_next_slot(
    schedule: Schedule, job_id: UUID, after: datetime
) -> None:
    for slot in slots(schedule, after, None, 2):
        effective = effective_at(schedule, job_id, slot)
        following = schedule.next_after(slot)
        assert slot <= effective
        assert following is None or effective < following
        if schedule.window is None:
            assert effective == slot
        elif isinstance(schedule.window, timedelta):
            assert effective < slot + schedule.window
        elif following is not None:
            assert effective - slot <= (following - slot) * schedule.window.hundredths / 10_000


def test_a_job_keeps_its_place_from_slot_to_slot() -> None:
    schedule = parse("0 * * * *", window="10m")
    job_id = uuid4()
    offsets = {effective_at(schedule, job_id, slot) - slot for slot in slots(schedule, NOW, None, 50)}
    assert len(offsets) == 1


@pytest.mark.parametrize(("window", "span"), [("10m", timedelta(minutes=10)), ("50%", timedelta(minutes=30))])
def test_a_herd_is_spread_evenly_over_the_window(window: str, span: timedelta) -> None:
    schedule = parse("0 * * * *", window=window)
    slot = at("2027-01-02T03:00Z")
    tenths = [0] * 10
    for number in range(5000):
        tenths[int((effective_at(schedule, UUID(int=number), slot) - slot) / span * 10)] += 1
    assert min(tenths) > 400
    assert max(tenths) < 600


def test_the_place_in_the_window_is_the_same_in_every_process_and_release() -> None:
    schedule = parse("0 * * * *", window="10m")
    slot = at("2027-01-02T03:00Z")
    job_id = UUID("018f3c5a-0000-7000-8000-000000000001")
    # Moving jobs around in their windows would be a change that users notice: it needs a decision, not an accident.
    assert effective_at(schedule, job_id, slot) == at("2027-01-02T03:04:31.024Z")
