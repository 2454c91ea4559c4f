"""Long work: checkpoints outlive attempts, and an attempt that was answered with 202 takes up nobody's place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from cronwell import errors
from cronwell.config import HttpSettings
from cronwell.control.callbacks import Callbacks
from cronwell.model import callback
from cronwell.model.callback import Token
from cronwell.model.execution import ExecutionKey, State
from cronwell.runtime.keyring import Keyring
from cronwell.scheduler.chores.callbacks import CalledBack
from cronwell.store.port import Execution
from cronwell.targets.egress import Egress
from cronwell.targets.handler import Context
from cronwell.targets.http import HttpRunner
from tests.support.house import TENANT, House
from tests.support.waiting import until, until_async
from tests.targets.rig import Receiver, answering

QUICK = {"initial_delay": "20ms", "max_delay": "20ms", "jitter": 0}
PUBLIC = "https://cronwell.example.com"
ACCEPTED = answering("202 Accepted", b"in a while")


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver(answer=ACCEPTED) as listening:
        yield listening


def _http(house: House, public_url: str = PUBLIC) -> dict[str, Any]:
    egress = Egress(("127.0.0.0/8",))
    return {"http": HttpRunner(HttpSettings(), egress, house.clock, 65_536, public_url=public_url)}


async def _until_waiting(house: House, key: ExecutionKey) -> Execution:
    async def waits() -> Execution | None:
        found = await house.get(key)
        return found if found.callback_until is not None else None

    found = await until_async(waits)
    assert found is not None
    return found


def _token(receiver: Receiver, number: int = -1) -> Token:
    address = receiver.requests[number].headers["cronwell-callback"]
    assert address.startswith(f"{PUBLIC}{callback.PATH}")
    found = callback.read(address.rpartition("/")[2])
    assert found is not None
    return found.token


async def test_an_attempt_goes_on_where_the_one_before_left_off(house: House) -> None:
    """One handler on the event loop, one on a thread."""
    seen: dict[str, list[Any]] = {"async": [], "plain": []}

    async def on_the_loop(ctx: Context) -> str:
        seen["async"].append(ctx.last_checkpoint)
        await ctx.checkpoint({"page": 1})
        await ctx.checkpoint({"page": ctx.attempt * 10})
        if ctx.attempt < 3:
            raise RuntimeError("not yet")
        return "done"

    def on_a_thread(ctx: Context) -> str:
        seen["plain"].append(ctx.last_checkpoint)
        ctx.checkpoint({"page": ctx.attempt * 10})
        if ctx.attempt < 3:
            raise RuntimeError("not yet")
        return "done"

    house.registry.add(on_the_loop, "async")
    house.registry.add(on_a_thread, "plain")
    for name in seen:
        await house.create(name, target={"handler": {"name": name}}, retry=QUICK)
    async with house.working():
        keys = [await house.trigger(name) for name in seen]
        ended = [await house.until_state(key, State.SUCCEEDED, State.FAILED) for key in keys]
    assert [each.state for each in ended] == [State.SUCCEEDED, State.SUCCEEDED]
    assert seen == {name: [None, {"page": 10}, {"page": 20}] for name in seen}
    assert [each.checkpoint for each in ended] == ['{"page":30}'] * 2


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("x" * 65_536, "TooLarge: the checkpoint has 65538 bytes and the limit is 65536"),
        ({"set": {1, 2}}, "Invalid: checkpoint: cannot be kept: Object of type set is not JSON serializable"),
        ("\0", "Invalid: checkpoint: cannot be kept: text cannot carry the null character"),
        (float("nan"), "Invalid: checkpoint: cannot be kept: numbers must be finite"),
    ],
    ids=["large", "set", "null", "nan"],
)
async def test_a_checkpoint_that_cannot_be_kept_says_so(value: object, said: str, house: House) -> None:
    async def work(ctx: Context) -> None:
        await ctx.checkpoint("before")
        await ctx.checkpoint(value)

    house.registry.add(work, "work")
    await house.create(retry={"max_attempts": 1})
    async with house.working():
        ended = await house.until_state(await house.trigger(), State.FAILED, State.SUCCEEDED)
    assert ended.state is State.FAILED
    assert ended.error is not None
    assert ended.error.startswith(said)
    assert ended.checkpoint == '"before"'


@pytest.mark.parametrize("is_async", [True, False])
async def test_an_attempt_that_was_given_up_leaves_no_checkpoint(is_async: bool, house: House) -> None:
    began, raised = asyncio.Event(), []
    loop = asyncio.get_running_loop()
    go_on: asyncio.Future[None] = loop.create_future()

    def note(error: BaseException) -> None:
        raised.append(type(error))

    async def on_the_loop(ctx: Context) -> None:
        began.set()
        await go_on
        try:
            await ctx.checkpoint("stale")
        except errors.FenceRejected as error:
            note(error)

    def on_a_thread(ctx: Context) -> None:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(_wait(go_on), loop).result()
        try:
            ctx.checkpoint("stale")
        except errors.FenceRejected as error:
            note(error)

    work: Callable[..., Any] = on_the_loop if is_async else on_a_thread
    house.registry.add(work, "work")
    await house.create()
    key = await house.trigger()
    before = REGISTRY.get_sample_value("cronwell_stale_results_total") or 0
    async with house.working():
        await began.wait()
        await house.database.execute("update executions set fence = fence + 1")
        go_on.set_result(None)
        await until(lambda: raised)
        assert REGISTRY.get_sample_value("cronwell_stale_results_total") == before + 1
    assert raised == [errors.FenceRejected]
    assert (await house.get(key)).checkpoint is None


async def _wait(future: asyncio.Future[None]) -> None:
    await asyncio.shield(future)


async def test_what_waits_for_its_callback_takes_no_place_and_outlives_its_worker(
    house: House, receiver: Receiver
) -> None:
    target = receiver.target(callback={"deadline": "2h", "heartbeat": "10m"})
    await house.create(target=target, schedule="every 1s", overlap="skip")
    calls = Callbacks(house.store, house.clock, house.settings, Keyring())
    async with house.working(_http(house), concurrency=1):
        await house.create("other", target=receiver.target())
        await house.staging().run_once()
        [first, *_] = await house.history()
        waiting = await _until_waiting(house, first.key)
        assert waiting.started_at is not None
        assert waiting.worker is None
        assert waiting.callback_until is not None
        assert timedelta() < waiting.callback_until - house.clock.now() <= timedelta(minutes=10)
        # The worker's one place is free, and 202 is success for a job that asks for no callback.
        other = await house.until_state(await house.trigger("other"), State.SUCCEEDED)
        assert other.output == "in a while"
        assert "cronwell-callback" not in receiver.requests[-1].headers
        told = await house.explain.explain(TENANT, "name:job", first.key.slot.isoformat())
        assert (told.verdict, "has waited for its callback" in told.sentence) == ("running", True)

        async def skipped() -> list[Execution]:
            return await house.history(first.key.job_id, states=(State.SKIPPED,))

        # It counts as unfinished: the job's next slots are skipped for it.
        assert (await until_async(skipped))[0].reason == "overlap"
    # The worker is gone, and nothing that looks for its work takes this for lost.
    assert await house.rescue().run_once() == 0
    [token] = {
        _token(receiver, n) for n, each in enumerate(receiver.requests) if "cronwell-callback" in each.headers
    }
    assert (token.key, token.fence) == (first.key, 1)
    done = await calls.complete(token, "three hours later")
    assert done.state is State.SUCCEEDED
    ended = await house.get(first.key)
    assert (ended.state, ended.output, ended.started_at) == (
        State.SUCCEEDED,
        "three hours later",
        waiting.started_at,
    )


async def test_a_delivery_after_a_timed_out_callback_carries_the_checkpoint(
    house: House, receiver: Receiver
) -> None:
    await house.create(target=receiver.target(callback={"deadline": "1h"}), retry=QUICK)
    calls = Callbacks(house.store, house.clock, house.settings, Keyring())
    async with house.working(_http(house)):
        key = await house.trigger()
        await _until_waiting(house, key)
        first = _token(receiver)
        await calls.tell(first, checkpoint={"row": 500})
        await house.database.execute(
            "update executions set callback_until = now(), callback_deadline = now()"
        )
        assert await CalledBack(house.store, house.clock).run_once() == 1
        await until(lambda: len(receiver.requests) == 2)
        waiting = await _until_waiting(house, key)
    with pytest.raises(errors.IllegalState, match=r"timed_out.*another attempt \(fence 2\) has begun"):
        await calls.complete(first)
    [attempt] = await house.store.list_attempts(TENANT, key)
    assert (attempt.result.value, attempt.error_kind) == ("timed_out", "callback_deadline")
    assert b"checkpoint" not in receiver.requests[0].body
    assert b'"checkpoint":{"row":500}' in receiver.requests[1].body
    assert waiting.attempt == 2
    assert (await calls.complete(_token(receiver))).state is State.SUCCEEDED


async def test_a_cancel_while_the_delivery_is_under_way_is_not_forgotten(
    house: House, receiver: Receiver
) -> None:
    release = asyncio.Event()

    async def slowly(request: Any, writer: Any) -> None:
        await release.wait()
        await ACCEPTED(request, writer)

    receiver.answer = slowly
    await house.create(target=receiver.target(callback={"deadline": "1h"}))
    async with house.working(_http(house)):
        key = await house.trigger()
        await receiver.arrived.wait()
        await house.database.execute("update executions set cancel_requested_at = now()")
        release.set()

        async def ended() -> bool:
            await CalledBack(house.store, house.clock).run_once()
            return (await house.get(key)).state is State.CANCELLED

        await until_async(ended)


async def test_a_worker_that_does_not_know_where_receivers_reach_the_api_says_what_to_set(
    house: House, receiver: Receiver
) -> None:
    await house.create(target=receiver.target(callback={"deadline": "1h"}), retry={"max_attempts": 1})
    async with house.working(_http(house, public_url="")):
        ended = await house.until_state(await house.trigger(), State.FAILED, State.SUCCEEDED)
    assert (ended.state, ended.error_kind) == (State.FAILED, "no_public_url")
    assert "set CRONWELL_PUBLIC_URL" in (ended.error or "")
    assert receiver.requests == []
