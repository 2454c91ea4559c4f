"""What every target promises, carried out by a real server, real processes and real functions.

Each `Rig` makes the same behaviours with the means of its target; the tests do not know which one they run.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cronwell.config import HttpSettings, PublishSettings, ShellSettings, SmtpSettings
from cronwell.model.execution import Result
from cronwell.runtime.clock import SystemClock
from cronwell.targets.egress import Egress
from cronwell.targets.email import EmailRunner
from cronwell.targets.handler import HandlerRunner
from cronwell.targets.http import HttpRunner
from cronwell.targets.port import Outcome, Signals, TargetRunner
from cronwell.targets.publish import PublishRunner
from cronwell.targets.registry import Context, Registry
from cronwell.targets.shell import ShellRunner
from tests.support.redis import RedisServer, SilentBroker, needs_redis, temporary_redis
from tests.support.smtp import MailServer, mail_server
from tests.targets.rig import (
    LIMIT,
    Receiver,
    Request,
    Traces,
    answer_ok,
    answering,
    eventually,
    is_alive,
    make_call,
    never_answer,
    within,
)


class Rig(ABC):
    """A runner, and targets that behave as a test wants."""

    runner: TargetRunner
    is_released = False
    said: str | None = "done"
    """What `succeed` says; None where nobody knows beforehand."""
    payload: Any = None

    @abstractmethod
    def target(self, behaviour: str) -> dict[str, Any]:
        """One of: succeed (says "done"), fail, hang, stop_when_asked, ignore, shout (more than the limit)."""

    @abstractmethod
    def has_started(self) -> bool:
        """Whether the latest `hang`, `stop_when_asked` or `ignore` is under way."""

    @abstractmethod
    def is_gone(self) -> bool:
        """Whether nothing of it is left."""

    def release(self) -> None:
        """Let go of what cannot be stopped."""
        self.is_released = True


class HttpRig(Rig):
    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.runner = HttpRunner(HttpSettings(), Egress(["127.0.0.0/8"]), SystemClock(), LIMIT)
        receiver.answer = self._answer

    def target(self, behaviour: str) -> dict[str, Any]:
        return self.receiver.target(path=f"/{behaviour}")

    def has_started(self) -> bool:
        return bool(self.receiver.requests)

    def is_gone(self) -> bool:
        return self.receiver.open_connections == 0

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        match request.path:
            case "/succeed":
                await answer_ok(request, writer)
            case "/fail":
                await answering("500 Broken", b"broken")(request, writer)
            case "/shout":
                await answering("200 OK", b"x" * (LIMIT + 1))(request, writer)
            case _:
                await never_answer(request, writer)


class EmailRig(Rig):
    """The server behaves as the first one wants to whom a message goes."""

    def __init__(self, server: MailServer) -> None:
        self.payload = {"subject": "subject", "text": "text"}
        self.server = server
        settings = SmtpSettings(host="127.0.0.1", port=server.port, tls="none", sender="cron@example.com")
        self.runner: EmailRunner = EmailRunner(settings, LIMIT)
        server.answers["RCPT"] = self._answer
        server.answers["."] = lambda _: f"250 {'x' * (LIMIT + 1) if self._is_loud else 'done'}"
        self._is_loud = False

    def target(self, behaviour: str) -> dict[str, Any]:
        return {"email": {"to": [f"{behaviour}@example.com"]}}

    def has_started(self) -> bool:
        return "RCPT" in self.server.verbs

    def is_gone(self) -> bool:
        return self.server.open_connections == 0 and self.runner.abandoned == 0

    def _answer(self, rest: str) -> str:
        behaviour = rest.partition("<")[2].partition("@")[0]
        self._is_loud = behaviour == "shout"
        return {"succeed": "250 ok", "shout": "250 ok", "fail": "450 broken"}.get(behaviour, "")


class ShellRig(Rig):
    def __init__(self, folder: Path) -> None:
        self.runner = ShellRunner(
            ShellSettings(enabled=True), LIMIT, timeout_grace=timedelta(milliseconds=100)
        )
        self._file = folder / "pid"
        mark = f"echo $$ > {self._file}"
        self._commands = {
            "succeed": "printf done",
            "fail": "echo broken; exit 1",
            "hang": f"{mark}; exec sleep 60",
            "stop_when_asked": f"trap 'exit 0' TERM; {mark}; while :; do sleep 0.01; done",
            "ignore": f"trap '' TERM; {mark}; while :; do sleep 0.05; done",
            "shout": f"head -c {LIMIT + 1} /dev/zero | tr '\\0' x",
        }

    def target(self, behaviour: str) -> dict[str, Any]:
        return {"shell": {"command": self._commands[behaviour]}}

    def has_started(self) -> bool:
        return self._file.exists() and self._file.read_text().endswith("\n")

    def is_gone(self) -> bool:
        return not is_alive(int(self._file.read_text()))


class AsyncHandlerRig(Rig):
    def __init__(self) -> None:
        registry = Registry()
        self.runner: HandlerRunner = HandlerRunner(LIMIT, registry=registry)
        self._is_started = False
        self._is_ended = False
        for function in (self.succeed, self.fail, self.hang, self.stop_when_asked, self.shout):
            registry.add(function)
        registry.add(self.hang, "ignore")

    def target(self, behaviour: str) -> dict[str, Any]:
        return {"handler": {"name": behaviour}}

    def has_started(self) -> bool:
        return self._is_started

    def is_gone(self) -> bool:
        return self._is_ended and self.runner.abandoned == 0

    async def succeed(self) -> str:
        return "done"

    async def fail(self) -> None:
        raise RuntimeError("broken")

    async def shout(self) -> str:
        return "x" * (LIMIT + 1)

    async def hang(self) -> None:
        await self._work(lambda: False)

    async def stop_when_asked(self, ctx: Context) -> None:
        await self._work(lambda: ctx.cancelled)

    async def _work(self, is_over: Callable[[], bool]) -> None:
        self._is_started = True
        try:
            await eventually(is_over, "the work ended", seconds=60)
        finally:
            self._is_ended = True


class ThreadHandlerRig(Rig):
    def __init__(self) -> None:
        registry = Registry()
        self.runner: HandlerRunner = HandlerRunner(LIMIT, registry=registry)
        self._started = threading.Event()
        self._ended = threading.Event()
        self._released = threading.Event()
        for function in (self.succeed, self.fail, self.stop_when_asked, self.ignore, self.shout):
            registry.add(function)
        registry.add(self.stop_when_asked, "hang")

    def target(self, behaviour: str) -> dict[str, Any]:
        return {"handler": {"name": behaviour}}

    def has_started(self) -> bool:
        return self._started.is_set()

    def is_gone(self) -> bool:
        return self._ended.is_set() and self.runner.abandoned == 0

    def release(self) -> None:
        self._released.set()

    def succeed(self) -> str:
        return "done"

    def fail(self) -> None:
        raise RuntimeError("broken")

    def shout(self) -> str:
        return "x" * (LIMIT + 1)

    def stop_when_asked(self, ctx: Context) -> None:
        self._work(lambda: ctx.cancelled)

    def ignore(self) -> None:
        self._work(self._released.is_set)

    def _work(self, is_over: Callable[[], bool]) -> None:
        self._started.set()
        look_deadline = time.monotonic() + 60
        while not is_over() and time.monotonic() < look_deadline:
            self._released.wait(0.005)
        self._ended.set()


class PublishRig(Rig):
    """A Redis that works, with a user who may not write to `broken`; and a broker that hears everything and says nothing."""

    said = None

    def __init__(self, server: RedisServer, silent: SilentBroker) -> None:
        self.silent = silent
        server.ask("ACL", "SETUSER", "rig", "on", ">secret", "~fine", "+xadd")
        works = f"redis://rig:secret@127.0.0.1:{server.port}"
        hangs = f"redis://127.0.0.1:{silent.port}"
        self.runner = PublishRunner({"works": works, "hangs": hangs}, PublishSettings())

    def target(self, behaviour: str) -> dict[str, Any]:
        if behaviour in ("succeed", "fail"):
            stream = "fine" if behaviour == "succeed" else "broken"
            return {"publish": {"broker": "works", "redis": {"stream": stream}}}
        return {"publish": {"broker": "hangs", "redis": {"stream": behaviour}}}

    def has_started(self) -> bool:
        # A connection alone is not: it is kept for others if who wanted it was gone before it was made.
        return bool(self.silent.heard)

    def is_gone(self) -> bool:
        return self.silent.open_connections == 0


@pytest.fixture(scope="module")
def broker() -> Iterator[RedisServer]:
    with temporary_redis() as server:
        yield server


KINDS = [
    "http",
    "email",
    "shell",
    "handler-async",
    "handler-thread",
    pytest.param("publish", marks=needs_redis),
]


@pytest.fixture(params=KINDS)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """A target's rig; afterwards no process, thread or open file of it may be left."""
    broker: Any = request.getfixturevalue("broker") if request.param == "publish" else None
    traces = Traces()
    made: Rig
    async with AsyncExitStack() as stack:
        match request.param:
            case "http":
                made = HttpRig(await stack.enter_async_context(Receiver()))
            case "email":
                made = EmailRig(await stack.enter_async_context(mail_server()))
            case "shell":
                made = ShellRig(tmp_path)
            case "handler-async":
                made = AsyncHandlerRig()
            case "publish":
                made = PublishRig(broker, await stack.enter_async_context(SilentBroker().serving()))
            case _:
                made = ThreadHandlerRig()
        yield made
        made.release()
        await made.runner.close()
    assert await traces.left() == []


async def run(rig: Rig, behaviour: str, signals: Signals | None = None) -> Outcome:
    call = make_call(rig.target(behaviour), payload=rig.payload, timeout=timedelta(milliseconds=300))
    return await asyncio.wait_for(rig.runner.run(call, signals or within()), 20)


async def begin(rig: Rig, behaviour: str, signals: Signals) -> asyncio.Task[Outcome]:
    task = asyncio.create_task(run(rig, behaviour, signals))
    await eventually(rig.has_started, f"{behaviour} began")
    return task


async def test_success_is_reported_with_its_output(rig: Rig) -> None:
    outcome = await run(rig, "succeed")
    assert outcome == Outcome(Result.SUCCEEDED, output=outcome.output)
    assert outcome.output
    assert outcome.output == (rig.said or outcome.output)


async def test_failure_is_reported_with_a_word_and_a_sentence_and_may_be_retried(rig: Rig) -> None:
    outcome = await run(rig, "fail")
    assert outcome.result is Result.FAILED
    assert outcome.is_retryable
    assert outcome.error_kind
    assert "broken" in f"{outcome.error} {outcome.output}"
    assert not outcome.pauses_job


async def test_a_runner_serves_many_attempts_at_once(rig: Rig) -> None:
    outcomes = await asyncio.gather(*(run(rig, "succeed") for _ in range(20)))
    assert [outcome.result for outcome in outcomes] == [Result.SUCCEEDED] * 20


async def test_the_deadline_ends_the_attempt_as_timed_out(rig: Rig) -> None:
    started = time.monotonic()
    outcome = await run(rig, "hang", within(0.3))
    assert outcome.result is Result.TIMED_OUT
    assert (outcome.error_kind, outcome.is_retryable) == ("timeout", True)
    assert "timeout of 300ms" in str(outcome.error)
    assert 0.25 < time.monotonic() - started < 5
    await eventually(rig.is_gone, "what was started has ended")


async def test_an_attempt_whose_time_is_up_does_not_begin(rig: Rig) -> None:
    assert (await run(rig, "hang", within(-0.001))).result is Result.TIMED_OUT
    assert not rig.has_started()


async def test_an_attempt_that_was_cancelled_before_does_not_begin(rig: Rig) -> None:
    signals = within()
    signals.cancelled.set()
    assert (await run(rig, "hang", signals)).result is Result.CANCELLED
    assert not rig.has_started()


async def test_a_target_that_stops_when_asked_is_cancelled_within_its_grace(rig: Rig) -> None:
    signals = within(cancel_grace=10)
    task = await begin(rig, "stop_when_asked", signals)
    signals.cancelled.set()
    asked_at = time.monotonic()
    outcome = await task
    assert (outcome.result, outcome.error_kind) == (Result.CANCELLED, "cancelled")
    assert time.monotonic() - asked_at < 5
    await eventually(rig.is_gone, "what was started has ended")


async def test_a_target_that_does_not_stop_when_asked_is_ended_after_its_grace(rig: Rig) -> None:
    signals = within(cancel_grace=0.1)
    task = await begin(rig, "ignore", signals)
    signals.cancelled.set()
    asked_at = time.monotonic()
    assert (await task).result is Result.CANCELLED
    assert time.monotonic() - asked_at < 5
    rig.release()
    await eventually(rig.is_gone, "what was started has ended")


async def test_output_beyond_the_limit_is_cut_and_marked(rig: Rig) -> None:
    if isinstance(rig, PublishRig):
        return  # what it says is an id of a few bytes; a longer answer is none (tests/targets/test_publish.py)
    outcome = await run(rig, "shout")
    assert outcome == Outcome(Result.SUCCEEDED, output="x" * LIMIT, output_truncated=True)


@pytest.mark.parametrize("behaviour", ["hang", "ignore"])
async def test_a_cancelled_run_raises_and_leaves_nothing_behind(rig: Rig, behaviour: str) -> None:
    task = await begin(rig, behaviour, within())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    rig.release()
    await eventually(rig.is_gone, "what was started has ended")


async def test_a_runner_that_was_never_used_closes(rig: Rig) -> None:
    await asyncio.wait_for(rig.runner.close(), 5)
