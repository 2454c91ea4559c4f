"""Garbage is looked for when the process grows."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from cronwell.runtime.collector import MEMORY, collect_on_growth, peak_memory
from tests.support.waiting import until


class Leaf:
    """Refers to itself, so that only the collector finds it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _no_other_look() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def fail(name: str, error: Exception, delay: float) -> None:
    raise AssertionError(f"{name}, {delay}") from error


@pytest.mark.parametrize(
    ("before", "grown", "is_found"),
    [
        pytest.param(MEMORY, 2 * MEMORY + 1, True, id="by more than is left alone"),
        pytest.param(MEMORY, 2 * MEMORY, False, id="by what is left alone"),
        pytest.param(100 * MEMORY, 110 * MEMORY, False, id="by a small part of what it had"),
        pytest.param(100 * MEMORY, 126 * MEMORY, True, id="by a large part of what it had"),
    ],
)
async def test_cycles_are_found_when_the_process_has_grown(
    before: int, grown: int, *, is_found: bool
) -> None:
    leaf = Leaf()
    left = weakref.ref(leaf)
    del leaf
    memory = [before]
    looked = list[int]()

    def peak() -> int:
        looked.append(memory[0])
        return memory[0]

    loop = collect_on_growth(on_error=fail, peak=peak)
    memory[0] = grown
    running = asyncio.create_task(loop.run())
    await until(lambda: len(looked) == 2)
    loop.stop()
    await running
    assert (left() is None) is is_found


def test_a_process_has_some_memory() -> None:
    assert 10 * 1024 * 1024 < peak_memory() < 100 * 1024**3
