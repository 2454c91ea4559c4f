"""An attempt stops when it must, for the right reason, and a cancellation from outside is never swallowed."""

from __future__ import annotations

import asyncio
import time

import pytest

from cronwell.model.execution import Result
from cronwell.targets.stopping import Interrupt, Watch, ended_or_stopped
from tests.targets.rig import within


async def test_the_deadline_interrupts_the_block_and_only_the_block() -> None:
    interrupt = Interrupt(within(0.02))
    with interrupt:
        await asyncio.Event().wait()
    assert interrupt.reason is Result.TIMED_OUT
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_a_cancellation_interrupts_the_block() -> None:
    signals = within()
    interrupt = Interrupt(signals)
    asyncio.get_running_loop().call_soon(signals.cancelled.set)
    with interrupt:
        await asyncio.Event().wait()
    assert interrupt.reason is Result.CANCELLED


async def test_a_cancellation_that_came_before_the_block_interrupts_it_too() -> None:
    signals = within()
    signals.cancelled.set()
    interrupt = Interrupt(signals)
    with interrupt:
        await asyncio.Event().wait()
    assert interrupt.reason is Result.CANCELLED


async def test_a_block_that_ends_in_time_is_left_alone() -> None:
    signals = within()
    interrupt = Interrupt(signals)
    with interrupt:
        await asyncio.sleep(0)
    signals.cancelled.set()
    await asyncio.sleep(0)
    assert interrupt.reason is None


async def test_an_error_in_the_block_passes() -> None:
    with pytest.raises(LookupError), Interrupt(within()):
        raise LookupError


@pytest.mark.parametrize("is_stopped_too", [False, True])
async def test_a_cancellation_from_outside_passes_even_when_both_come_at_once(is_stopped_too: bool) -> None:
    signals = within()

    async def block() -> None:
        with Interrupt(signals):
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await asyncio.sleep(0)
    if is_stopped_too:
        signals.cancelled.set()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_waiting_ends_with_what_comes_first() -> None:
    ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    assert await ended_or_stopped(ending, within(0.02)) is Result.TIMED_OUT
    signals = within()
    asyncio.get_running_loop().call_soon(signals.cancelled.set)
    assert await ended_or_stopped(ending, signals) is Result.CANCELLED
    asyncio.get_running_loop().call_soon(ending.set_result, None)
    assert await ended_or_stopped(ending, within()) is None
    assert await ended_or_stopped(ending, within(-1)) is None


async def test_what_ended_while_the_loop_was_held_up_has_not_timed_out() -> None:
    """A thread ends in time, but the loop hears of it in the same turn in which the deadline has passed."""
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[None] = loop.create_future()

    def held_up() -> None:
        loop.call_soon(ending.set_result, None)
        while time.monotonic() < signals.deadline:
            pass

    signals = within(0.2)
    loop.call_soon(held_up)
    assert await ended_or_stopped(ending, signals) is None


async def test_a_watch_calls_once_and_not_after_it_was_closed() -> None:
    calls: list[Result] = []
    signals = within(0.01)
    watch = Watch(signals, calls.append)
    signals.cancelled.set()
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    await asyncio.wait({never}, timeout=0.05)
    watch.close()
    assert calls == [Result.CANCELLED]
    closed = Watch(within(-1), calls.append)
    closed.close()
    await asyncio.wait({never}, timeout=0.01)
    assert calls == [Result.CANCELLED]


async def test_watching_leaves_nothing_on_the_event() -> None:
    signals = within()
    for _ in range(10):
        Watch(signals, lambda reason: None).close()
        with Interrupt(signals):
            pass
    assert signals.cancelled.listeners == 0
    assert len(signals.deadlines) == 0


async def test_who_waits_for_a_stop_is_told_also_when_it_was_set_before() -> None:
    stop = within().cancelled
    waiting = [asyncio.create_task(stop.wait()) for _ in range(3)]
    given_up = asyncio.create_task(stop.wait())
    await asyncio.wait({given_up}, timeout=0.01)
    given_up.cancel()
    await asyncio.wait({given_up})
    assert stop.listeners == 3
    stop.set()
    stop.set()
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting, stop.wait())
    assert stop.is_set()
    assert stop.listeners == 0
