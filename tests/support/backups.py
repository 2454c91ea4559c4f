"""Backups of a server as an operator makes them: a base backup and the log since, or a dump; and what is made of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cronwell.runtime.account import Account
from cronwell.runtime.programs import MAJOR_VERSION
from tests.schema.servers import installed
from tests.support.postgres import temporary_directory
from tests.support.replication import DATABASE, Server
from tests.support.waiting import until_blocking


class Backups:
    """A server that archives its log, and the place where its backups are."""

    def __init__(self, folder: Path, account: Account) -> None:
        self.server = Server(folder / "server", account)
        self._account = account
        self._folder = folder
        self._base = folder / "base"
        self._archive = folder / "archive"
        self._dump = folder / "dump"
        self._archive.mkdir()
        account.own(self._archive)

    @property
    def url(self) -> str:
        """Where the server answers, and the one that takes its place."""
        return f"postgresql://postgres@/{DATABASE}?host={self.server.directory}"

    def start(self) -> None:
        """A new server that archives each file of its log."""
        archived = f"{self._archive}/%f"
        self.server.initialise(
            archive_mode="on",
            archive_command=f"test ! -f {archived} && cp %p {archived}.new && mv {archived}.new {archived}",
        )
        self.server.start()

    def take_base(self) -> None:
        source = f"host={self.server.directory} user=postgres"
        self.server.run("pg_basebackup", "-D", self._base, "-d", source, "-X", "stream", "-c", "fast", "-N")

    def take_dump(self) -> None:
        self.server.run(
            "pg_dump", "-h", self.server.directory, "-U", "postgres", "-Fc", "-f", self._dump, DATABASE
        )

    def until_archived(self) -> None:
        """Wait until all that is committed now is in the archive."""
        file = self.server.ask("select pg_walfile_name(pg_switch_wal())")
        until_blocking((self._archive / file).exists, within=20)

    def restore(self, moment: str) -> None:
        """In place of the server, which is lost, the base backup and the log up to a moment."""
        self.server.close()
        shutil.rmtree(self.server.data)
        shutil.copytree(self._base, self.server.data)
        for path in (self.server.data, *self.server.data.rglob("*")):
            self._account.own(path)
        self.server.data.chmod(0o700)
        self.server.configure(
            restore_command=f"cp {self._archive}/%f %p",
            recovery_target_time=moment,
            recovery_target_action="promote",
        )
        signal = self.server.data / "recovery.signal"
        signal.touch()
        self._account.own(signal)
        self.server.start()

    def restore_dump(self) -> None:
        """In place of the server a new one, with what the dump has."""
        self.server.close()
        shutil.rmtree(self.server.data)
        self.server.initialise()
        self.server.start()
        self.server.ask("create role cronwell_service nologin; create role cronwell_tenant nologin")
        self.server.run(
            "pg_restore", "-h", self.server.directory, "-U", "postgres", "-d", DATABASE, "-e", self._dump
        )


@contextmanager
def backups() -> Iterator[Backups]:
    """A running server with an archive, until the block ends."""
    account = Account.of_server()
    account.let_read(installed()[MAJOR_VERSION].parent)
    with temporary_directory() as folder:
        account.own(folder)
        account.let_reach(folder.parent)
        made = Backups(folder, account)
        try:
            made.start()
            yield made
        finally:
            made.server.close()
