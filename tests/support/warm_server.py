"""The server of `warm`: one process, from which each command is forked."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path

# All that a command imports when it runs.
import rich.console
import rich.progress
import rich.table
import rich.text  # noqa: F401

import cronwell.cli.client
import cronwell.config  # noqa: F401
from cronwell.cli.main import run


def main(path: str) -> None:
    """Serve until a signal."""
    # Whoever waits for a command is not waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{path}.new")
        server.listen(64)
        Path(f"{path}.new").rename(path)
        while True:
            asked, _ = server.accept()
            if os.fork() == 0:
                server.close()
                _attend(asked)
            asked.close()


def _attend(asked: socket.socket) -> None:
    """Run a command in a process of its own, and tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, files, _, _ = socket.recv_fds(asked, 4, 3)
    told = b""
    while len(told) < int.from_bytes(head, "big"):
        told += asked.recv(65_536)
    arguments, folder, environ = json.loads(told)
    command = os.fork()
    if command == 0:
        asked.close()
        _run(arguments, folder, environ, files)
    for each in files:
        os.close(each)
    _, status = os.waitpid(command, 0)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError):
        asked.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def _run(arguments: list[str], folder: str, environ: dict[str, str], files: list[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, max(files) + 1)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.stdin, sys.stdout, sys.stderr = (
        # Line by line, as a terminal shows it.
        open(number, mode, buffering=1, closefd=False)  # noqa: SIM115 - open as long as the process
        for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    sys.argv = ["cronwell", *arguments]
    code = 1
    try:
        run()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1])
