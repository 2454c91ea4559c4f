"""Attempts that are started together: one task for those that end at once, one for each that waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from cronwell.worker.starting import AT_A_TIME, Starting
from tests.support.waiting import until

whose: ContextVar[str] = ContextVar("whose", default="nobody's")


@dataclass(eq=False)
class Fake:
    """An attempt that runs one function."""

    act: Callable[[], Coroutine[Any, Any, None]]
    is_lost: bool = False
    task: asyncio.Task[None] | None = None


async def run(attempt: Fake) -> None:
    await attempt.act()


async def test_those_that_end_at_once_share_a_task() -> None:
    starting, tasks = Starting(run), list[asyncio.Task[Any] | None]()

    async def ends() -> None:
        tasks.append(asyncio.current_task())

    for _ in range(3):
        starting.add(Fake(ends))
    assert tasks == [], "with the next turn"
    await until(lambda: len(tasks) == 3)
    assert len(set(tasks)) == 1
    starting.add(Fake(ends))
    await until(lambda: len(tasks) == 4)


@pytest.mark.parametrize(
    ("on_time", "turns"),
    [
        pytest.param(0, [AT_A_TIME, 2 * AT_A_TIME, 3 * AT_A_TIME], id="all late"),
        pytest.param(1, [3 * AT_A_TIME], id="one on time"),
    ],
)
async def test_many_that_are_late_let_others_have_a_turn_in_between(on_time: int, turns: list[int]) -> None:
    starting, ended, seen = Starting(run), list[int](), list[int]()

    async def ends() -> None:
        ended.append(1)

    for _ in range(2):
        ended.clear()
        seen.clear()
        for number in range(3 * AT_A_TIME):
            starting.add(Fake(ends), is_late=number >= on_time)
        while len(ended) < 3 * AT_A_TIME:
            await asyncio.sleep(0)
            seen.append(len(ended))
        assert seen == turns


async def test_one_that_waits_holds_up_nobody_and_keeps_its_task() -> None:
    starting, gates = Starting(run), [asyncio.Event() for _ in range(3)]
    told: list[str] = []
    seen: list[list[asyncio.Task[Any] | None]] = []

    async def waits(number: int) -> None:
        tasks = [asyncio.current_task()]
        seen.append(tasks)
        await gates[number].wait()
        tasks.append(asyncio.current_task())
        told.append(f"waited {number}")

    async def ends() -> None:
        told.append("ended")

    def has_told(count: int) -> bool:
        return len(told) == count

    attempts = [
        Fake(lambda: waits(0)),
        Fake(ends),
        Fake(lambda: waits(1)),
        Fake(lambda: waits(2)),
        Fake(ends),
    ]
    for attempt in attempts:
        starting.add(attempt)
    await until(lambda: told == ["ended", "ended"] and len(seen) == 3)
    for count, gate in enumerate(gates[::-1], start=3):
        gate.set()
        await until(partial(has_told, count))
    assert told[2:] == ["waited 2", "waited 1", "waited 0"]
    assert len({before for before, _ in seen}) == 3
    assert all(before is after for before, after in seen)
    assert [attempts[place].task for place in (0, 2, 3)] == [before for before, _ in seen]


async def test_what_one_sets_in_its_context_is_its_own() -> None:
    starting, found = Starting(run), list[str]()

    async def sets(name: str, *, waits: bool) -> None:
        found.append(whose.get())
        token = whose.set(name)
        for _ in range(2 if waits else 0):
            await asyncio.sleep(0)
            found.append(whose.get())
        whose.reset(token)
        found.append(whose.get())

    starting.add(Fake(lambda: sets("mine", waits=False)))
    starting.add(Fake(lambda: sets("yours", waits=True)))
    starting.add(Fake(lambda: sets("theirs", waits=False)))
    await until(lambda: len(found) == 8)
    assert sorted(found) == ["nobody's"] * 6 + ["yours"] * 2


async def test_one_that_is_cancelled_takes_nobody_along() -> None:
    starting, ended, gate = Starting(run), list[str](), asyncio.Event()

    async def waits(name: str) -> None:
        try:
            await gate.wait()
            ended.append(name)
        except asyncio.CancelledError:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            ended.append(f"{name}, cancelled")
            raise

    one, other = Fake(lambda: waits("one")), Fake(lambda: waits("other"))
    starting.add(one)
    starting.add(other)
    await until(lambda: other.task is not None)
    assert one.task is not None
    one.task.cancel()
    await until(lambda: len(ended) == 1)
    gate.set()
    await until(lambda: len(ended) == 2)
    assert ended == ["one, cancelled", "other"]
    assert one.task.cancelled()


async def test_one_that_cancels_itself_and_ends_cancels_nobody_else() -> None:
    starting, ended = Starting(run), list[str]()

    async def cancels() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def waits() -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        ended.append("ended")

    starting.add(Fake(cancels))
    starting.add(Fake(waits))
    await until(lambda: ended == ["ended"])


async def test_all_that_wait_have_started_before_any_goes_on() -> None:
    starting, told = Starting(run), list[str]()

    async def waits() -> None:
        told.append("started")
        await asyncio.sleep(0)
        told.append("went on")

    for _ in range(100):
        starting.add(Fake(waits))
    await until(lambda: len(told) == 200)
    # The first begins one turn before the others, and goes on while they begin.
    assert told.index("went on") >= 1
    assert told[:102].count("started") == 100


async def test_one_that_breaks_leaves_the_others_to_start() -> None:
    starting, ended = Starting(run), list[str]()

    async def breaks() -> None:
        raise ValueError("broken")

    async def ends() -> None:
        ended.append("ended")

    broken = Fake(breaks)
    starting.add(broken)
    starting.add(Fake(ends))
    starting.add(Fake(ends))
    await until(lambda: len(ended) == 2)
    assert broken.task is not None
    with pytest.raises(ValueError, match="broken"):
        await broken.task


async def test_what_is_lost_before_its_turn_does_not_start() -> None:
    starting, ended = Starting(run), list[str]()

    async def ends() -> None:
        ended.append("ended")

    lost = Fake(ends)
    starting.add(lost)
    starting.add(Fake(ends))
    lost.is_lost = True
    await until(lambda: bool(ended))
    for _ in range(3):
        await asyncio.sleep(0)
    assert ended == ["ended"]


async def test_what_is_lost_before_its_own_task_begins_does_not_start() -> None:
    starting, started = Starting(run), list[str]()

    async def waits() -> None:
        # Before the tasks that the others are given now, since this one waits.
        asyncio.get_running_loop().call_soon(setattr, lost, "is_lost", True)
        await asyncio.sleep(0)

    async def starts(name: str) -> None:
        started.append(name)

    lost, other = Fake(lambda: starts("lost")), Fake(lambda: starts("other"))
    for attempt in (Fake(waits), lost, other):
        starting.add(attempt)
    await until(lambda: other.task is not None and other.task.done())
    assert (started, lost.task) == (["other"], None)
