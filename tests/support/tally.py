"""Handlers for workers under test: each writes a line for each start and each end, to a file of its process."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cronwell import Context, handler
from tests.support.waiting import until, until_blocking

FOLDER = "TALLY_FOLDER"


@dataclass(frozen=True, slots=True)
class Line:
    event: str
    execution: str
    fence: int
    at: float
    pid: int


@handler("tally")
async def tally(ctx: Context) -> None:
    """Count the execution."""
    _write("start", ctx)
    _write("end", ctx)


@handler("tally.second")
async def second(ctx: Context) -> None:
    """Be at work for a second, or for as many as the payload says."""
    _write("start", ctx)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout((ctx.payload or {}).get("seconds", 1.0)):
            await asyncio.Event().wait()
    _write("end", ctx)


@handler("tally.wait")
async def wait(ctx: Context) -> str:
    """Wait on the first fence until a file named `release` appears; later fences end at once."""
    _write("start", ctx)
    folder = Path(os.environ[FOLDER])
    if ctx.fence == 1:
        await until((folder / "release").exists, within=600)
    _write("end", ctx)
    return f"fence {ctx.fence}"


@handler("tally.steps")
async def steps(ctx: Context) -> str:
    """Leave three checkpoints and wait for death; an attempt that finds one says so."""
    if ctx.last_checkpoint is not None:
        return f"went on after {ctx.last_checkpoint['step']}"
    for step in (1, 2, 3):
        await ctx.checkpoint({"step": step})
    await asyncio.Event().wait()
    return "never"


@handler("tally.block")
async def block(ctx: Context) -> str:
    """As `tally.wait`, but block the whole event loop meanwhile."""
    _write("start", ctx)
    if ctx.fence == 1:
        until_blocking((Path(os.environ[FOLDER]) / "release").exists, within=600)
    _write("end", ctx)
    return f"fence {ctx.fence}"


@handler("tally.spin")
async def spin(ctx: Context) -> str:
    """As `tally.block`, and keep the processor busy."""
    _write("start", ctx)
    while ctx.fence == 1 and not (Path(os.environ[FOLDER]) / "release").exists():
        sum(range(100_000))
    _write("end", ctx)
    return f"fence {ctx.fence}"


def read(folder: Path) -> list[Line]:
    """Every line that any process wrote, in order of time."""
    return sorted(_lines(folder), key=lambda line: line.at)


def _lines(folder: Path) -> Iterator[Line]:
    for file in folder.glob("*.tally"):
        # A line that is being written while we read is not there yet.
        for text in file.read_text().split("\n")[:-1]:
            event, execution, fence, at, pid = text.split()
            yield Line(event, execution, int(fence), float(at), int(pid))


def _write(event: str, ctx: Context) -> None:
    # Wall time is taken first, and the file stays open: counting must not delay what is counted.
    line = f"{event} {ctx.execution_id} {ctx.fence} {time.time():.6f} {os.getpid()}\n"
    os.write(_file(), line.encode())


@functools.cache
def _file() -> int:
    path = Path(os.environ[FOLDER]) / f"{os.getpid()}.tally"
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
