"""Services: loops that poll, back off and wake; processes that stop in order."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronwell.runtime import service
from cronwell.runtime.service import SAME_SIGNAL, Loop, Service, Waker, run_services
from tests.support.waiting import until, until_blocking

FOREVER = 3600.0


def test_a_task_that_swallows_its_cancellation_does_not_keep_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "LEFT_DEADLINE", timedelta(milliseconds=50))
    ends = threading.Event()
    tasks: list[asyncio.Task[None]] = []

    async def stubborn() -> None:
        while not ends.is_set():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    async def leave() -> str:
        tasks.append(asyncio.create_task(stubborn()))
        await asyncio.sleep(0)
        return "left"

    loop = asyncio.new_event_loop()
    assert service.run_loop(leave(), loop) == "left"
    assert loop.is_closed()
    assert not tasks[0].done()


def test_what_is_left_is_cancelled_and_an_error_passes() -> None:
    told: list[str] = []

    async def tidy() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("tidied")
            raise

    async def fail() -> None:
        told.append(asyncio.create_task(tidy(), name="left").get_name())
        await asyncio.sleep(0)
        raise LookupError

    with pytest.raises(LookupError):
        service.run_loop(fail(), asyncio.new_event_loop())
    assert told == ["left", "tidied"]


def ignore(name: str, error: Exception, delay: float) -> None:
    """Report nothing."""


def loop_of(poll: Callable[[], Awaitable[timedelta | float]], name: str = "loop") -> Loop:
    return Loop(name, poll, on_error=ignore)


class Recorded(Service):
    """Writes down when it starts and ends, and can misbehave."""

    def __init__(
        self,
        name: str,
        log: list[str],
        *,
        error: Exception | None = None,
        is_stubborn: bool = False,
        ends_alone: bool = False,
    ) -> None:
        super().__init__(name, stop_deadline=timedelta(seconds=0.05 if is_stubborn else 10))
        self._log = log
        self._error = error
        self._is_stubborn = is_stubborn
        self._ends_alone = ends_alone
        self._stop = asyncio.Event()

    async def run(self) -> None:
        self._log.append(f"{self.name} runs")
        if self._error is not None:
            raise self._error
        if self._ends_alone:
            return
        try:
            await self._stop.wait()
            if self._is_stubborn:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self._log.append(f"{self.name} is cancelled")
            raise
        self._log.append(f"{self.name} ends")

    def stop(self) -> None:
        self._log.append(f"{self.name} is asked")
        self._stop.set()


@pytest.fixture
def switching_often() -> Iterator[None]:
    """Let threads take turns after almost every step, so that races come up."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


# Waker


async def test_a_wake_ends_a_wait() -> None:
    waker = Waker()
    asyncio.get_running_loop().call_soon(waker.wake)
    assert await waker.wait(FOREVER)


async def test_a_wake_before_the_wait_is_kept() -> None:
    waker = Waker()
    waker.wake()
    assert await waker.wait(FOREVER)


async def test_many_wakes_are_one() -> None:
    waker = Waker()
    for _ in range(100):
        waker.wake()
    assert await waker.wait(FOREVER)
    assert not await waker.wait(0.001)


async def test_a_wait_ends_by_itself() -> None:
    assert not await Waker().wait(0.001)


async def test_a_wake_from_another_thread_ends_a_wait() -> None:
    waker = Waker()
    waiting = asyncio.create_task(waker.wait(FOREVER))
    await asyncio.to_thread(waker.wake)
    assert await waiting


def test_a_wake_after_the_loop_has_gone_harms_nobody() -> None:
    waker = Waker()
    asyncio.run(waker.wait(0))
    waker.wake()


@pytest.mark.parametrize("timeout", [0.0, 10.0])
async def test_no_wake_is_lost_whenever_threads_send_it(timeout: float, switching_often: None) -> None:
    """Each message is written before its wake, so after the last wake one more wait must have seen them all."""
    waker = Waker()
    written = [0] * 4

    def write(writer: int) -> None:
        for _ in range(2000):
            written[writer] += 1
            waker.wake()

    writers = [threading.Thread(target=write, args=(n,)) for n in range(len(written))]
    for writer in writers:
        writer.start()
    seen: list[int] = []
    async with asyncio.timeout(30):
        while any(writer.is_alive() for writer in writers):
            if await waker.wait(timeout if seen != [2000] * 4 else 0):
                seen = list(written)
            await asyncio.sleep(0)
        if await waker.wait(0):
            seen = list(written)
    assert seen == [2000] * 4


# Loop


async def test_a_loop_polls_until_it_is_stopped() -> None:
    polls = 0

    async def poll() -> float:
        nonlocal polls
        polls += 1
        if polls == 5:
            loop.stop()
        return 0

    loop = loop_of(poll)
    await asyncio.wait_for(loop.run(), 5)
    assert polls == 5


async def test_a_loop_waits_as_long_as_its_poll_says() -> None:
    moments: list[float] = []

    async def poll() -> timedelta:
        moments.append(time.monotonic())
        if len(moments) == 2:
            loop.stop()
        return timedelta(milliseconds=50)

    loop = loop_of(poll)
    await asyncio.wait_for(loop.run(), 5)
    assert moments[1] - moments[0] >= 0.049


async def test_a_wake_lets_a_loop_poll_now() -> None:
    polled = asyncio.Semaphore(0)

    async def poll() -> float:
        polled.release()
        return FOREVER

    loop = loop_of(poll)
    running = asyncio.create_task(loop.run())
    for _ in range(3):
        await asyncio.wait_for(polled.acquire(), 5)
        loop.waker.wake()
    await asyncio.wait_for(polled.acquire(), 5)
    loop.stop()
    await asyncio.wait_for(running, 5)


async def test_a_loop_that_waits_stops_at_once() -> None:
    async def poll() -> float:
        return FOREVER

    loop = loop_of(poll)
    running = asyncio.create_task(loop.run())
    await until(lambda: loop.last_success_age is not None)
    loop.stop()
    await asyncio.wait_for(running, 1)


async def test_a_loop_that_is_stopped_before_it_runs_does_not_poll() -> None:
    async def poll() -> float:
        raise AssertionError("polled")

    loop = loop_of(poll)
    loop.stop()
    await asyncio.wait_for(loop.run(), 1)


async def test_a_poll_under_way_is_finished_before_the_loop_ends() -> None:
    begun, go_on, done = asyncio.Event(), asyncio.Event(), False

    async def poll() -> float:
        nonlocal done
        begun.set()
        await go_on.wait()
        done = True
        return 0

    loop = loop_of(poll)
    running = asyncio.create_task(loop.run())
    await begun.wait()
    loop.stop()
    go_on.set()
    await asyncio.wait_for(running, 5)
    assert done


async def test_a_busy_loop_lets_others_run() -> None:
    async def poll() -> float:
        return 0

    loop = loop_of(poll)
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(0)
    loop.stop()
    await asyncio.wait_for(running, 5)


async def test_a_failed_poll_is_reported_and_tried_again_later_and_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "FIRST_BACKOFF", 0.001)
    monkeypatch.setattr(service, "LONGEST_BACKOFF", 0.016)
    reports: list[tuple[str, str, float]] = []
    polls = 0

    async def poll() -> float:
        nonlocal polls
        polls += 1
        if polls == 9:
            loop.stop()
        if polls <= 7 or polls == 9:
            raise LookupError(polls)
        return 0

    loop = Loop("flaky", poll, on_error=lambda name, error, delay: reports.append((name, str(error), delay)))
    await asyncio.wait_for(loop.run(), 10)
    assert [(name, text) for name, text, _ in reports] == [
        ("flaky", str(n)) for n in (1, 2, 3, 4, 5, 6, 7, 9)
    ]
    for (_, _, delay), longest in zip(reports, (1, 2, 4, 8, 16, 16, 16, 1), strict=True):
        assert longest / 2000 <= delay <= longest / 1000


async def test_hints_do_not_shorten_the_wait_after_an_error_but_a_stop_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "FIRST_BACKOFF", FOREVER)
    monkeypatch.setattr(service, "LONGEST_BACKOFF", FOREVER)
    polls = 0

    async def poll() -> float:
        nonlocal polls
        polls += 1
        raise LookupError

    loop = loop_of(poll)
    running = asyncio.create_task(loop.run())
    await until(lambda: polls)
    for _ in range(10):
        loop.waker.wake()
        await asyncio.sleep(0)
    assert polls == 1
    loop.stop()
    await asyncio.wait_for(running, 1)


async def test_a_cancelled_loop_ends_and_reports_nothing() -> None:
    reports: list[str] = []

    async def poll() -> float:
        await asyncio.Event().wait()
        return 0

    loop = Loop("hanging", poll, on_error=lambda name, error, delay: reports.append(name))
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert reports == []


async def test_only_a_success_makes_a_loop_look_healthy() -> None:
    is_sound = asyncio.Event()

    async def poll() -> float:
        if not is_sound.is_set():
            raise LookupError
        return FOREVER

    loop = loop_of(poll)
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(0)
    ages = [loop.last_success_age]
    assert ages == [None]
    is_sound.set()
    await until(lambda: loop.last_success_age is not None)
    first = loop.last_success_age
    assert first is not None
    await until(lambda: (loop.last_success_age or timedelta()) > first)
    loop.stop()
    await running


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["wake", "thread", "yield", "pause"]), max_size=30), st.integers(0, 3))
def test_no_order_of_start_wake_and_stop_hangs_a_loop(steps: list[str], start_after: int) -> None:
    async def scenario() -> None:
        asked = answered = 0

        async def poll() -> float:
            nonlocal answered
            answered = asked
            return FOREVER

        loop = loop_of(poll)
        running: asyncio.Task[None] | None = None
        for number, step in enumerate(steps):
            if number == start_after:
                running = asyncio.create_task(loop.run())
            if step == "wake":
                asked += 1
                loop.waker.wake()
            elif step == "thread":
                asked += 1
                await asyncio.to_thread(loop.waker.wake)
            elif step == "yield":
                await asyncio.sleep(0)
            else:
                await asyncio.to_thread(int)
        if running is None:
            running = asyncio.create_task(loop.run())
        await until(lambda: loop.last_success_age is not None and answered == asked, within=5)
        loop.stop()
        await asyncio.wait_for(running, 5)

    asyncio.run(scenario())


# run_services


async def test_services_stop_in_the_reverse_of_their_order() -> None:
    log: list[str] = []
    stop = asyncio.Event()
    running = asyncio.create_task(run_services([Recorded(name, log) for name in "abc"], stop=stop))
    await until(lambda: len(log) == 3)
    stop.set()
    await asyncio.wait_for(running, 5)
    assert log == [
        *("a runs", "b runs", "c runs"),
        *("c is asked", "c ends", "b is asked", "b ends", "a is asked", "a ends"),
    ]


async def test_services_run_under_their_names() -> None:
    stop = asyncio.Event()
    log: list[str] = []
    running = asyncio.create_task(run_services([Recorded("the name", log)], stop=stop))
    await until(lambda: log)
    assert "the name" in {task.get_name() for task in asyncio.all_tasks()}
    stop.set()
    await running


async def test_a_service_that_fails_stops_the_others_in_order_and_is_reported() -> None:
    log: list[str] = []
    reasons: list[str] = []
    broken = Recorded("broken", log, error=LookupError("broken"))
    with pytest.raises(LookupError, match="broken"):
        await run_services([Recorded("a", log), broken, Recorded("b", log)], on_stop=reasons.append)
    assert [line for line in log if line.endswith("ends")] == ["b ends", "a ends"]
    assert reasons == ["broken failed"]


async def test_a_service_that_ends_without_being_asked_is_a_failure() -> None:
    log: list[str] = []
    with pytest.raises(RuntimeError, match="quitter ended"):
        await run_services([Recorded("a", log), Recorded("quitter", log, ends_alone=True)])
    assert log[-1] == "a ends"


async def test_several_failures_are_all_told() -> None:
    both = [Recorded(name, [], error=LookupError(name)) for name in "ab"]
    with pytest.raises(ExceptionGroup) as raised:
        await run_services(both)
    assert [str(error) for error in raised.value.exceptions] == ["a", "b"]


async def test_a_service_that_does_not_stop_in_time_is_cancelled_and_the_others_still_stop_in_order() -> None:
    log: list[str] = []
    stop = asyncio.Event()
    services = [Recorded("a", log), Recorded("stubborn", log, is_stubborn=True), Recorded("c", log)]
    running = asyncio.create_task(run_services(services, stop=stop))
    await until(lambda: len(log) == 3)
    stop.set()
    await asyncio.wait_for(running, 5)
    assert log[3:] == [
        *("c is asked", "c ends"),
        *("stubborn is asked", "stubborn is cancelled"),
        *("a is asked", "a ends"),
    ]


async def test_cancelling_the_whole_cancels_every_service() -> None:
    log: list[str] = []
    running = asyncio.create_task(run_services([Recorded(name, log) for name in "ab"]))
    await until(lambda: len(log) == 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(log[2:]) == ["a is cancelled", "b is cancelled"]


async def test_signal_handlers_are_put_back() -> None:
    def ours(number: int, frame: object) -> None:
        """The handler of whoever embeds us."""

    before = signal.signal(signal.SIGTERM, ours)
    stop = asyncio.Event()
    stop.set()
    try:
        await run_services([Recorded("a", [])], stop=stop)
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)


def test_services_also_run_outside_the_main_thread() -> None:
    log: list[str] = []

    async def scenario() -> None:
        stop = asyncio.Event()
        stop.set()
        await run_services([Recorded("a", log)], stop=stop)

    thread = threading.Thread(target=lambda: asyncio.run(scenario()))
    thread.start()
    thread.join(10)
    assert log[-1] == "a ends"


# Signals, in a process of its own

PROGRAM = """
import asyncio, sys
from datetime import timedelta
from cronwell.runtime.service import Service, run_services

class Slow(Service):
    def __init__(self, waits):
        super().__init__("slow", stop_deadline=timedelta(seconds=60))
        self.stopping, self.waits = asyncio.Event(), waits
    async def run(self):
        print("ready", flush=True)
        await self.stopping.wait()
        if self.waits:
            await asyncio.Event().wait()
        print("drained", flush=True)
    def stop(self):
        print("stopping", flush=True)
        self.stopping.set()

asyncio.run(run_services(
    [Slow(sys.argv[1] == "waits")],
    on_stop=lambda reason: print("because", reason, flush=True),
    on_abort=lambda: print("aborted", flush=True),
))
"""


def start(kind: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, kind], stdout=subprocess.PIPE, text=True)
    expect(process, "ready")
    return process


def expect(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_gracefully(number: signal.Signals) -> None:
    with start("drains") as process:
        process.send_signal(number)
        expect(process, f"because {number.name}")
        expect(process, "stopping")
        expect(process, "drained")
        assert process.wait(10) == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_exits_at_once(second: signal.Signals) -> None:
    with start("waits") as process:
        os.kill(process.pid, signal.SIGTERM)
        expect(process, "because SIGTERM")
        expect(process, "stopping")
        _let_pass(SAME_SIGNAL)
        os.kill(process.pid, second)
        expect(process, "aborted")
        assert process.wait(10) == 128 + second


def test_a_signal_that_comes_by_two_ways_at_once_is_one() -> None:
    with start("waits") as process:
        os.kill(process.pid, signal.SIGTERM)
        os.kill(process.pid, signal.SIGINT)
        expect(process, "because SIGTERM")
        expect(process, "stopping")
        _let_pass(SAME_SIGNAL)
        os.kill(process.pid, signal.SIGTERM)
        expect(process, "aborted")
        assert process.wait(10) == 128 + signal.SIGTERM, "the third, not the second"


def _let_pass(span: timedelta) -> None:
    since = time.monotonic()
    until_blocking(lambda: time.monotonic() - since > span.total_seconds())
