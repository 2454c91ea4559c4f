"""The forecast adds up, also from a sample, and is made once a minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from cronwell.control import forecast
from cronwell.runtime.clock import ManualClock
from tests.support.house import CALLER, HANDLER, TENANT, House

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)


async def _herd(house: House, count: int, schedule: str) -> None:
    raws = [{"name": f"herd-{count}-{n}", "schedule": schedule, "target": HANDLER} for n in range(count)]
    assert all(each.error is None for each in await house.jobs.create_many(CALLER, raws))


async def test_every_minute_of_a_day_is_told_with_its_peak(still_house: House, clock: ManualClock) -> None:
    clock.advance(timedelta(seconds=20))
    await _herd(still_house, 30, "0 15 * * *")
    await _herd(still_house, 2, "*/30 * * * *")
    await still_house.create("five", schedule={"cron": "*/10 * * * *", "max_runs": 5})
    await still_house.create("bare")
    held = await still_house.create("held", schedule="* * * * * *")
    await still_house.jobs.pause(TENANT, str(held))
    found = await still_house.forecast.forecast(TENANT)
    assert (found.from_, found.to) == (NOON, NOON + timedelta(days=1))
    assert (len(found.minutes), found.total) == (1440, 30 + 2 * 47 + 5)
    assert (found.jobs, found.is_sampled, found.share) == (33, False, 1.0)
    assert (found.peak.at, found.peak.count) == (NOON + timedelta(hours=3), 32)
    assert [found.minutes[minute] for minute in (0, 10, 30, 50, 60, 180)] == [0, 1, 3, 1, 2, 32]


async def test_without_jobs_there_is_nothing_to_come(still_house: House) -> None:
    found = await still_house.forecast.forecast(TENANT)
    assert (found.total, found.jobs, found.share, found.is_sampled) == (0, 0, 1.0, False)


async def test_more_jobs_than_are_counted_are_sampled_and_scaled_up(
    still_house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _herd(still_house, 3000, "0 15 * * *")
    await still_house.database.execute("analyze cursors")
    monkeypatch.setattr(forecast, "MOST_JOBS", 1500)
    found = await still_house.forecast.forecast(TENANT)
    assert found.is_sampled
    assert found.share == pytest.approx(0.5)
    assert found.minutes[180] == found.total == found.jobs
    # Whole pages are drawn, each for itself: of these some 70 about half.
    assert 1500 < found.total < 4500


async def test_what_there_is_no_time_for_is_taken_to_be_like_the_rest(
    still_house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _herd(still_house, 50, "0 15 * * *")
    for minute in range(20):
        await still_house.create(f"single-{minute}", schedule=f"{minute} 16 * * *")
    ticks = iter(range(100))
    monkeypatch.setattr(
        "cronwell.control.forecast.time", SimpleNamespace(monotonic=lambda: float(next(ticks)))
    )
    monkeypatch.setattr(forecast, "BUDGET", timedelta(seconds=11))
    found = await still_house.forecast.forecast(TENANT)
    assert found.is_sampled
    assert found.share == pytest.approx(60 / 70)
    assert (found.minutes[180], sum(found.minutes[240:260])) == (50, 20)


async def test_an_answer_is_kept_for_a_minute(still_house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await still_house.create("one", schedule="0 15 * * *")
    first = await still_house.forecast.forecast(TENANT)
    await still_house.create("two", schedule="0 15 * * *")
    assert await still_house.forecast.forecast(TENANT) is first
    monkeypatch.setattr(forecast, "KEPT", timedelta())
    still_house.forecast._kept.clear()
    assert (await still_house.forecast.forecast(TENANT)).total == 2
    await still_house.create("three", schedule="0 15 * * *")
    assert (await still_house.forecast.forecast(TENANT)).total == 3


async def test_a_plan_that_cannot_be_read_fires_nothing(still_house: House) -> None:
    await still_house.create("good", schedule="0 15 * * *")
    bad = await still_house.create("bad", schedule="0 15 * * *")
    await still_house.database.execute("update cursors set plan = '{}' where job_id = $1", bad)
    assert (await still_house.forecast.forecast(TENANT)).total == 1
