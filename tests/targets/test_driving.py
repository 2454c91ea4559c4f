"""Async functions in the attempt's own task: what asyncio gives them works, and every end is told from the others."""

from __future__ import annotations

import asyncio

import pytest

from cronwell.model.execution import Result
from cronwell.targets.driving import Ending, Function, drive
from cronwell.targets.port import END, Outcome, Signals
from cronwell.targets.registry import Context
from tests.targets.rig import eventually, make_call, within

DONE = Outcome(Result.SUCCEEDED)


class Attempt:
    """One function under way, in a task of its own as attempts are."""

    def __init__(self, signals: Signals | None = None) -> None:
        self.signals = signals or within()
        self.context = Context(make_call({"handler": {"name": "any"}}), self.signals)
        self.lost: set[asyncio.Task[Outcome]] = set()

    def start(self, function: Function) -> asyncio.Task[Ending]:
        return asyncio.create_task(drive(function, self.context, self.signals, self.lost))


async def test_a_function_that_never_waits_has_ended_after_one_step() -> None:
    async def short() -> Outcome:
        return DONE

    assert await Attempt().start(short()) == Ending(DONE)


async def test_a_function_runs_in_one_task_from_its_first_step_to_its_last() -> None:
    seen = []

    async def looks() -> Outcome:
        seen.append(asyncio.current_task())
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())
        await asyncio.get_running_loop().run_in_executor(None, int)
        seen.append(asyncio.current_task())
        return DONE

    task = Attempt().start(looks())
    assert await task == Ending(DONE)
    assert seen == [task] * 3


async def test_a_timeout_and_a_group_of_tasks_inside_are_the_functions_own() -> None:
    told = []

    async def fails() -> None:
        raise LookupError("in the group")

    async def uses_asyncio() -> Outcome:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        told.append("timeout")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fails())
                await asyncio.Event().wait()
        except* LookupError:
            told.append("group")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)
        await asyncio.sleep(0)
        return DONE

    attempt = Attempt()
    assert await attempt.start(uses_asyncio()) == Ending(DONE)
    assert told == ["timeout", "group"]
    assert not attempt.context.cancelled


async def test_a_child_that_was_cancelled_ends_the_function_and_not_the_attempt() -> None:
    async def awaits_a_cancelled_child() -> Outcome:
        child = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(child.cancel)
        await child
        return DONE

    assert await Attempt().start(awaits_a_cancelled_child()) == Ending(None)


@pytest.mark.parametrize("message", [None, END])
async def test_a_cancellation_from_outside_leaves_once_the_function_has_cleaned_up(
    message: str | None,
) -> None:
    cleaned = []

    async def cleans_up() -> Outcome:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.get_running_loop().run_in_executor(None, int)
            cleaned.append(True)
        return DONE

    task = Attempt().start(cleans_up())
    await asyncio.sleep(0)
    task.cancel(message)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]


async def test_a_function_that_takes_no_end_is_left_to_itself_and_comes_back() -> None:
    free = asyncio.Event()

    attempt = Attempt()
    task = attempt.start(_stubborn(free))
    await asyncio.sleep(0)
    task.cancel(END)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(attempt.lost) == 1
    (left,) = attempt.lost
    free.set()
    assert await left == DONE
    await eventually(lambda: not attempt.lost, "it is lost no more")


async def test_a_function_that_ignores_its_deadline_is_given_up_and_one_that_takes_it_is_not() -> None:
    free = asyncio.Event()
    attempt = Attempt(within(0.02, cancel_grace=0.02))
    assert await attempt.start(_stubborn(free)) == Ending(None, Result.TIMED_OUT, is_abandoned=True)
    free.set()
    await eventually(lambda: not attempt.lost, "it is lost no more")

    async def obedient() -> Outcome:
        await asyncio.Event().wait()
        return DONE

    attempt = Attempt(within(0.02, cancel_grace=0.02))
    assert await attempt.start(obedient()) == Ending(None, Result.TIMED_OUT)
    assert not attempt.lost


async def _stubborn(free: asyncio.Event) -> Outcome:
    while not free.is_set():
        try:
            await free.wait()
        except asyncio.CancelledError:
            continue
    return DONE
