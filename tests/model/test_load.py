"""Fires per minute agree with the slots themselves, whichever way they are counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronwell.model.load import MINUTE, WALKED, fires
from cronwell.model.schedule import Schedule, parse, slots

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)


def _schedule(text: object, **fields: str) -> Schedule:
    return parse(text, timezone=None, window=fields.get("window"), now=NOON, seed="job")  # type: ignore[arg-type]  # any form of it


def _counted(schedule: Schedule, minutes: int) -> list[float]:
    counts = [0.0] * minutes
    end = NOON + minutes * MINUTE - TICK
    for slot in slots(schedule, NOON - TICK, end, 1_000_000):
        counts[(slot - NOON) // MINUTE] += 1
    return counts


@pytest.mark.parametrize(
    "text",
    [
        "0 3 * * *",
        "*/7 * * * *",
        "*/20 * * * * *",
        "every 15s",
        "every 7m",
        "every 90s",
        {"every": "45s", "start": "2026-05-05T12:10:20Z", "end": "2026-05-05T13:00:00Z"},
        {"cron": "30 14-16 * * *", "timezone": "Asia/Kathmandu"},
        {"any": [{"cron": "*/5 * * * *"}, {"every": "3m"}]},
        {"at": ["2026-05-05T12:01:00Z", "2026-05-05T12:59:59Z"]},
    ],
)
def test_each_minute_has_as_many_fires_as_it_has_slots(text: object) -> None:
    schedule = _schedule(text)
    assert fires(schedule, NOON - TICK, NOON, 180) == _counted(schedule, 180)


@settings(max_examples=50)
@given(every=st.integers(1, 5000), shift=st.integers(-100_000, 100_000))
def test_a_rate_is_counted_like_its_slots(every: int, shift: int) -> None:
    anchor = (NOON + timedelta(seconds=shift)).isoformat()
    schedule = _schedule({"every": f"{every}s", "anchor": anchor})
    assert fires(schedule, NOON - TICK, NOON, 60) == _counted(schedule, 60)


@pytest.mark.parametrize("text", ["*/5 * 13-16 * * *", "* 30-45 * * * *", "0/2 * * * * *"])
def test_a_schedule_with_many_slots_a_minute_is_not_walked_to_its_end(text: str) -> None:
    schedule = _schedule(text)
    counted = _counted(schedule, 600)
    assert sum(counted) > WALKED
    assert fires(schedule, NOON - TICK, NOON, 600) == counted


def test_a_day_of_seconds_costs_some_thousand_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule, steps = _schedule("* * * * * *"), 0
    search = Schedule.next_after

    def counted(self: Schedule, t: datetime) -> datetime | None:
        nonlocal steps
        steps += 1
        return search(self, t)

    monkeypatch.setattr(Schedule, "next_after", counted)
    assert sum(fires(schedule, NOON - TICK, NOON, 1440)) == 86_400
    assert steps <= WALKED + 1440 + 1


def test_a_window_spreads_its_fires() -> None:
    schedule = _schedule("0 * * * *", window="30m")
    counts = fires(schedule, NOON - TICK, NOON, 60)
    assert counts[:30] == [pytest.approx(1 / 30)] * 30
    assert counts[30:] == [0.0] * 30
    later = fires(schedule, NOON + 15 * MINUTE, NOON + 15 * MINUTE, 60)
    assert sum(later) == pytest.approx(1.0), "the rest of this hour's window, and a part of the next one's"
    assert later[:15] == [pytest.approx(1 / 30)] * 15


def test_no_more_fires_than_runs_are_left() -> None:
    assert sum(fires(_schedule("* * * * *"), NOON, NOON, 60, runs_left=7)) == 7
    assert sum(fires(_schedule("every 1m"), NOON, NOON, 60, runs_left=7)) == 7


def test_a_fixed_delay_is_counted_as_if_executions_took_no_time() -> None:
    assert sum(fires(_schedule("every 10m after finish"), NOON, NOON, 61)) == 6


@pytest.mark.parametrize("text", ["*/20 * * * * *", {"every": "20s", "anchor": "2026-05-05T12:00:00Z"}])
def test_what_has_fired_in_the_minute_under_way_is_left_out(text: object) -> None:
    assert fires(_schedule(text), NOON + timedelta(seconds=20), NOON, 2) == [1.0, 3.0]
