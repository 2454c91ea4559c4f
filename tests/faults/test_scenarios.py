"""Minutes of faults. `make faults` runs these; each prints its table, and on a violation the command that repeats it."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults import cables, nemesis, scenarios
from tests.faults.checker import check
from tests.faults.cluster import Shape
from tests.faults.history import History
from tests.faults.load import Size
from tests.faults.options import Options
from tests.faults.process_faults import Killed
from tests.faults.report import Report
from tests.faults.run import Act, Plan, run
from tests.faults.wire_faults import CommitCut
from tests.support.redis import needs_redis

pytestmark = pytest.mark.faults

DEFAULTS = Shape(look_ahead=60.0, scheduler_lease=4.0, worker_lease=30.0, heartbeat=5.0)
STEADY = Size(seconds=20, fives=10, minutes=4, longs=0, solos=0, storms=0, hostile=False, topics=0)

Measure = Callable[[History], dict[str, Any]]


def _tell(what: str) -> None:
    sys.stderr.write(what + "\n")


async def _judged(
    scenario: str, plan: Plan, folder: Path, *, act: Act | None = None, measure: Measure = lambda _: {}
) -> Report:
    options = Options.read()
    outcome = await run(plan, folder, _tell, act)
    history = outcome.history
    report = Report(
        scenario, options.command(scenario), history, check(history), outcome.skipped, measure(history)
    )
    _tell(report.show())
    if options.evidence is not None:
        report.keep(options.evidence, options.coordination)
    if report.violations:
        (folder / "nodes.log").write_text(outcome.logs)
        _tell(f"what the processes said: {folder / 'nodes.log'}")
    return report


def _shape(shape: Shape) -> Shape:
    return dataclasses.replace(shape, coordination=Options.read().coordination)


async def test_mixed(tmp_path: Path) -> None:
    """Every fault that this machine allows, in an order that the seed gives, under every kind of load."""
    options = Options.read()
    plan = Plan(options.seed, options.minutes * 60, nemesis.everything(), _shape(Shape()))
    report = await _judged("mixed", plan, tmp_path)
    assert report.violations == []


async def test_behind(tmp_path: Path) -> None:
    """The same with claims that never look back to the beginning, and staging that seldom does: nothing is overlooked."""
    options = Options.read()
    plan = Plan(
        options.seed, options.minutes * 60, nemesis.everything(), _shape(Shape()), mutant="always_short"
    )
    report = await _judged("behind", plan, tmp_path)
    assert report.violations == []


async def test_takeover(tmp_path: Path) -> None:
    """Schedulers killed one after the other: others have all their shards within ten seconds, each time."""
    options = Options.read()
    plan = Plan(options.seed, 0, (), _shape(dataclasses.replace(DEFAULTS, schedulers=3, apis=1)), STEADY)
    act = scenarios.kill_schedulers(options.kills)
    report = await _judged("takeover", plan, tmp_path, act=act, measure=scenarios.takeovers)
    assert report.violations == []
    assert report.figures["takeover max s"] <= 10.0


async def test_blackout(tmp_path: Path) -> None:
    """No scheduler for half a minute adds nothing: what is due was staged before."""
    plan = Plan(Options.read().seed, 0, (), _shape(dataclasses.replace(DEFAULTS, apis=1)), STEADY)
    fault = "kill -9 of every scheduler"
    report = await _judged(
        "blackout", plan, tmp_path, act=scenarios.black_out, measure=lambda h: scenarios.compared(h, fault)
    )
    assert report.violations == []
    figures = report.figures
    assert figures[f"{fault}: p50 ms"] <= figures["none: p50 ms"] + 10
    assert figures[f"{fault}: p99 ms"] <= max(250.0, 2 * figures["none: p99 ms"])


async def test_restarts(tmp_path: Path) -> None:
    """PostgreSQL restarted ten times under load: nothing is lost, and each time all has recovered in 15 s."""
    plan = Plan(Options.read().seed, 0, (), _shape(Shape()))
    report = await _judged(
        "restarts", plan, tmp_path, act=scenarios.restart_database, measure=scenarios.recoveries
    )
    assert report.violations == []
    assert report.figures["recovery max s"] <= 15.0


async def test_bus(tmp_path: Path) -> None:
    """S15: with every message of the bus lost, doubled or replayed nothing is wrong, and little is late."""
    plan = Plan(Options.read().seed, 0, (), _shape(Shape()), dataclasses.replace(Size(), hostile=False))
    lost = "bus messages lost"
    report = await _judged(
        "bus", plan, tmp_path, act=scenarios.spoil_the_bus, measure=lambda h: scenarios.compared(h, lost)
    )
    assert report.violations == []
    assert report.figures[f"{lost}: p99 ms"] <= report.figures["none: p99 ms"] + 1000


@needs_redis
async def test_broker(tmp_path: Path) -> None:
    """S16: the broker is killed and frozen; each execution is published, and other targets do not notice."""
    plan = Plan(Options.read().seed, 0, (), _shape(Shape()), dataclasses.replace(STEADY, topics=8))
    report = await _judged(
        "broker", plan, tmp_path, act=scenarios.lose_the_broker, measure=scenarios.publications
    )
    assert report.violations == []
    figures = report.figures
    assert figures["executions published"] > 0
    for fault in ("broker kill -9", "SIGSTOP of the broker"):
        assert figures[f"{fault}: p99 ms"] <= max(250.0, 2 * figures["none: p99 ms"])


async def test_without_etcd(tmp_path: Path) -> None:
    """L7: etcd is away for a minute, and firing goes on."""
    shape = dataclasses.replace(DEFAULTS, apis=1, coordination="etcd")
    plan = Plan(Options.read().seed, 0, (), shape, STEADY)
    fault = "etcd kill -9"
    report = await _judged(
        "without_etcd",
        plan,
        tmp_path,
        act=scenarios.stop_etcd,
        measure=lambda h: scenarios.compared(h, fault),
    )
    assert report.violations == []
    assert report.figures[f"{fault}: p99 ms"] <= report.figures["none: p99 ms"] + 1000


async def test_rolling(tmp_path: Path) -> None:
    """L3: a deploy adds no more than a second."""
    plan = Plan(Options.read().seed, 0, (), _shape(DEFAULTS), STEADY)
    fault = "rolling restart"
    report = await _judged(
        "rolling", plan, tmp_path, act=scenarios.roll, measure=lambda h: scenarios.compared(h, fault)
    )
    assert report.violations == []
    assert report.figures[f"{fault}: p100 ms"] <= report.figures["none: p100 ms"] + 1000


async def test_rescue(tmp_path: Path) -> None:
    """L5: what a killed worker had under way is tried again when its lease has run out, and not sooner."""
    size = dataclasses.replace(STEADY, seconds=4, fives=0, longs=8)
    plan = Plan(Options.read().seed, 0, (), _shape(DEFAULTS), size)
    report = await _judged("rescue", plan, tmp_path, act=scenarios.kill_workers, measure=scenarios.rescues)
    assert report.violations == []
    assert report.figures["rescued"] > 0
    # A lease counts from the last heartbeat; then come a sweep and the job's own delay before a retry, of a second each.
    assert DEFAULTS.worker_lease - DEFAULTS.heartbeat - 1 <= report.figures["soonest s"]
    assert report.figures["latest s"] <= DEFAULTS.worker_lease + 3


async def test_limits(tmp_path: Path) -> None:
    """S14: fifty workers, killed at random, never run more of a job or group than they may, and nothing stays held."""
    size = Size(seconds=4, fives=0, minutes=0, longs=0, solos=2, storms=0, hostile=False, limited=10)
    shape = _shape(
        dataclasses.replace(
            Shape(),
            schedulers=1,
            apis=1,
            workers=50,
            # Just below the half second by which work is claimed early: two cores cannot look more often for fifty.
            extra={"CRONWELL_DATABASE_POOL_SIZE": "2", "CRONWELL_WORKER_POLL": "400ms"},
            server={"max_connections": "400"},
        )
    )
    plan = Plan(Options.read().seed, 0, (), shape, size, patience=300.0)
    report = await _judged("limits", plan, tmp_path, act=scenarios.kill_limited, measure=scenarios.limited)
    assert report.violations == []
    assert report.figures["limited executions done"] >= 2000
    assert report.figures["most of one job at once"] == 1
    assert report.figures["most of one group at once"] == 3


async def test_calm(tmp_path: Path) -> None:
    """L1: without a fault everything starts on the instant."""
    plan = Plan(Options.read().seed, 0, (), _shape(DEFAULTS), STEADY)
    report = await _judged(
        "calm", plan, tmp_path, act=scenarios.rest, measure=lambda h: scenarios.compared(h, scenarios.CALM)
    )
    assert report.violations == []
    assert report.figures["none: p50 ms"] <= 20
    assert report.figures["none: p99 ms"] <= 250
    assert report.figures["none: p100 ms"] <= 1000


@pytest.mark.skipif(cables.unavailable() is not None, reason=str(cables.unavailable()))
async def test_cable(tmp_path: Path) -> None:
    """L4: a scheduler whose packets get lost adds nothing, and changes nothing when its cable is back."""
    plan = Plan(Options.read().seed, 0, (), DEFAULTS, STEADY)
    fault = "cable pulled (scheduler)"
    report = await _judged(
        "cable",
        plan,
        tmp_path,
        act=scenarios.pull_cables,
        measure=lambda h: {**scenarios.compared(h, fault), "deposed": scenarios.deposed(h, fault)},
    )
    assert report.violations == []
    assert report.figures["deposed"] == 3, "others take the shards of whom nobody hears"
    assert report.figures[f"{fault}: p99 ms"] <= max(250.0, 2 * report.figures["none: p99 ms"])


async def test_host(tmp_path: Path) -> None:
    """L8: a dead webhook host costs the others nothing."""
    plan = Plan(Options.read().seed, 0, (), _shape(DEFAULTS), STEADY)
    fault = scenarios.DEAD_HOST
    report = await _judged(
        "host", plan, tmp_path, act=scenarios.deaden_a_host, measure=lambda h: scenarios.compared(h, fault)
    )
    assert report.violations == []
    assert report.figures[f"{fault}: p99 ms"] <= report.figures["none: p99 ms"] * 1.1


async def test_night(tmp_path: Path) -> None:
    """Clocks go back in three zones and forward in two, while schedulers and workers are killed."""
    faults = [Killed("scheduler"), Killed("worker"), CommitCut("scheduler")]
    plan = Plan(Options.read().seed, 75.0, faults, _shape(Shape()), night_after=60.0)
    report = await _judged("night", plan, tmp_path)
    assert report.violations == []
