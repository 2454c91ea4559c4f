"""One shell attempt: what the command gets, how its end is judged, and that nothing of it lives on."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cronwell.config import ShellSettings
from cronwell.model.execution import Result
from cronwell.targets.port import Call, Done, Outcome, Signals
from cronwell.targets.shell import ShellRunner
from tests.targets.rig import LIMIT, Traces, eventually, is_alive, make_call, within

# What a shell ignores, its children ignore too.
STUBBORN = "trap '' TERM; echo $$ > {file}; while :; do sleep 0.05; done"


@pytest.fixture
async def runner(traces: Traces) -> AsyncIterator[ShellRunner]:
    opened = ShellRunner(ShellSettings(enabled=True), LIMIT, timeout_grace=timedelta(milliseconds=500))
    yield opened
    await opened.close()


async def run(
    runner: ShellRunner, command: str | list[str], signals: Signals | None = None, **more: Any
) -> Outcome:
    shell = {"command": command} | {key: more.pop(key) for key in ("env", "cwd") if key in more}
    return await asyncio.wait_for(runner.run(make_call({"shell": shell}, **more), signals or within()), 30)


async def written_pid(file: Path) -> int:
    def text() -> str:
        return file.read_text() if file.exists() else ""

    await eventually(lambda: text().endswith("\n"), f"{file} was written")
    return int(text())


async def gone(pid: int) -> None:
    await eventually(lambda: not is_alive(pid), f"process {pid} ended")


async def test_shell_commands_are_refused_unless_they_are_enabled(tmp_path: Path) -> None:
    outcome = await run(ShellRunner(ShellSettings(), LIMIT), f"touch {tmp_path}/ran")
    assert (outcome.result, outcome.error_kind, outcome.is_retryable) == (Result.FAILED, "disabled", False)
    assert "CRONWELL_SHELL_ENABLED=true" in str(outcome.error)
    assert not (tmp_path / "ran").exists()


async def test_a_command_that_exits_with_0_succeeds_and_its_output_is_kept(runner: ShellRunner) -> None:
    outcome = await run(runner, "echo out; echo err >&2; echo again")
    assert outcome == Outcome(Result.SUCCEEDED, output="out\nerr\nagain\n")


async def test_a_silent_command_has_no_output(runner: ShellRunner) -> None:
    assert await run(runner, "true") == Outcome(Result.SUCCEEDED)


async def test_a_list_is_executed_without_a_shell(runner: ShellRunner) -> None:
    assert (await run(runner, ["printf", "%s|", "a b", "$HOME", ";"])).output == "a b|$HOME|;|"


async def test_the_payload_is_on_standard_input(runner: ShellRunner) -> None:
    assert (await run(runner, "cat", payload={"n": [1, None, "é"]})).output == '{"n":[1,null,"é"]}'
    assert (await run(runner, "cat")).output == "null"


async def test_a_payload_that_nobody_reads_does_not_matter(runner: ShellRunner) -> None:
    assert (await run(runner, "true", payload="x" * 250_000)).result is Result.SUCCEEDED


async def test_a_large_payload_arrives_whole(runner: ShellRunner) -> None:
    assert (await run(runner, "wc -c", payload="x" * 250_000)).output == "250002\n"


async def test_the_environment_holds_the_facts_and_nothing_of_the_workers(
    runner: ShellRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRONWELL_DATABASE_URL", "postgresql://secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.delenv("HOME", raising=False)
    outcome = await run(runner, ["env"], env={"MINE": "1", "TZ": "Asia/Tokyo"}, attempt=3, fence=9)
    variables = dict(line.split("=", 1) for line in str(outcome.output).splitlines())
    assert variables.pop("CRONWELL_CHECKPOINT_FILE").startswith("/dev/fd/")
    assert variables == {
        "PATH": os.environ["PATH"],
        "HOME": "/",
        "LANG": "de_DE.UTF-8",
        "TZ": "Asia/Tokyo",
        "MINE": "1",
        "CRONWELL_JOB": "daily/invoices",
        "CRONWELL_EXECUTION": "0190b5c0000070008000000000000001-s-20270301T093000Z",
        "CRONWELL_SLOT": "2027-03-01T09:30:00Z",
        "CRONWELL_ATTEMPT": "3",
        "CRONWELL_FENCE": "9",
    }


async def test_the_clock_is_utc_unless_the_job_says_otherwise(runner: ShellRunner) -> None:
    assert (await run(runner, "date +%Z")).output == "UTC\n"


async def test_a_command_starts_where_the_job_says(runner: ShellRunner, tmp_path: Path) -> None:
    assert (await run(runner, "pwd", cwd=str(tmp_path))).output == f"{tmp_path}\n"


async def test_a_command_leads_its_own_session(runner: ShellRunner) -> None:
    code = "import os; print(os.getpid() == os.getpgid(0) == os.getsid(0), os.getsid(os.getppid()) == os.getsid(0))"
    assert (await run(runner, [sys.executable, "-c", code])).output == "True False\n"


async def test_a_command_inherits_no_open_files_but_its_own(runner: ShellRunner) -> None:
    secret = os.open("/dev/zero", os.O_RDONLY)
    os.set_inheritable(secret, True)
    try:
        outcome = await run(runner, "ls /proc/self/fd | wc -l")
    finally:
        os.close(secret)
    # The three of every command, the one for its checkpoint, and the one that lists the folder.
    assert outcome.output == "5\n"


async def test_another_exit_code_fails_and_may_be_retried(runner: ShellRunner) -> None:
    outcome = await run(runner, "echo why; exit 3")
    assert (outcome.result, outcome.error_kind, outcome.is_retryable) == (Result.FAILED, "exit_code", True)
    assert outcome.error == "the command exited with code 3"
    assert outcome.output == "why\n"


async def test_a_command_that_a_signal_killed_says_so(runner: ShellRunner) -> None:
    outcome = await run(runner, "kill -SEGV $$")
    assert (outcome.result, outcome.error_kind) == (Result.FAILED, "signal")
    assert outcome.error == "the command was killed by SIGSEGV (signal 11)"


async def test_a_command_that_does_not_exist_says_so(runner: ShellRunner) -> None:
    outcome = await run(runner, ["no-such-command-here", "x"])
    assert (outcome.result, outcome.error_kind) == (Result.FAILED, "start")
    assert outcome.error == "command not found: no-such-command-here"
    outcome = await run(runner, "no-such-command-here x")
    assert outcome.error == "the command exited with code 127 (the shell found no such command)"


async def test_a_file_that_cannot_be_executed_says_so(runner: ShellRunner, tmp_path: Path) -> None:
    outcome = await run(runner, [str(tmp_path)])
    assert outcome.error == f"cannot start {tmp_path}: Permission denied"


async def test_a_directory_that_does_not_exist_says_so(runner: ShellRunner) -> None:
    outcome = await run(runner, "true", cwd="/no/such/place")
    assert outcome.error == "cannot start in the directory /no/such/place: No such file or directory"


async def test_too_many_arguments_fail_the_attempt(runner: ShellRunner) -> None:
    outcome = await run(runner, ["echo", *["x" * 32_768] * 200])
    assert (outcome.result, outcome.error_kind) == (Result.FAILED, "start")
    assert "Argument list too long" in str(outcome.error)


async def test_a_long_output_is_read_to_its_end_but_kept_up_to_the_limit(runner: ShellRunner) -> None:
    outcome = await run(runner, "head -c 5000000 /dev/zero | tr '\\0' x; echo end >&2")
    assert outcome == Outcome(Result.SUCCEEDED, output="x" * LIMIT, output_truncated=True)


async def test_bytes_that_cannot_be_stored_are_replaced(runner: ShellRunner) -> None:
    assert (await run(runner, "printf 'a\\000b\\377c'")).output == "ab�c"


async def test_the_deadline_ends_the_command_and_keeps_its_output(runner: ShellRunner) -> None:
    outcome = await run(
        runner, "echo before; exec sleep 60", within(0.3), timeout=timedelta(milliseconds=300)
    )
    assert outcome.result is Result.TIMED_OUT
    assert outcome.error == "did not finish within its timeout of 300ms"
    assert outcome.output == "before\n"


async def test_the_deadline_ends_the_commands_children_too(runner: ShellRunner, tmp_path: Path) -> None:
    child = tmp_path / "child"
    outcome = await run(runner, f"sh -c 'echo $$ > {child}; exec sleep 60'; true", within(0.5))
    assert outcome.result is Result.TIMED_OUT
    await gone(await written_pid(child))


async def test_a_child_that_ignores_sigterm_is_killed(runner: ShellRunner, tmp_path: Path) -> None:
    child, script = tmp_path / "child", tmp_path / "stubborn"
    script.write_text(STUBBORN.format(file=child))
    started = time.monotonic()
    outcome = await run(runner, f"sh {script}; true", within(0.5))
    assert outcome.result is Result.TIMED_OUT
    await gone(await written_pid(child))
    assert time.monotonic() - started < 10


async def test_a_leader_that_ignores_sigterm_is_killed_and_the_attempt_says_so(
    runner: ShellRunner, tmp_path: Path
) -> None:
    leader = tmp_path / "leader"
    outcome = await run(runner, STUBBORN.format(file=leader), within(0.5))
    assert outcome.result is Result.TIMED_OUT
    assert "ignored SIGTERM and was killed" in str(outcome.error)
    assert not is_alive(await written_pid(leader))


async def test_a_command_may_tidy_up_when_it_is_asked_to_end(runner: ShellRunner, tmp_path: Path) -> None:
    command = f"trap 'echo tidied; exit 0' TERM; echo $$ > {tmp_path}/up; while :; do sleep 0.02; done"
    signals = within()
    task = asyncio.create_task(run(runner, command, signals))
    await written_pid(tmp_path / "up")
    signals.cancelled.set()
    outcome = await task
    assert outcome.result is Result.CANCELLED
    assert str(outcome.output).endswith("tidied\n")


async def test_the_children_of_a_shell_that_ends_at_once_get_the_grace_too(
    runner: ShellRunner, tmp_path: Path
) -> None:
    child = "import signal, sys; signal.signal(15, lambda *_: (print('tidied'), sys.exit())); print('up', flush=True); signal.pause()"
    command = f'{sys.executable} -c "{child}"; true'
    outcome = await run(runner, command, within(1.0))
    assert outcome.result is Result.TIMED_OUT
    assert outcome.output == "up\ntidied\n"


async def test_a_background_process_does_not_outlive_its_command(runner: ShellRunner, tmp_path: Path) -> None:
    started = time.monotonic()
    outcome = await run(runner, f"sleep 60 & echo $! > {tmp_path}/child; echo done")
    assert outcome == Outcome(Result.SUCCEEDED, output="done\n")
    await gone(await written_pid(tmp_path / "child"))
    assert time.monotonic() - started < 10


async def test_a_silent_background_process_does_not_outlive_its_command(
    runner: ShellRunner, tmp_path: Path
) -> None:
    outcome = await run(runner, f"sleep 60 > /dev/null 2>&1 & echo $! > {tmp_path}/child")
    assert outcome.result is Result.SUCCEEDED
    await gone(await written_pid(tmp_path / "child"))


async def test_what_a_helper_prints_after_the_command_has_ended_is_kept(runner: ShellRunner) -> None:
    outcome = await run(runner, ["bash", "-c", "exec > >(sleep 0.1; cat); echo late"])
    assert outcome.output == "late\n"


async def test_a_process_that_left_the_group_cannot_hold_the_attempt_up(
    runner: ShellRunner, tmp_path: Path
) -> None:
    outcome = await run(
        runner, f"setsid sh -c 'echo $$ > {tmp_path}/child; exec sleep 60' & cat < /dev/null; echo done"
    )
    escaped = await written_pid(tmp_path / "child")
    try:
        assert outcome.result is Result.SUCCEEDED
    finally:
        os.kill(escaped, signal.SIGKILL)
    await gone(escaped)


async def test_an_abandoned_attempt_kills_its_group(runner: ShellRunner, tmp_path: Path) -> None:
    command = f"sh -c 'echo $$ > {tmp_path}/child; exec sleep 60'; true"
    task = asyncio.create_task(runner.run(make_call({"shell": {"command": command}}), within()))
    child = await written_pid(tmp_path / "child")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gone(child)


async def test_an_attempt_that_is_cancelled_twice_still_leaves_nothing(
    runner: ShellRunner, tmp_path: Path
) -> None:
    command = f"echo $$ > {tmp_path}/up; exec sleep 60"
    task = asyncio.create_task(runner.run(make_call({"shell": {"command": command}}), within()))
    pid = await written_pid(tmp_path / "up")
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gone(pid)


async def test_many_commands_run_at_once(runner: ShellRunner) -> None:
    outcomes = await asyncio.gather(*(run(runner, f"echo {number}") for number in range(40)))
    assert [outcome.output for outcome in outcomes] == [f"{number}\n" for number in range(40)]


async def test_ends_are_noticed_where_processes_have_no_descriptors(
    runner: ShellRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    assert await run(runner, "sleep 0.05; echo done") == Outcome(Result.SUCCEEDED, output="done\n")
    assert (await run(runner, "sleep 60", within(0.2))).result is Result.TIMED_OUT
    outcome = await run(runner, f"sleep 60 > /dev/null 2>&1 & echo $! > {tmp_path}/child")
    assert outcome.result is Result.SUCCEEDED
    await gone(await written_pid(tmp_path / "child"))


async def test_a_command_leaves_a_checkpoint_and_finds_the_last_one(runner: ShellRunner) -> None:
    saved: list[str] = []

    def save(_: Call, text: str) -> Done:
        saved.append(text)
        return Done()

    signals = dataclasses.replace(within(), save=save)
    first = make_call(
        {
            "shell": {
                "command": 'cat "$CRONWELL_CHECKPOINT_FILE"; echo \'{"row": 5}\' > "$CRONWELL_CHECKPOINT_FILE"'
            }
        }
    )
    assert (await runner.run(first, signals)).output is None
    assert saved == ['{"row":5}']
    read = {"shell": {"command": 'cat "$CRONWELL_CHECKPOINT_FILE"'}}
    second = dataclasses.replace(make_call(read), checkpoint={"row": 5})
    assert (await runner.run(second, signals)).output == '{"row":5}'
    assert saved == ['{"row":5}'], "what was not changed is not written again"


async def test_a_checkpoint_is_kept_while_the_command_runs(runner: ShellRunner) -> None:
    saved = asyncio.Event()

    def save(_: Call, text: str) -> Done:
        assert text == "7"
        saved.set()
        return Done()

    signals = dataclasses.replace(within(), save=save)
    call = make_call({"shell": {"command": 'echo 7 > "$CRONWELL_CHECKPOINT_FILE"; exec sleep 60'}})
    running = asyncio.create_task(runner.run(call, signals))
    await asyncio.wait_for(saved.wait(), 20)
    assert not running.done()
    signals.cancelled.set()
    await running


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("printf 'half a' >", "the checkpoint was not kept: Expecting value"),
        (
            "head -c 70000 /dev/zero | tr '\\0' 1 >",
            "the checkpoint was not kept: it has more than 65536 bytes",
        ),
    ],
    ids=["not JSON", "large"],
)
async def test_a_checkpoint_that_cannot_be_kept_is_told_in_the_output(
    command: str, said: str, runner: ShellRunner
) -> None:
    outcome = await runner.run(
        make_call({"shell": {"command": f'{command} "$CRONWELL_CHECKPOINT_FILE"'}}), within()
    )
    assert outcome.result is Result.SUCCEEDED
    assert said in (outcome.output or "")
