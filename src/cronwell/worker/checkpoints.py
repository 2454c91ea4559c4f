"""Write checkpoints of running attempts down, in batches, each with the fence and the worker of its attempt.

Whoever leaves a checkpoint waits until it is kept. While one batch is on its way the next one gathers; of one attempt only
the latest is written. What the store refuses is refused here too: the attempt was given up, and another may have begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from cronwell import errors, telemetry
from cronwell.model.execution import ExecutionKey
from cronwell.runtime.clock import Clock
from cronwell.runtime.service import FIRST_BACKOFF, LONGEST_BACKOFF, Service, Waker
from cronwell.store.port import Store, Told
from cronwell.targets.port import Call, Done

# A checkpoint may have 64 KiB: a batch stays within a few megabytes.
BATCH = 100


@dataclass(slots=True)
class _Waiting:
    """The latest checkpoint of one attempt, and who waits for it to be kept."""

    told: Told
    saved: list[asyncio.Future[None]] = field(default_factory=list)


class Checkpoints(Service):
    """Takes checkpoints with `save`, from any thread, and writes them until it is stopped and has none left."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__("checkpoints", stop_deadline=timedelta(seconds=10))
        self._store = store
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[ExecutionKey, int, UUID | None], _Waiting] = {}
        self._batch: list[_Waiting] = []
        self._waker = Waker()
        self._is_stopping = False
        self._has_ended = False

    def save(self, call: Call, checkpoint: str) -> Awaitable[None]:
        """Write a checkpoint down. On the event loop, what comes back is awaited; any other thread waits here."""
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            return self._add(call, checkpoint)
        asyncio.run_coroutine_threadsafe(self._saved(call, checkpoint), self._loop).result()
        return Done()

    async def run(self) -> None:
        try:
            while self._waiting or not self._is_stopping:
                if not self._waiting:
                    await self._waker.wait(1.0)
                else:
                    self._batch = [self._waiting.pop(key) for key in list(self._waiting)[:BATCH]]
                    await self._write(self._batch)
                self._succeeded()
        finally:
            # Threads that wait for an answer would keep the process from ending.
            self._has_ended = True
            for waiting in (*self._batch, *self._waiting.values()):
                for saved in waiting.saved:
                    saved.cancel()

    def stop(self) -> None:
        self._is_stopping = True
        self._waker.wake()

    async def _saved(self, call: Call, checkpoint: str) -> None:
        await self._add(call, checkpoint)

    def _add(self, call: Call, checkpoint: str) -> asyncio.Future[None]:
        saved: asyncio.Future[None] = self._loop.create_future()
        # Not everybody waits to hear of it.
        saved.add_done_callback(lambda each: each.cancelled() or each.exception())
        key = call.key
        assert call.worker is not None, "a worker's attempt"
        if call.hidden is not None:
            checkpoint = call.hidden.mask_json(checkpoint)
        told = Told(call.tenant_id, key, call.fence, call.worker, checkpoint=checkpoint)
        if self._has_ended:
            saved.set_exception(_refusal(told))
            return saved
        waiting = self._waiting.setdefault((key, call.fence, call.worker), _Waiting(told))
        waiting.told = told
        waiting.saved.append(saved)
        self._waker.wake()
        return saved

    async def _write(self, batch: list[_Waiting]) -> None:
        """Write a batch, however often it takes."""
        # In the order of the primary key, like results: no two writers wait for each other.
        batch.sort(key=lambda each: (each.told.key.job_id, each.told.key.slot))
        failures = 0
        while True:
            try:
                kept = await self._store.hear([each.told for each in batch], self._clock.now())
            except errors.StoreUnavailable as error:
                # Writing the same once more does no harm, whether or not it was written.
                delay = min(FIRST_BACKOFF * 2**failures, LONGEST_BACKOFF)
                failures += 1
                telemetry.service_failed(self.name, error, delay)
                await asyncio.sleep(delay)
                continue
            break
        for waiting, is_kept in zip(batch, kept, strict=True):
            if not is_kept:
                telemetry.told_too_late(
                    "checkpoint", execution=str(waiting.told.key), fence=waiting.told.fence
                )
            for saved in waiting.saved:
                if saved.done():
                    continue
                if is_kept:
                    saved.set_result(None)
                else:
                    saved.set_exception(_refusal(waiting.told))


def _refusal(told: Told) -> errors.FenceRejected:
    return errors.FenceRejected(execution=str(told.key), held=told.fence, current=None)
