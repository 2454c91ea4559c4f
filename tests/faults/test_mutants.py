"""The test of the test: the product without one of its safeguards is caught, each time by the promise that it breaks."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from tests.faults import mutants, oracle
from tests.faults.checker import check
from tests.faults.clock_changes import NAMES, falls_back
from tests.faults.cluster import Shape
from tests.faults.load import Size
from tests.faults.pace import lasting
from tests.faults.run import Plan, Stage, run
from tests.faults.wire_faults import CommitHeld, OneWay

SMALL = Shape(apis=1, look_ahead=3.0, scheduler_lease=1.0, worker_lease=3.0, heartbeat=0.5)
QUIET = Size(seconds=4, fives=0, minutes=0, longs=0, solos=0, storms=0, hostile=False)
BUDGET_SECONDS = 90.0


def _shape(mutant: str, **zones: str) -> Shape:
    often = {"CRONWELL_SCHEDULER_TICK": "100ms"}
    return dataclasses.replace(SMALL, extra={**mutants.environ(mutant, zones), **often})


async def _caught(mutant: str, folder: Path, act: object, size: Size = QUIET) -> set[str]:
    """The promises that a mutant breaks."""
    began = time.monotonic()
    plan = Plan(mutant, 0, (), _shape(mutant), size, settle=1.0, patience=2.0)
    outcome = await run(plan, folder, act=act)  # type: ignore[arg-type]  # an act of this file
    found = {violation.promise for violation in check(outcome.history)}
    assert time.monotonic() - began < BUDGET_SECONDS
    return found


async def test_staging_without_the_epoch_check_is_caught(tmp_path: Path) -> None:
    async def hold_commits(stage: Stage) -> None:
        for _ in range(3):
            await stage.nemesis.inject(CommitHeld("scheduler"))

    assert "S6" in await _caught(
        "no_epoch_check", tmp_path, hold_commits, dataclasses.replace(QUIET, seconds=12)
    )


async def test_a_cursor_that_moves_before_the_insert_is_caught(tmp_path: Path) -> None:
    assert "S5" in await _caught("cursor_first", tmp_path, _wait)


async def test_a_cursor_that_moves_without_compare_and_set_is_caught(tmp_path: Path) -> None:
    storm = dataclasses.replace(QUIET, storms=3, storm_pause=0.1)

    async def wait(stage: Stage) -> None:
        await lasting(12)

    found = await _caught("no_compare_and_set", tmp_path, wait, storm)
    assert found & {"S2", "S5", "S11"}


async def test_a_result_without_its_fence_is_caught(tmp_path: Path) -> None:
    async def silence_workers(stage: Stage) -> None:
        await lasting(1)
        for _ in range(2):
            mute = OneWay("worker", is_deaf=False, seconds=SMALL.worker_lease + 2.5)
            await stage.nemesis.inject(mute)
            await lasting(1)

    assert "S8" in await _caught("no_fence", tmp_path, silence_workers, dataclasses.replace(QUIET, solos=8))


async def test_random_execution_ids_are_caught(tmp_path: Path) -> None:
    assert "S13" in await _caught("random_ids", tmp_path, _wait)


async def _wait(stage: Stage) -> None:
    del stage
    await lasting(5)


async def test_cron_arithmetic_that_fires_twice_when_a_clock_goes_back_is_caught(tmp_path: Path) -> None:
    assert "S2" in await _through_the_night("double_fire", tmp_path)


async def test_the_product_fires_once_when_a_clock_goes_back(tmp_path: Path) -> None:
    assert await _through_the_night("", tmp_path) == set()


async def _through_the_night(mutant: str, folder: Path) -> set[str]:
    """The promises that are broken while clocks go back in three zones."""
    first_pass = int(time.time()) + 35
    changes = [falls_back(zone, first_pass + n, near=3600 * n) for n, zone in enumerate(NAMES[:3])]
    rules = {change.zone: change.posix for change in changes}
    oracle.go_by(rules)

    async def sleep_through(stage: Stage) -> None:
        for change in changes:
            schedule = {"cron": change.cron, "timezone": change.zone}
            await stage.load.create_job(f"night/{change.zone}", schedule)
        await lasting(first_pass + 12 - time.time())

    plan = Plan(mutant, 0, (), _shape(mutant, **rules), QUIET, settle=0.5, patience=5.0)
    try:
        outcome = await run(plan, folder, act=sleep_through)
        due = [row.key[2] for row in outcome.history.end.executions]
        assert {change.slot for change in changes} <= set(due), (
            "the clocks changed before the jobs were there"
        )
        return {violation.promise for violation in check(outcome.history)}
    finally:
        oracle.go_by({})
