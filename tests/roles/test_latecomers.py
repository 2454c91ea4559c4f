"""A worker that comes late to a start asks the store anew, and what was stopped meanwhile does not start."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from cronwell import errors
from cronwell.model.execution import ExecutionKey, State
from cronwell.store.port import Confirmed
from cronwell.worker import slots
from tests.support.house import TENANT, House
from tests.support.waiting import until

Change = Callable[[House, UUID], Awaitable[Any]]


@pytest.fixture
def ran(house: House) -> list[str]:
    """The executions that ran."""
    seen: list[str] = []

    house.registry.add(lambda ctx: seen.append(ctx.execution_id), "work")
    return seen


@pytest.fixture(autouse=True)
def _always_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every start is too late to be made from memory."""
    monkeypatch.setattr(slots, "START_WITHIN", timedelta(seconds=-3600))


class Asked:
    """Stands before the store: something happens each time that a worker asks anew."""

    def __init__(self, house: House, happens: Callable[[], Awaitable[Any]]) -> None:
        self._confirm = house.store.confirm
        self._happens = happens
        self.times = 0
        self.ahead: list[timedelta] = []

    async def confirm(
        self,
        worker: UUID,
        claims: list[tuple[int, ExecutionKey, int]],
        now: datetime,
        *,
        ahead: timedelta = timedelta(),
    ) -> list[Confirmed | None]:
        self.times += 1
        self.ahead.append(ahead)
        await self._happens()
        return await self._confirm(worker, claims, now, ahead=ahead)


async def test_a_late_start_is_confirmed_and_runs_once(
    house: House, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing() -> None:
        pass

    asked = Asked(house, nothing)
    monkeypatch.setattr(house.store, "confirm", asked.confirm)
    await house.create(overlap="allow")
    async with house.working():
        keys = [await house.trigger() for _ in range(5)]
        for key in keys:
            await house.until_state(key, State.SUCCEEDED)
    assert asked.times >= 1
    assert len(ran) == 5


@pytest.mark.parametrize(
    ("change", "state", "reason"),
    [
        (lambda house, job: house.jobs.pause(TENANT, str(job)), State.SKIPPED, "paused"),
        (lambda house, job: house.jobs.delete(TENANT, str(job)), State.SKIPPED, "deleted"),
    ],
    ids=["pause", "delete"],
)
async def test_what_was_stopped_before_a_late_start_does_not_start(
    house: House,
    ran: list[str],
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    state: State,
    reason: str,
) -> None:
    job = await house.create()
    asked = Asked(house, lambda: change(house, job))
    monkeypatch.setattr(house.store, "confirm", asked.confirm)
    async with house.working():
        key = await house.trigger()
        found = await house.until_state(key, state)
        await until(lambda: asked.times > 0)
    assert (found.reason, found.attempt, ran) == (reason, 0, [])


async def test_what_was_cancelled_before_a_late_start_is_cancelled(
    house: House, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.create()
    keys: list[ExecutionKey] = []

    async def cancel() -> None:
        await until(lambda: bool(keys))
        await house.store.cancel_execution(TENANT, keys[0], house.clock.now())

    monkeypatch.setattr(house.store, "confirm", Asked(house, cancel).confirm)
    async with house.working():
        keys.append(await house.trigger())
        await house.until_state(keys[0], State.CANCELLED)
    assert ran == []


async def test_a_store_that_is_away_is_asked_again(
    house: House, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.create()
    failures = iter([errors.StoreUnavailable("away"), errors.CommitUnknown("lost")])

    async def fail_twice() -> None:
        if (error := next(failures, None)) is not None:
            raise error

    asked = Asked(house, fail_twice)
    monkeypatch.setattr(house.store, "confirm", asked.confirm)
    async with house.working():
        await house.until_state(await house.trigger(), State.SUCCEEDED)
    assert (asked.times, len(ran)) == (3, 1)


async def test_what_is_late_again_and_again_has_longer_each_time_and_starts_at_last(
    house: House, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.create()

    async def block() -> None:
        """Nothing else turns for 0.6 s."""
        end = time.monotonic() + 0.6
        while time.monotonic() < end:
            pass

    asked = Asked(house, block)
    monkeypatch.setattr(house.store, "confirm", asked.confirm)
    async with house.working():
        await house.until_state(await house.trigger(), State.SUCCEEDED)
    within = timedelta(milliseconds=250)
    # Three times at least; on a machine that is busy with other things, once or twice more.
    assert len(asked.ahead) >= 3
    assert asked.ahead == [number * (number + 1) // 2 * within for number in range(len(asked.ahead))]
    assert len(ran) == 1
