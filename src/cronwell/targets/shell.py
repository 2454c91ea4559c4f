"""Run a command in a process group of its own, and leave nothing of it behind.

The command gets the payload as JSON on its standard input, the facts of the attempt in `CRONWELL_…`
variables, and nothing else of the worker's environment. What it writes to the file `CRONWELL_CHECKPOINT_FILE`
is left for the next attempt. When the attempt ends, for whatever reason, its group is gone: what the command left in
the background is killed. A process that moved to another session may live on, but cannot hold the attempt up.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from datetime import timedelta
from typing import IO, cast

from cronwell import config
from cronwell.model.execution import Result
from cronwell.model.job import ShellTarget
from cronwell.targets import stopping, wire
from cronwell.targets.checkpoint_file import VARIABLE, CheckpointFile, nameless
from cronwell.targets.group import ProcessGroup
from cronwell.targets.output import Kept, clip
from cronwell.targets.port import Call, Outcome, Signals

# From SIGTERM to SIGKILL after the deadline. After a cancellation it is the worker's `cancel_grace`.
TIMEOUT_GRACE = timedelta(seconds=2)
_SHELL_FOUND_NO_COMMAND = 127
_KEPT_VARIABLES = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/",
    "LANG": "C.UTF-8",
}


class ShellRunner:
    """Carry out shell attempts, if this installation allows them."""

    def __init__(
        self,
        settings: config.ShellSettings,
        output_limit: int,
        *,
        timeout_grace: timedelta = TIMEOUT_GRACE,
    ) -> None:
        self._settings = settings
        self._timeout_grace = timeout_grace
        self._output_limit = output_limit

    async def run(self, call: Call, signals: Signals) -> Outcome:
        """Run the command to its end, or end it, and say how it ended."""
        target = call.target.shell
        assert target is not None
        if not self._settings.enabled:
            return Outcome(
                Result.FAILED,
                error="this worker runs no shell commands; to allow them, set CRONWELL_SHELL_ENABLED=true "
                "where the worker starts and restart it",
                error_kind="disabled",
                is_retryable=False,
            )
        if (stopped := stopping.stopped_before_start(call, signals)) is not None:
            return stopped
        try:
            file = CheckpointFile(call, signals)
        except OSError as error:
            return _not_started(error, target)
        with contextlib.closing(file):
            return await self._run(call, signals, target, file)

    async def _run(self, call: Call, signals: Signals, target: ShellTarget, file: CheckpointFile) -> Outcome:
        kept = Kept(self._output_limit)
        try:
            group = _start(call, target, kept, file)
        except OSError as error:
            return _not_started(error, target)
        file.watch()
        reason: Result | None = None
        try:
            reason = await stopping.ended_or_stopped(group.exited, signals)
            if reason is not None:
                is_late = reason is Result.TIMED_OUT
                await group.stop(self._timeout_grace if is_late else signals.cancel_grace)
            else:
                await group.finish()
        finally:
            await group.end()
        if (unkept := await file.keep()) is not None:
            kept.add(f"\ncronwell: {unkept}\n".encode())
        return _judge(call, target, group, reason, kept)

    async def close(self) -> None:
        """Nothing is kept between attempts."""


def _start(call: Call, target: ShellTarget, kept: Kept, file: CheckpointFile) -> ProcessGroup:
    command = ["/bin/sh", "-c", target.command] if isinstance(target.command, str) else target.command
    with _payload_file(wire.write_json(call.payload)) as payload:
        output, child_output = os.pipe()
        try:
            process = subprocess.Popen(
                command,
                stdin=payload,
                stdout=child_output,
                stderr=child_output,
                cwd=target.cwd,
                env=_environment(call, target) | {VARIABLE: file.path},
                pass_fds=(file.descriptor,),
                start_new_session=True,
            )
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(child_output)
    return ProcessGroup(process, output, kept.add)


def _payload_file(payload: bytes) -> IO[bytes]:
    """In a file: unlike a pipe it needs nobody to feed it, and a command may leave it unread."""
    file = nameless("cronwell-payload")
    file.write(payload)
    file.seek(0)
    return file


def _environment(call: Call, target: ShellTarget) -> dict[str, str]:
    upstream = {} if call.upstream is None else {"CRONWELL_UPSTREAM": wire.write_json(call.upstream).decode()}
    return {
        **{name: os.environ.get(name, default) for name, default in _KEPT_VARIABLES.items()},
        "TZ": "UTC",
        # The values of secrets are in their places by now.
        **cast("dict[str, str]", target.env),
        "CRONWELL_JOB": call.job_name,
        "CRONWELL_EXECUTION": call.execution_id,
        "CRONWELL_SLOT": wire.write_moment(call.slot),
        "CRONWELL_ATTEMPT": str(call.attempt),
        "CRONWELL_FENCE": str(call.fence),
        **upstream,
    }


def _not_started(error: OSError, target: ShellTarget) -> Outcome:
    program = "/bin/sh" if isinstance(target.command, str) else target.command[0]
    if target.cwd is not None and error.filename == target.cwd:
        said = f"cannot start in the directory {target.cwd}: {error.strerror}"
    elif isinstance(error, FileNotFoundError):
        said = f"command not found: {program}"
    else:
        said = f"cannot start {program}: {error.strerror or error}"
    return Outcome(Result.FAILED, error=clip(said, 2000)[0], error_kind="start")


def _judge(
    call: Call, target: ShellTarget, group: ProcessGroup, reason: Result | None, kept: Kept
) -> Outcome:
    text, was_cut = kept.text()
    output = text or None
    if reason is not None:
        detail = "; it ignored SIGTERM and was killed" if group.code == -signal.SIGKILL else ""
        return stopping.stopped_outcome(reason, call, detail=detail, output=output, output_truncated=was_cut)
    if group.code == 0:
        return Outcome(Result.SUCCEEDED, output=output, output_truncated=was_cut)
    if group.code is None:
        kind, said = "exit_code", "the command ended, but the system did not say how"
    elif group.code < 0:
        kind, said = "signal", f"the command was killed by {_signal_name(-group.code)}"
    else:
        kind, said = "exit_code", f"the command exited with code {group.code}"
        if group.code == _SHELL_FOUND_NO_COMMAND and isinstance(target.command, str):
            said += " (the shell found no such command)"
    return Outcome(Result.FAILED, output=output, output_truncated=was_cut, error=said, error_kind=kind)


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"
