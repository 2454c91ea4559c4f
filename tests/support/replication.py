"""Two PostgreSQL servers, a primary and its standby by streaming replication, to kill the one and promote the other."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cronwell.runtime.account import Account
from cronwell.runtime.processes import Postmaster, processes_in
from cronwell.runtime.programs import MAJOR_VERSION
from tests.schema.servers import installed
from tests.support.postgres import SURVIVES_A_KILL, UNSAFE_BUT_FAST, temporary_directory
from tests.support.waiting import until_blocking

DATABASE = "postgres"


class Server:
    """One server in a directory of its own, which is also where its socket is."""

    def __init__(self, directory: Path, account: Account) -> None:
        self.directory = directory
        self.data = directory / "data"
        self._account = account
        self._binaries = installed()[MAJOR_VERSION]
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir()
        account.own(directory)

    def initialise(self, **settings: str) -> None:
        self.run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        self.configure(
            **{**UNSAFE_BUT_FAST, **SURVIVES_A_KILL, "listen_addresses": "", "wal_level": "replica"},
            **settings,
        )

    def copy(self, other: Server) -> None:
        """Become a standby of another."""
        source = f"host={other.directory} user=postgres"
        self.run("pg_basebackup", "-D", self.data, "-d", source, "-R", "-X", "stream", "-c", "fast", "-N")
        self.configure()

    def configure(self, **settings: str) -> None:
        settings["unix_socket_directories"] = str(self.directory)
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self.data],
                stdout=log,
                stderr=log,
                cwd="/",
                **self._account.identity,
            )
        until_blocking(self._is_ready, within=20)

    def kill(self) -> None:
        """End every process of it, as the loss of its machine would."""
        assert self._process is not None
        self._process.kill()
        for pid in list(processes_in(self.data)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        until_blocking(lambda: not list(processes_in(self.data)))

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Shut it down: SIGINT in order, SIGQUIT at once."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(timeout=30)

    def promote(self) -> None:
        self.run("pg_ctl", "promote", "-D", self.data, "-w", "-t", "30")

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def run(self, program: str, *arguments: str | Path) -> str:
        ended: subprocess.CompletedProcess[str] = subprocess.run(
            [self._binaries / program, *arguments],
            capture_output=True,
            check=False,
            cwd="/",
            text=True,
            **self._account.identity,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def ask(self, sql: str) -> str:
        return self.run("psql", "-h", self.directory, "-U", "postgres", "-Atc", sql, DATABASE).strip()

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "log").read_text()
        postmaster = Postmaster.read(self.data)
        return (
            postmaster is not None
            # One that was killed leaves its file behind.
            and postmaster.pid == self._process.pid
            and postmaster.status == "ready"
        )


class Pair:
    """A primary with its standby."""

    def __init__(self, primary: Server, standby: Server) -> None:
        self.primary = primary
        self.standby = standby

    @property
    def url(self) -> str:
        """The address that names both."""
        return (
            f"postgresql://postgres@/{DATABASE}"
            f"?host={self.primary.directory},{self.standby.directory}&port=5432,5432"
        )

    def hold_back(self) -> None:
        """Send the standby nothing more, although it is there."""
        sender = int(self.primary.ask("select pid from pg_stat_replication"))
        os.kill(sender, signal.SIGSTOP)

    def fail_over(self) -> None:
        """The primary is lost, and the standby takes its place."""
        self.primary.kill()
        self.standby.promote()


@contextmanager
def pair(*, is_synchronous: bool) -> Iterator[Pair]:
    account = Account.of_server()
    account.let_read(installed()[MAJOR_VERSION].parent)
    with temporary_directory() as directory:
        account.own(directory)
        account.let_reach(directory.parent)
        made = Pair(Server(directory / "a", account), Server(directory / "b", account))
        try:
            made.primary.initialise()
            made.primary.start()
            made.standby.copy(made.primary)
            made.standby.start()
            until_blocking(lambda: made.primary.ask("select count(*) from pg_stat_replication") == "1")
            if is_synchronous:
                made.primary.configure(synchronous_standby_names="*")
                made.primary.ask("select pg_reload_conf()")
                until_blocking(
                    lambda: made.primary.ask("select sync_state from pg_stat_replication") == "sync"
                )
            yield made
        finally:
            made.primary.close()
            made.standby.close()
