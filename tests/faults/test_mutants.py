"""The test of the test: the product without one of its safeguards is caught, each time by the promise that it breaks.

Several mutants run at the same time, each in a cluster of its own: they mostly wait, for leases to run out and clocks to
change. Each has a load and faults that give its lack a chance to show.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.faults.checker import check
from tests.faults.checks.facts import Violation
from tests.faults.cluster import Shape
from tests.faults.load import Size
from tests.faults.mutants import MUTANTS
from tests.faults.pace import lasting
from tests.faults.run import Act, Plan, Stage, run
from tests.faults.wire_faults import CommitHeld, OneWay
from tests.support.redis import LACKING, binary

SHAPE = Shape(
    apis=1,
    workers=1,
    schedulers=1,
    look_ahead=3.0,
    scheduler_lease=1.0,
    worker_lease=3.0,
    heartbeat=0.5,
    extra={"CRONWELL_SCHEDULER_TICK": "100ms"},
)
FEW = Size(seconds=4, fives=0, minutes=0, longs=0, solos=0, storms=0, hostile=False, topics=0)
TOPICS = replace(FEW, seconds=1, topics=2)
BUDGET_SECONDS = 120.0
NIGHT_AFTER = 35.0
AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Case:
    """How a mutant is provoked, and the promises of which it breaks one."""

    breaks: frozenset[str]
    act: Act
    size: Size = FEW
    shape: Shape = SHAPE
    night_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Caught:
    violations: list[Violation]
    took: float


async def _a_while(stage: Stage) -> None:
    del stage
    await lasting(5)


async def _hold_commits(stage: Stage) -> None:
    for _ in range(3):
        await stage.nemesis.inject(CommitHeld("scheduler"))


async def _silence_workers(stage: Stage) -> None:
    # A result of a long execution has to be under way when the worker falls silent: most of these times one is.
    for _ in range(6):
        await lasting(4)
        await stage.nemesis.inject(OneWay("worker", is_deaf=False, seconds=SHAPE.worker_lease + 2.5))


async def _change_jobs(stage: Stage) -> None:
    del stage
    await lasting(12)


async def _sleep_through_the_night(stage: Stage) -> None:
    del stage
    await lasting(NIGHT_AFTER)


CASES = {
    "double_fire": Case(frozenset({"S2"}), _sleep_through_the_night, night_after=NIGHT_AFTER),
    "no_epoch_check": Case(
        frozenset({"S6"}), _hold_commits, replace(FEW, seconds=12), replace(SHAPE, schedulers=2)
    ),
    "cursor_first": Case(frozenset({"S5"}), _a_while),
    "no_compare_and_set": Case(
        frozenset({"S2", "S5", "S11"}), _change_jobs, replace(FEW, storms=3, storm_pause=0.1)
    ),
    "no_fence": Case(frozenset({"S8"}), _silence_workers, replace(FEW, solos=8), replace(SHAPE, workers=2)),
    "random_ids": Case(frozenset({"S13"}), _a_while),
    "unpublished": Case(frozenset({"S16"}), _a_while, TOPICS),
    "published_first": Case(frozenset({"S16"}), _a_while, TOPICS),
}
NEED_REDIS = {"unpublished", "published_first"}


@pytest.fixture(scope="module")
def caught(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Caught]:
    """What the checker says of each mutant."""

    async def one(mutant: str, case: Case, folder: Path) -> Caught:
        plan = Plan(
            mutant,
            0,
            (),
            case.shape,
            case.size,
            mutant=mutant,
            night_after=case.night_after,
            settle=0.5,
            patience=2.0,
        )
        async with turns:
            began = time.monotonic()
            outcome = await run(plan, folder, act=case.act)
            return Caught(check(outcome.history), time.monotonic() - began)

    turns = asyncio.Semaphore(AT_ONCE)

    async def everyone() -> dict[str, Caught]:
        possible = {mutant: case for mutant, case in CASES.items() if binary() or mutant not in NEED_REDIS}
        folders = [tmp_path_factory.mktemp(mutant) for mutant in possible]
        found = await asyncio.gather(
            *(
                one(mutant, case, folder)
                for (mutant, case), folder in zip(possible.items(), folders, strict=True)
            )
        )
        return dict(zip(possible, found, strict=True))

    return asyncio.run(everyone())


def test_every_mutant_has_its_case() -> None:
    assert CASES.keys() == MUTANTS.keys()


@pytest.mark.parametrize("mutant", CASES)
def test_a_mutant_is_caught_by_the_promise_that_it_breaks(mutant: str, caught: dict[str, Caught]) -> None:
    if mutant in NEED_REDIS and binary() is None:
        pytest.skip(LACKING)
    found = caught[mutant]
    assert {violation.promise for violation in found.violations} & CASES[mutant].breaks
    assert found.took < BUDGET_SECONDS
