"""Handlers that break rules, in a real worker: its places must come free."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from cronwell.model.execution import State
from cronwell.targets.handler import Context
from tests.support.house import House

NEVER = {"max_attempts": 1}


async def _stubborn(free: asyncio.Event) -> None:
    while not free.is_set():
        try:
            await free.wait()
        except asyncio.CancelledError:
            continue


@pytest.mark.parametrize("how", ["task", "gather", "shielded wait"])
async def test_a_function_whose_child_takes_no_end_gives_its_place_back(house: House, how: str) -> None:
    free = asyncio.Event()

    async def work(ctx: Context) -> None:
        if how == "task":
            await asyncio.create_task(_stubborn(free))
        elif how == "gather":
            await asyncio.gather(_stubborn(free), _stubborn(free))
        else:
            await asyncio.wait({asyncio.create_task(_stubborn(free))})

    house.registry.add(work, "work")
    await house.create("first", timeout="1s", retry=NEVER)
    try:
        async with house.working(
            concurrency=1, heartbeat=timedelta(milliseconds=100), cancel_grace=timedelta(seconds=1)
        ):
            key = await house.trigger("first")
            async with asyncio.timeout(15):
                done = await house.until_state(key, State.FAILED)
            assert done.error_kind == "timeout"
    finally:
        free.set()


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_function_that_raises_generator_exit_gives_its_place_back(
    house: House, is_late: bool
) -> None:
    async def work(ctx: Context) -> None:
        if is_late:
            await asyncio.get_running_loop().run_in_executor(None, int)
        raise GeneratorExit

    house.registry.add(work, "work")
    await house.create("first", timeout="1s", retry=NEVER)
    async with house.working(
        concurrency=1, heartbeat=timedelta(milliseconds=100), cancel_grace=timedelta(seconds=1)
    ):
        key = await house.trigger("first")
        async with asyncio.timeout(12):
            await house.until_state(key, State.FAILED)
