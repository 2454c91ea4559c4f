"""One handler attempt: what the function gets, what becomes of what it returns or raises, and how it is stopped."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cronwell.model.execution import Result
from cronwell.targets.handler import HandlerRunner
from cronwell.targets.port import END, Outcome, Signals
from cronwell.targets.registry import Context, PermanentFailure, Registry, RetryAfter
from tests.targets.rig import LIMIT, SLOT, Traces, eventually, make_call, within

Run = Callable[..., Awaitable[Outcome]]


class Bench:
    """A runner with functions of this test."""

    def __init__(self, threads: int = 4) -> None:
        self.registry = Registry()
        self.runner = HandlerRunner(LIMIT, threads=threads, registry=self.registry)

    async def run(self, function: Callable[..., Any], signals: Signals | None = None, **more: Any) -> Outcome:
        if self.registry.get(function.__name__) is None:
            self.registry.add(function)
        call = make_call({"handler": {"name": function.__name__}}, **more)
        return await asyncio.wait_for(self.runner.run(call, signals or within()), 20)


@pytest.fixture
async def bench(traces: Traces) -> AsyncIterator[Bench]:
    opened = Bench()
    yield opened
    await opened.runner.close()


def both(async_function: Callable[..., Any], sync_function: Callable[..., Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("function", [async_function, sync_function], ids=["async", "sync"])


async def asks_everything(ctx: Context) -> dict[str, Any]:
    return facts(ctx)


def asks_everything_on_a_thread(ctx: Context) -> dict[str, Any]:
    return facts(ctx)


def facts(ctx: Context) -> dict[str, Any]:
    assert 50 < ctx.remaining() <= 60
    assert abs(ctx.deadline - datetime.now(UTC) - timedelta(seconds=60)) < timedelta(seconds=5)
    assert ctx.slot == SLOT
    assert not ctx.cancelled
    return {
        "payload": ctx.payload,
        "job": ctx.job,
        "job_id": str(ctx.job_id),
        "execution": ctx.execution_id,
        "attempt": ctx.attempt,
        "fence": ctx.fence,
    }


@both(asks_everything, asks_everything_on_a_thread)
async def test_a_function_is_given_the_facts_of_its_attempt(
    bench: Bench, function: Callable[..., Any]
) -> None:
    outcome = await bench.run(function, within(60), payload=[1], attempt=2, fence=5)
    assert outcome.error is None
    assert outcome.output == (
        '{"payload":[1],"job":"daily/invoices","job_id":"0190b5c0-0000-7000-8000-000000000001",'
        '"execution":"0190b5c0000070008000000000000001-s-20270301T093000Z","attempt":2,"fence":5}'
    )


@pytest.mark.parametrize(
    ("value", "output"),
    [
        (None, None),
        ("", ""),
        ("as it is", "as it is"),
        ("a\0b", "ab"),
        (b"raw\xff", "raw�"),
        (0, "0"),
        (False, "false"),
        ([1, {"a": None}], '[1,{"a":null}]'),
        ({1: SLOT}, '{"1":"2027-03-01T09:30:00+00:00"}'),
        (1 + 2j, '"(1+2j)"'),
        (2**70, str(2**70)),
    ],
)
async def test_what_a_function_returns_is_its_output(bench: Bench, value: object, output: str | None) -> None:
    async def returns() -> object:
        return value

    def returns_on_a_thread() -> object:
        return value

    assert await bench.run(returns) == Outcome(Result.SUCCEEDED, output=output)
    assert await bench.run(returns_on_a_thread) == Outcome(Result.SUCCEEDED, output=output)


async def test_a_value_that_cannot_be_shown_is_still_a_success(bench: Bench) -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    async def returns() -> object:
        return Shy()

    assert await bench.run(returns) == Outcome(Result.SUCCEEDED, output="<Shy that cannot be shown>")


async def test_a_long_output_is_cut_and_marked(bench: Bench) -> None:
    async def talks() -> str:
        return "é" * LIMIT

    assert await bench.run(talks) == Outcome(
        Result.SUCCEEDED, output="é" * (LIMIT // 2), output_truncated=True
    )


async def breaks(ctx: Context) -> None:
    raise LookupError(f"no invoice {ctx.attempt}")


def breaks_on_a_thread(ctx: Context) -> None:
    raise LookupError(f"no invoice {ctx.attempt}")


@both(breaks, breaks_on_a_thread)
async def test_an_exception_fails_the_attempt_with_its_traceback(
    bench: Bench, function: Callable[..., Any]
) -> None:
    outcome = await bench.run(function)
    assert (outcome.result, outcome.error_kind, outcome.is_retryable) == (Result.FAILED, "exception", True)
    error = str(outcome.error)
    assert error.startswith("LookupError: no invoice 1\n\nTraceback (most recent call last):\n")
    assert error.endswith('raise LookupError(f"no invoice {ctx.attempt}")\nLookupError: no invoice 1\n')
    assert "targets/handler.py" not in error
    assert "targets/registry.py" not in error


async def test_a_long_traceback_keeps_its_beginning_and_its_end(bench: Bench) -> None:
    async def overflows() -> None:
        raise ValueError("first " + "x\0é" * 100_000 + " last")

    error = str((await bench.run(overflows)).error)
    assert len(error.encode()) <= 8200
    assert error.startswith("ValueError: first x")
    assert error.endswith("é last\n")
    assert "\0" not in error


async def test_an_exception_that_cannot_be_shown_still_fails_the_attempt(bench: Bench) -> None:
    class Shy(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    async def breaks_shyly() -> None:
        raise Shy

    outcome = await bench.run(breaks_shyly)
    assert (outcome.result, outcome.error_kind) == (Result.FAILED, "exception")


class Unusual(BaseException):
    """Neither an Exception nor one of Python's own."""


@pytest.mark.parametrize("leave", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, Unusual])
async def test_a_function_that_wants_to_leave_fails_its_attempt_only(
    bench: Bench, leave: type[BaseException]
) -> None:
    async def leaves() -> None:
        raise leave

    def leaves_on_a_thread() -> None:
        raise leave

    for function in (leaves, leaves_on_a_thread):
        outcome = await bench.run(function)
        assert (outcome.result, outcome.error_kind) == (Result.FAILED, "exception"), outcome


async def test_a_permanent_failure_is_not_retried(bench: Bench) -> None:
    async def gives_up() -> None:
        raise PermanentFailure("the customer is gone")

    assert await bench.run(gives_up) == Outcome(
        Result.FAILED,
        error="PermanentFailure: the customer is gone",
        error_kind="permanent",
        is_retryable=False,
    )


@pytest.mark.parametrize(
    ("delay", "wait"),
    [
        (90, timedelta(seconds=90)),
        (0.5, timedelta(milliseconds=500)),
        ("5m", timedelta(minutes=5)),
        (timedelta(hours=2), timedelta(hours=2)),
        (timedelta(days=400), timedelta(days=7)),
        (-3, timedelta()),
    ],
)
async def test_a_function_may_say_when_to_try_again(bench: Bench, delay: Any, wait: timedelta) -> None:
    async def asks_for_time() -> None:
        raise RetryAfter(delay, "the bank is closed")

    outcome = await bench.run(asks_for_time)
    assert outcome == Outcome(
        Result.FAILED, error="the bank is closed", error_kind="retry_after", retry_after=wait
    )


async def test_a_handler_that_is_not_registered_fails_with_the_nearest_and_may_be_retried(
    bench: Bench,
) -> None:
    bench.registry.add(breaks, "refresh_invoices")
    bench.registry.add(breaks, "send_mail")
    outcome = await bench.runner.run(make_call({"handler": {"name": "refresh_invoice"}}), within())
    assert (outcome.result, outcome.error_kind, outcome.is_retryable) == (
        Result.FAILED,
        "unknown_handler",
        True,
    )
    assert outcome.error == (
        "this worker has no handler called 'refresh_invoice'; did you mean 'refresh_invoices'?; "
        "it has: refresh_invoices, send_mail"
    )


async def test_a_worker_without_handlers_says_how_to_load_them(bench: Bench) -> None:
    outcome = await bench.runner.run(make_call({"handler": {"name": "x"}}), within())
    assert "cronwell worker --import MODULE" in str(outcome.error)


async def test_a_sync_function_that_returns_a_coroutine_is_told_so(bench: Bench) -> None:
    async def inner() -> None: ...

    def wraps() -> Any:
        return inner()

    outcome = await bench.run(wraps)
    assert outcome.result is Result.FAILED
    assert "declare it with `async def`" in str(outcome.error)


async def test_a_heartbeat_reports_progress_from_task_and_thread(bench: Bench) -> None:
    reports: list[Any] = []

    async def works(ctx: Context) -> None:
        ctx.heartbeat({"page": 1})

    def works_on_a_thread(ctx: Context) -> None:
        ctx.heartbeat(2)
        ctx.heartbeat()

    for function in (works, works_on_a_thread):
        signals = within()
        signals.report = reports.append
        await bench.run(function, signals)
    assert reports == [{"page": 1}, 2, None]


async def test_context_variables_reach_the_function(bench: Bench) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("seen")

    async def looks() -> str:
        return variable.get()

    def looks_on_a_thread() -> str:
        return variable.get()

    assert (await bench.run(looks)).output == "seen"
    assert (await bench.run(looks_on_a_thread)).output == "seen"


async def test_sync_functions_do_not_block_the_loop_and_share_few_threads(bench: Bench) -> None:
    busy, most = 0, 0
    lock, full = threading.Lock(), threading.Event()

    def occupies() -> str:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
            if busy == 4:
                full.set()
        full.wait(10)
        with lock:
            busy -= 1
        return threading.current_thread().name

    bench.registry.add(occupies)
    outcomes = await asyncio.gather(*(bench.run(occupies) for _ in range(30)))
    assert most == 4
    assert len({outcome.output for outcome in outcomes}) == 4


async def test_the_deadline_cancels_an_async_function(bench: Bench) -> None:
    tidied = asyncio.Event()

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            tidied.set()

    outcome = await bench.run(hangs, within(0.05), timeout=timedelta(milliseconds=50))
    assert outcome.result is Result.TIMED_OUT
    assert outcome.error == "did not finish within its timeout of 50ms"
    assert tidied.is_set()
    assert bench.runner.abandoned == 0


async def test_a_function_that_ends_by_itself_after_its_deadline_is_timed_out(bench: Bench) -> None:
    async def finishes_late(ctx: Context) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert ctx.cancelled
        return "late"

    def finishes_late_on_a_thread(ctx: Context) -> str:
        pause = threading.Event()
        while not ctx.cancelled:
            pause.wait(0.005)
        return "late"

    for function in (finishes_late, finishes_late_on_a_thread):
        outcome = await bench.run(function, within(0.05))
        assert (outcome.result, outcome.output) == (Result.TIMED_OUT, "late")


async def test_cancelling_asks_first_and_waits_for_the_function(bench: Bench) -> None:
    started = asyncio.Event()

    async def polite(ctx: Context) -> str:
        started.set()
        await eventually(lambda: ctx.cancelled, "the function was asked to stop")
        return "stopped by itself"

    signals = within()
    task = asyncio.create_task(bench.run(polite, signals))
    await started.wait()
    signals.cancelled.set()
    outcome = await task
    assert (outcome.result, outcome.output) == (Result.CANCELLED, "stopped by itself")


async def test_a_function_that_sees_the_cancel_before_its_watcher_does_was_cancelled(bench: Bench) -> None:
    signals = within()

    async def ends_at_once(ctx: Context) -> str:
        signals.cancelled.set()
        return f"saw {ctx.cancelled}"

    outcome = await bench.run(ends_at_once, signals)
    assert (outcome.result, outcome.output) == (Result.CANCELLED, "saw True")


async def test_a_function_that_ends_without_having_looked_has_done_its_work(bench: Bench) -> None:
    signals = within()

    async def ends_anyway() -> str:
        signals.cancelled.set()
        return "done"

    outcome = await bench.run(ends_anyway, signals)
    assert (outcome.result, outcome.output) == (Result.SUCCEEDED, "done")


async def test_an_exception_on_the_way_out_is_told(bench: Bench) -> None:
    async def stumbles() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("while tidying") from None

    outcome = await bench.run(stumbles, within(0.05))
    assert outcome.result is Result.TIMED_OUT
    assert str(outcome.error).endswith("; then it raised RuntimeError: while tidying")


async def test_an_async_function_that_ignores_the_grace_is_cancelled_by_force(bench: Bench) -> None:
    started = asyncio.Event()

    async def deaf() -> None:
        started.set()
        await asyncio.Event().wait()

    signals = within(cancel_grace=0.05)
    task = asyncio.create_task(bench.run(deaf, signals))
    await started.wait()
    signals.cancelled.set()
    assert (await task).result is Result.CANCELLED
    assert bench.runner.abandoned == 0


async def test_an_async_function_that_swallows_its_cancellation_is_abandoned_and_counted(
    bench: Bench,
) -> None:
    release = asyncio.Event()

    async def immortal() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    outcome = await bench.run(immortal, within(0.05, cancel_grace=0.05))
    assert outcome.result is Result.TIMED_OUT
    assert "abandoned" in str(outcome.error)
    assert bench.runner.abandoned == 1
    release.set()
    await eventually(lambda: bench.runner.abandoned == 0, "the function came back")


@pytest.mark.parametrize("why", [Result.TIMED_OUT, Result.CANCELLED])
async def test_a_sync_function_that_does_not_stop_is_abandoned_and_counted(bench: Bench, why: Result) -> None:
    release, started = threading.Event(), threading.Event()

    def immortal() -> None:
        started.set()
        release.wait(20)

    signals = within(0.1 if why is Result.TIMED_OUT else 20, cancel_grace=0.05)
    task = asyncio.create_task(bench.run(immortal, signals))
    await eventually(started.is_set, "the function began")
    if why is Result.CANCELLED:
        signals.cancelled.set()
    outcome = await task
    assert outcome.result is why
    assert "abandoned" in str(outcome.error)
    assert bench.runner.abandoned == 1
    release.set()
    await eventually(lambda: bench.runner.abandoned == 0, "the function came back")


async def test_abandoned_threads_are_replaced_up_to_a_limit(traces: Traces) -> None:
    bench = Bench(threads=1)
    release = threading.Event()

    def immortal() -> None:
        release.wait(20)

    def quick() -> str:
        return "ran"

    assert (await bench.run(immortal, within(0.05, cancel_grace=0.0))).result is Result.TIMED_OUT
    assert (await bench.run(quick)).output == "ran"
    assert (await bench.run(immortal, within(0.05, cancel_grace=0.0))).result is Result.TIMED_OUT
    assert bench.runner.abandoned == 2
    waiting = await bench.run(quick, within(0.05))
    assert waiting.result is Result.TIMED_OUT
    assert "no thread was free" in str(waiting.error)
    release.set()
    await eventually(lambda: bench.runner.abandoned == 0, "the functions came back")
    assert (await bench.run(quick)).output == "ran"
    await bench.runner.close()


async def test_a_function_that_waits_gets_the_place_of_an_abandoned_thread(traces: Traces) -> None:
    bench = Bench(threads=1)
    release = threading.Event()

    def immortal() -> None:
        release.wait(20)

    def quick() -> str:
        return "ran"

    for _ in range(2):
        stuck = asyncio.create_task(bench.run(immortal, within(0.1, cancel_grace=0.0)))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(bench.run(quick))
        assert (await stuck).result is Result.TIMED_OUT
        if bench.runner.abandoned == 2:
            release.set()  # as many threads as allowed are stuck, so the next place is that of one that returns
        assert (await waiting).output == "ran"
    await bench.runner.close()


async def test_a_function_that_waits_for_a_thread_in_vain_never_begins(traces: Traces) -> None:
    bench = Bench(threads=1)
    release, ran = threading.Event(), threading.Event()

    def occupies() -> None:
        release.wait(20)

    first = asyncio.create_task(bench.run(occupies))
    await asyncio.sleep(0)
    outcome = await bench.run(ran.set, within(0.05))
    assert outcome.result is Result.TIMED_OUT
    release.set()
    assert (await first).result is Result.SUCCEEDED
    await bench.runner.close()
    assert not ran.is_set()


async def test_a_system_without_threads_to_give_holds_functions_up_and_breaks_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def quick() -> str:
        return "ran"

    with monkeypatch.context() as poor:
        poor.setattr(threading.Thread, "start", refuse)
        outcome = await bench.run(quick, within(0.05))
    assert outcome.result is Result.TIMED_OUT
    assert "no thread was free" in str(outcome.error)
    assert (await bench.run(quick)).output == "ran"


async def test_closing_does_not_wait_for_what_was_abandoned(traces: Traces) -> None:
    bench = Bench()
    release = threading.Event()

    def immortal() -> None:
        release.wait(20)

    await bench.run(immortal, within(0.05, cancel_grace=0.0))
    await asyncio.wait_for(bench.runner.close(), 3)
    release.set()


async def test_closing_asks_abandoned_tasks_once_more(traces: Traces) -> None:
    bench = Bench()
    asked = 0

    async def gives_in_at_the_third_time() -> None:
        nonlocal asked
        while asked < 3:  # at its deadline, when it is given up, and by `close`
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                asked += 1

    signals = within(0.02, cancel_grace=0.02)
    assert (await bench.run(gives_in_at_the_third_time, signals)).result is Result.TIMED_OUT
    assert bench.runner.abandoned == 1
    await bench.runner.close()
    assert bench.runner.abandoned == 0


async def test_an_abandoned_attempt_tells_its_task(bench: Bench) -> None:
    started, seen = asyncio.Event(), asyncio.Event()

    async def watches(ctx: Context) -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            if ctx.cancelled:
                seen.set()

    bench.registry.add(watches)
    task = asyncio.create_task(bench.runner.run(make_call({"handler": {"name": "watches"}}), within()))
    await started.wait()
    task.cancel(END)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen.is_set()


async def test_an_abandoned_attempt_tells_its_thread(bench: Bench) -> None:
    started, seen = threading.Event(), threading.Event()

    def watches(ctx: Context) -> None:
        started.set()
        pause = threading.Event()
        while not ctx.cancelled:
            pause.wait(0.005)
        seen.set()

    bench.registry.add(watches)
    task = asyncio.create_task(bench.runner.run(make_call({"handler": {"name": "watches"}}), within()))
    await eventually(started.is_set, "the function began")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(seen.is_set, "the function saw that it should stop")
    await eventually(lambda: bench.runner.abandoned == 0, "the function came back")
