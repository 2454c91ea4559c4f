"""Which past slots a backfill runs, in which order and how fast: pure, by properties."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronwell.model import backfill
from cronwell.model.backfill import PastSlot, Span
from cronwell.model.schedule import parse, slots

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
SCHEDULES = [
    parse(text, timezone=zone, window=None, now=NOON)
    for text, zone in (
        ("* * * * *", None),
        ("0 9 * * MON-FRI", "Europe/Berlin"),
        ("30 2 * * *", "America/New_York"),
        ("0-59 * 3 * * *", None),
        ("every 7m", None),
        ("at 2026-10-25T01:30:00Z", None),
    )
]

_lengths = st.integers(0, 1000).map(lambda minutes: minutes * MINUTE)


@st.composite
def _spans(draw: st.DrawFn) -> list[Span]:
    """Stretches of up to 17 hours around the clock changes of 2026, one after the other."""
    at = draw(
        st.sampled_from([NOON, datetime(2026, 3, 8, tzinfo=UTC), datetime(2026, 10, 24, 20, tzinfo=UTC)])
    )
    made: list[Span] = []
    for number in range(draw(st.integers(0, 3))):
        begin = at + draw(_lengths) / 10
        end = begin + draw(_lengths)
        made.append(Span(draw(st.sampled_from(SCHEDULES)), begin, end, number or None))
        at = end
    return made


def _all(spans: list[Span]) -> list[PastSlot]:
    return [
        PastSlot(slot, span.revision)
        for span in spans
        for slot in slots(span.schedule, span.begin - TICK, span.end - TICK, 1_000_000)
    ]


@settings(deadline=None)  # hours of seconds take a while
@given(spans=_spans(), sizes=st.lists(st.integers(20, 400), min_size=1, max_size=4), is_newest=st.booleans())
def test_step_by_step_each_slot_comes_once_and_in_order(
    spans: list[Span], sizes: list[int], is_newest: bool
) -> None:
    found: list[PastSlot] = []
    reached = None
    number = 0
    while True:
        size = sizes[number % len(sizes)]
        part = backfill.following(spans, reached, is_newest_first=is_newest, limit=size)
        assert len(part) <= size
        if not part:
            break
        found += part
        reached = part[-1].slot
        number += 1
    expected = _all(spans)
    assert found == (expected[::-1] if is_newest else expected)


@settings(deadline=None)  # hours of seconds take a while
@given(spans=_spans(), size=st.integers(20, 500))
def test_the_parts_are_all_slots(spans: list[Span], size: int) -> None:
    assert [each for part in backfill.parts(spans, size) for each in part] == _all(spans)


@given(spans=_spans())
def test_spans_are_read_back_as_they_were_written(spans: list[Span]) -> None:
    assert list(backfill.load(backfill.write(spans))) == spans


@given(
    rate=st.floats(backfill.SLOWEST, backfill.FASTEST),
    steps=st.lists(st.integers(0, 5000).map(lambda ms: timedelta(milliseconds=ms)), max_size=20),
    most=st.integers(0, 50),
)
def test_starts_are_never_closer_than_the_rate_and_never_in_the_past(
    rate: float, steps: list[timedelta], most: int
) -> None:
    now, following = NOON, NOON
    found: list[datetime] = []
    for step in steps:
        made = backfill.starts(following, rate, now=now, until=now + SECOND, most=most)
        assert len(made) <= most
        assert all(now <= at <= now + SECOND for at in made)
        if made:
            following = made[-1] + SECOND / rate
        found += made
        now += step
    assert all(after - before >= SECOND / rate - 2 * TICK for before, after in pairwise(found))


@pytest.mark.parametrize(
    ("given", "rate", "written"),
    [
        (10, 10.0, "10/s"),
        (0.5, 0.5, "30/m"),
        ("10/s", 10.0, "10/s"),
        ("100/m", 100 / 60, "100/m"),
        ("30 / h", 30 / 3600, "30/h"),
        ("1/h", 1 / 3600, "1/h"),
        ("2.5/s", 2.5, "150/m"),
        ("3.14159/s", 3.14159, "3.14159/s"),
        ("1.23456/h", 1.23456 / 3600, "1.23456/h"),
        ("1000/s", 1000.0, "1000/s"),
    ],
)
def test_a_rate_is_read_and_written(given: Any, rate: float, written: str) -> None:
    assert backfill.read_rate(given) == pytest.approx(rate)
    assert backfill.write_rate(rate) == written


@pytest.mark.parametrize(
    "given", ["", "10", "10/d", "-1/s", "1e3/s", "1001/s", "0.5/h", 0, -1, 1e9, "9" * 60]
)
def test_what_is_no_rate_is_refused_with_what_is(given: Any) -> None:
    with pytest.raises(ValueError, match="10/s"):
        backfill.read_rate(given)


def test_the_slot_at_the_instant_of_an_edit_is_the_old_definitions() -> None:
    begin, end = NOON, NOON + 10 * MINUTE
    old = backfill.held(NOON - MINUTE, NOON + 5 * MINUTE, begin, end)
    new = backfill.held(NOON + 5 * MINUTE, None, begin, end)
    assert (old[0], old[1], new[1]) == (begin, new[0], end)
    assert old[0] <= NOON + 5 * MINUTE < old[1]


def test_one_at_a_time_the_order_is_the_same() -> None:
    spans = [
        Span(SCHEDULES[0], NOON, NOON + 5 * MINUTE, 1),
        Span(SCHEDULES[4], NOON + 5 * MINUTE, NOON + 30 * MINUTE),
    ]
    for is_newest in (False, True):
        found: list[PastSlot] = []
        while part := backfill.following(
            spans, found[-1].slot if found else None, is_newest_first=is_newest, limit=1
        ):
            found += part
        assert found == (_all(spans)[::-1] if is_newest else _all(spans))
        assert len(found) > 6
