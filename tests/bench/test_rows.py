"""The pure parts of the rows: open-loop timing, ladders, growth, and what is made of meters."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from cronwell.bench.cost import Reading
from cronwell.bench.fleet import free_ports
from cronwell.bench.rows import ROWS, create, scale, steady
from cronwell.bench.rows.scale import Plan, Rung
from cronwell.bench.waves import Meters, Staged, Wave, least_of, metric, staged_of, stretch_of
from cronwell.bench.web import growth, in_ms, open_loop
from cronwell.cli import bench
from cronwell.config import Settings
from cronwell.control.definitions import judge
from cronwell.control.paging import read_cursor
from tests.bench.test_load import NOON

QUANTILES = ("p50", "p99")


async def test_time_is_counted_from_when_a_call_was_to_begin() -> None:
    async def act(number: int) -> None:
        if number == 0:
            # The whole loop stands still, so that the others cannot even be sent in time.
            until = time.perf_counter() + 0.2
            while time.perf_counter() < until:
                pass

    took = await open_loop(act, rate=1000, count=10)
    assert took[0] >= 0.2
    assert min(took) >= 0.19
    assert took[9] < took[0]


async def test_a_slow_call_does_not_hold_up_those_after_it() -> None:
    released = asyncio.Event()
    begun: list[int] = []

    async def act(number: int) -> None:
        begun.append(number)
        if number == 0:
            await released.wait()
        elif number == 4:
            released.set()

    async with asyncio.timeout(10):
        took = await open_loop(act, rate=1000, count=5)
    assert begun == [0, 1, 2, 3, 4]
    assert took[0] >= 0.004


def test_quantiles_are_those_of_values_that_were_measured() -> None:
    assert in_ms([0.001 * n for n in range(200, 0, -1)]) == {"p50": 100.0, "p99": 198.0, "max": 200.0}
    assert in_ms([0.5]) == {"p50": 500.0, "p99": 500.0, "max": 500.0}


@pytest.mark.parametrize(
    ("small", "large", "grown"),
    [((1.0, 10.0), (2.9, 11.9), 1.0), ((1.0, 10.0), (3.5, 11.0), 3.5), ((4.0, 10.0), (8.0, 30.0), 3.0)],
)
def test_growth_is_that_of_the_worst_figure_and_small_differences_are_none(
    small: tuple[float, float], large: tuple[float, float], grown: float
) -> None:
    before, after = (dict(zip(QUANTILES, each, strict=True)) for each in (small, large))
    assert growth(before, after, slack=2.0, names=QUANTILES) == grown


def test_a_ladder_goes_from_the_smallest_to_the_largest() -> None:
    assert scale.ladder(Plan()) == [100_000, 1_000_000, 10_000_000]
    assert scale.ladder(scale.QUICK) == [1000, 5000]
    assert scale.ladder(Plan(smallest=10, largest=50, step=3)) == [10, 30, 50]


def test_staging_costs_what_was_spent_beyond_what_idling_costs() -> None:
    def at(seconds: float, cpu: float, staged: float, slots: float) -> Meters:
        reading = Reading({"scheduler": cpu, "postgresql": 2 * cpu}, round(1000 * slots), 0)
        return Meters(seconds, 5 * cpu, reading, staged, slots)

    idle_from, before, after = at(0, 0, 0, 0), at(10, 0.1, 0, 0), at(20, 1.2, 0.5, 10_000)
    found = staged_of(idle_from, before, after, 50_000_000)
    assert found.gross_cpu_us == {"scheduler": pytest.approx(110), "postgresql": pytest.approx(220)}
    assert found.idle_cpu == pytest.approx(0.03)
    assert found.cpu_us == pytest.approx(300)
    assert found.wall_us == pytest.approx(50)
    assert (found.wal_bytes, found.memory_mb) == (1000, 50)
    # Of 5.5 seconds of the machine 3.3 were ours, within ten.
    assert found.others_cpu == pytest.approx(0.22)
    # Nothing that the meters can tell is not nothing.
    assert staged_of(before, after, after, 0).cpu_us > 0


def test_of_several_waves_the_least_counts_whether_the_wave_or_the_idling_was_disturbed() -> None:
    quiet = Staged(60.0, {"postgresql": 60.0, "scheduler": 40.0}, 50.0, 1000, 0.04, 40.0, 80.0, 0.0)
    disturbed = Staged(110.0, {"postgresql": 90.0, "scheduler": 60.0}, 90.0, 1000, 0.04, 40.0, 85.0, 1.0)
    # An autovacuum fell into its idling, so that staging seems to cost nothing.
    free = Staged(0.5, {"postgresql": 50.0, "scheduler": 40.0}, 45.0, 1000, 0.2, 200.0, 80.0, 0.0)
    assert least_of([disturbed, quiet]).cpu_us == 60.0
    assert least_of([disturbed, quiet]).memory_mb == 85.0
    assert (least_of([quiet, free]).cpu_us, least_of([quiet, free]).wall_us) == (50.0, 45.0)
    assert least_of([disturbed]) == disturbed


@pytest.mark.parametrize(
    ("jobs", "stretch"),
    [
        # As the whole table in 900 s, so a fifteenth of it in 60.
        (9_000_000, range(4_200_000, 4_800_000)),
        # No job has two slots in one wave.
        (100_000, range(20_000, 80_000)),
        (60_000, range(60_000)),
    ],
)
def test_a_wave_is_to_its_stretch_what_the_time_between_checkpoints_is_to_all(
    jobs: int, stretch: range
) -> None:
    assert stretch_of(jobs, Wave(1000, 60, 20), 900.0) == stretch


def test_a_wave_longer_than_the_time_between_checkpoints_is_of_all_jobs() -> None:
    assert stretch_of(1_000_000, Wave(1000, 60, 20), 30.0) == range(1_000_000)


def test_the_largest_rung_is_judged_by_the_smallest() -> None:
    def rung(jobs: int, cost: float, memory: float, p99: float) -> Rung:
        staged = Staged(cost, {}, cost, 0, 0, 0, memory, 0)
        return Rung(jobs, 0, 0, staged, staged, {"create": {"p50": 1.0, "p99": p99}}, 1.0)

    checks = scale.checks_of([rung(10, 100, 290, 10), rung(100, 500, 310, 80), rung(1000, 120, 100, 14)])
    assert [(round(check.measured, 3), check.is_met) for check in checks] == [
        (1.2, True),
        (1.2, True),
        (310, False),
        (1.4, True),
    ]


def test_one_metric_is_found_among_others() -> None:
    text = '# HELP a\na_total{verdict="staged"} 12.0\na_total{verdict="skipped"} 3.0\na 1e-05\n'
    assert metric(text, 'a_total{verdict="staged"}') == 12
    assert metric(text, "a") == 1e-05
    assert metric(text, "total") == 0


def test_deep_pages_begin_in_the_middle_of_all_names() -> None:
    pages = scale.pages_of(1000)
    assert (read_cursor(pages["deep page"]["cursor"], 2) or [""])[0] == "bench-00000500"
    assert "cursor" not in pages["first page"]
    assert pages["first page of a team"]["tag"] == pages["deep page of a team"]["tag"] == "team:team-0"


def test_jobs_of_a_batch_are_all_good_and_differ_in_name() -> None:
    lines = list(create.lines_of("x", range(1440)))
    assert len(set(lines)) == 1440
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    first = judge(create.job_of("x", 61), now=NOON, settings=Settings())
    assert first.raw["schedule"] == "1 1 * * *"


def test_ports_in_a_row_are_free() -> None:
    first = free_ports("127.0.0.1", 3)
    for port in range(first, first + 3):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_the_help_names_every_row() -> None:
    assert tuple(ROWS) == bench.NAMES


def test_a_steady_rate_is_a_share_of_a_high_limit() -> None:
    plan = steady.Plan(rate=1000, share=0.5)
    assert steady.rate_of(plan, 1500.0) == 1000
    # Enough to be the share also where a hundredth of it is not done in time.
    assert steady.rate_of(plan, 4000.0) == 2100
    assert steady.rate_of(steady.QUICK, 50_000.0) == steady.QUICK.rate
