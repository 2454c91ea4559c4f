"""Write results in batches; a worker's place is free only once the commit has answered.

While one batch is on its way the next one gathers, so the batch grows with the load and a lone result waits only for
`flush`. A result that cannot be written now is kept and tried again. Where a commit's outcome is unknown, the batch is
sent again and what is refused then is read back: if it says what we meant to write, it was ours.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta

from cronwell import errors, telemetry
from cronwell.config import WorkerSettings
from cronwell.model.execution import State
from cronwell.runtime.service import FIRST_BACKOFF, LONGEST_BACKOFF, Service, Waker
from cronwell.store.port import Ended, Store

Done = Callable[[State | None], None]

# Small enough that one batch is written while the next is run.
BATCH = 500


class Completion(Service):
    """Takes results with `add` and writes them until it is stopped and has none left."""

    def __init__(self, store: Store, settings: WorkerSettings) -> None:
        super().__init__("completion", stop_deadline=timedelta(seconds=15))
        self._store = store
        self._flush = settings.flush.total_seconds()
        self._queue: deque[tuple[Ended, Done]] = deque()
        self._waker = Waker()
        self._is_stopping = False

    def add(self, ended: Ended, done: Done) -> None:
        """Record a result; `done` is told the state it led to, or None where the fence was no longer valid."""
        self._queue.append((ended, done))
        self._waker.wake()

    def __len__(self) -> int:
        return len(self._queue)

    async def run(self) -> None:
        while self._queue or not self._is_stopping:
            if not self._queue:
                await self._waker.wait(1.0)
                self._succeeded()
                continue
            if len(self._queue) < BATCH and not self._is_stopping:
                await asyncio.sleep(self._flush)
            batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            await self._write(batch)
            self._succeeded()

    def stop(self) -> None:
        self._is_stopping = True
        self._waker.wake()

    async def _write(self, batch: list[tuple[Ended, Done]]) -> None:
        """Write a batch, however often it takes."""
        # In the order of the primary key, as changes of jobs touch executions too: no two wait for each other.
        batch.sort(key=lambda each: (each[0].key.job_id, each[0].key.slot))
        is_uncertain = False
        failures = 0
        while True:
            began = time.perf_counter()
            try:
                states = await self._complete([ended for ended, _ in batch])
                if is_uncertain:
                    states = await self._read_back(batch, states)
            except errors.StoreUnavailable as error:
                is_uncertain = is_uncertain or isinstance(error, errors.CommitUnknown)
                delay = min(FIRST_BACKOFF * 2**failures, LONGEST_BACKOFF) * (1 - random.random() / 2)
                failures += 1
                telemetry.service_failed(self.name, error, delay)
                await asyncio.sleep(delay)
                continue
            break
        told = [
            state
            for (ended, _), state in zip(batch, states, strict=True)
            # One that has ended by its callback meanwhile was counted there.
            if state is not None and (ended.awaits is None or state is State.RUNNING)
        ]
        counts = {state.value: count for state in State if (count := told.count(state))}
        if parked := counts.pop(State.RUNNING.value, 0):
            telemetry.parked(parked)
        telemetry.completed(
            states=counts,
            stale=states.count(None),
            took=timedelta(seconds=time.perf_counter() - began),
        )
        for (_, done), state in zip(batch, states, strict=True):
            done(state)

    async def _complete(self, ended: Sequence[Ended]) -> list[State | None]:
        """Write results; one that PostgreSQL refuses to keep does not hold up the others."""
        try:
            return await self._store.complete(ended)
        except errors.CronwellError:
            raise
        except Exception as error:  # noqa: BLE001  # what the database cannot keep is found by halving
            if len(ended) > 1:
                middle = len(ended) // 2
                return await self._complete(ended[:middle]) + await self._complete(ended[middle:])
            telemetry.service_failed(self.name, error, 0.0)
            told = f"the result could not be kept: {type(error).__name__}"
            bare = dataclasses.replace(ended[0], output=None, error=told, error_kind="unstorable")
            return await self._store.complete([bare])

    async def _read_back(
        self, batch: Sequence[tuple[Ended, Done]], states: Sequence[State | None]
    ) -> list[State | None]:
        settled: list[State | None] = []
        for (ended, _), state in zip(batch, states, strict=True):
            settled.append(state if state is not None else await self._state_if_ours(ended))
        return settled

    async def _state_if_ours(self, ended: Ended) -> State | None:
        kept = await self._store.get_execution(ended.tenant_id, ended.key)
        if kept is None or (kept.fence, kept.worker, kept.finished_at) != (
            ended.fence,
            ended.worker,
            ended.finished_at,
        ):
            return None
        return kept.state
