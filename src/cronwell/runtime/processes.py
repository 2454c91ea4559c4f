"""Whose a process number is: numbers are used again, and a server is known by the directory that it works in."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Postmaster:
    """What `postmaster.pid` says of a server."""

    pid: int
    socket_dir: Path
    status: str
    """`starting`, `ready`, `standby` or `stopping`."""

    @classmethod
    def read(cls, pgdata: Path) -> Postmaster | None:
        """What the file says, true or not: a server that was killed leaves it behind."""
        try:
            lines = (pgdata / "postmaster.pid").read_text().splitlines()
        except OSError:
            return None
        if not lines or not lines[0].strip().isdigit():
            return None
        # Only the first lines are there while the server is starting.
        socket_dir, status = (lines[n].strip() if len(lines) > n else "" for n in (4, 7))
        return cls(int(lines[0]), Path(socket_dir), status or "starting")


def works_in(pid: int, directory: Path, *, or_is_ending: bool = False) -> bool:
    """Tell whether the process is alive and works in `directory`, as every process of a server does.

    One that is ending has no directory any more, and may still hold memory and sockets: `or_is_ending` counts it.
    """
    if not Path("/proc/self/cwd").exists():
        command = ["ps", "-p", str(pid), "-o", "command="]
        found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        return str(directory) in found.stdout
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state in ("Z", "X"):
            return False
        working = Path(f"/proc/{pid}/cwd").stat()
    except FileNotFoundError:
        return or_is_ending and Path(f"/proc/{pid}").exists()
    except OSError:
        return False
    return directory.exists() and os.path.samestat(working, directory.stat())


def processes_in(directory: Path) -> Iterator[int]:
    """The processes that work in `directory`; none where the system cannot tell."""
    for entry in Path("/proc").glob("[0-9]*"):
        if works_in(int(entry.name), directory):
            yield int(entry.name)
