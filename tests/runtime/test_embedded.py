"""The embedded PostgreSQL: comes up with all data however the last run ended, and belongs to one process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from cronwell import errors
from cronwell.runtime.account import SYSTEM_USER, Account
from cronwell.runtime.embedded import EmbeddedPostgres
from tests.support.postgres import UNSAFE_BUT_FAST, temporary_directory
from tests.support.waiting import until, until_blocking

OWNER = """
import sys
from pathlib import Path
from cronwell.runtime.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), extra={"fsync": "off"})
server.start()
print(server.pid, flush=True)
sys.stdin.read()
"""

is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another user")


@pytest.fixture(scope="module")
def pristine() -> Iterator[Path]:
    """A data directory as it is after the first start, to be copied."""
    with temporary_directory() as directory:
        server = EmbeddedPostgres(directory / "data", extra=UNSAFE_BUT_FAST)
        server.start()
        server.stop()
        yield directory / "data"


@pytest.fixture
def directory() -> Iterator[Path]:
    with temporary_directory() as path:
        yield path


@pytest.fixture
def data_dir(pristine: Path, directory: Path) -> Path:
    """A data directory of the test's own, in which PostgreSQL has run before."""
    subprocess.run(["cp", "-a", pristine, directory / "data"], check=True)
    return directory / "data"


@contextlib.contextmanager
def embedded(data_dir: Path, extra: dict[str, str] | None = None) -> Iterator[EmbeddedPostgres]:
    """A server object; whatever the test did to it, nothing runs after the block."""
    server = EmbeddedPostgres(data_dir, extra={**UNSAFE_BUT_FAST, **(extra or {})})
    try:
        yield server
    finally:
        server.stop("immediate")


def ask(url: str, sql: str) -> object:
    async def scenario() -> object:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return asyncio.run(scenario())


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    until_blocking(lambda: not is_alive(pid))


# The ordinary life


def test_it_starts_on_nothing_stops_without_a_trace_and_keeps_its_data(directory: Path) -> None:
    with embedded(directory / "new" / "data") as server:
        url = server.start()
        assert ask(url, "create table notes as select 7 as n") is None
        pid = server.pid
        assert server.start() == url
        assert server.pid == pid
        server.stop()
        assert not is_alive(pid)
        assert not server.is_running
        with pytest.raises(errors.StoreUnavailable, match="not running"):
            _ = server.url
        assert server.start() == url
        assert ask(url, "select n from notes") == 7


def test_only_its_user_can_reach_its_data_and_its_socket(directory: Path) -> None:
    with embedded(directory / "data") as server:
        server.start()
        for path in (directory / "data", directory / "data" / "postgres"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
            assert path.stat().st_uid == Account.of_server().uid
        socket = directory / "data" / "postgres" / ".s.PGSQL.5432"
        assert stat.S_IMODE(socket.stat().st_mode) == 0o700
        assert ask(server.url, "show listen_addresses") == ""


def test_a_directory_that_was_there_before_keeps_its_mode(directory: Path) -> None:
    data_dir = directory / "data"
    data_dir.mkdir()
    data_dir.chmod(0o755)
    with embedded(data_dir) as server:
        server.start()
        assert stat.S_IMODE(data_dir.stat().st_mode) == 0o755


def test_it_is_durable_unless_told_otherwise(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir)
    url = server.start()
    try:
        for setting in ("fsync", "synchronous_commit", "full_page_writes", "data_checksums"):
            assert ask(url, f"show {setting}") == "on"
    finally:
        server.stop()


def test_its_settings_are_written_anew_at_each_start(data_dir: Path) -> None:
    with embedded(data_dir, {"work_mem": "5MB", "cluster_name": "it's"}) as server:
        assert ask(server.start(), "show work_mem") == "5MB"
        assert ask(server.url, "show cluster_name") == "it's"
        assert ask(server.url, "select count(*) from pg_file_settings where error is not null") == 0
        server.stop()
    with embedded(data_dir) as server:
        assert ask(server.start(), "show work_mem") == "4MB"


def test_text_is_ordered_the_same_on_every_machine(data_dir: Path) -> None:
    with embedded(data_dir) as server:
        order = "select string_agg(x, '' order by x) from unnest('{b,a,B,A,_,ä}'::text[]) x"
        assert ask(server.start(), order) == "AB_abä"


def test_the_terminal_s_ctrl_c_does_not_reach_it(data_dir: Path) -> None:
    with embedded(data_dir) as server:
        server.start()
        assert os.getsid(server.pid) == server.pid


@is_root
def test_for_root_it_runs_as_a_user_of_its_own(data_dir: Path) -> None:
    with embedded(data_dir) as server:
        server.start()
        assert Path(f"/proc/{server.pid}").stat().st_uid == Account.of_server().uid != 0
        assert Path(f"/proc/{server.pid}").owner() == SYSTEM_USER


@is_root
def test_for_root_the_way_to_its_data_is_opened_for_passing_and_not_for_looking(directory: Path) -> None:
    closed = directory / "closed"
    closed.mkdir(mode=0o700)
    with embedded(closed / "data") as server:
        server.start()
        assert stat.S_IMODE(closed.stat().st_mode) == 0o701


def test_a_path_that_is_too_long_for_a_socket_is_no_trouble(pristine: Path, directory: Path) -> None:
    parent = directory / ("long" * 25)
    parent.mkdir()
    subprocess.run(["cp", "-a", pristine, parent / "data"], check=True)
    with embedded(parent / "data") as server:
        url = server.start()
        assert ask(url, "select 1") == 1
        socket_dir = Path(str(ask(url, "show unix_socket_directories")))
        try:
            assert not socket_dir.is_relative_to(parent)
            assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
            server.restart()
            assert ask(server.url, "select 1") == 1
        finally:
            server.stop()
            socket_dir.rmdir()


# One owner


def test_a_second_owner_is_refused_and_told_who_the_first_is(data_dir: Path) -> None:
    with embedded(data_dir) as first, embedded(data_dir) as second:
        first.start()
        with pytest.raises(
            errors.ConfigError, match=rf"in use by process {os.getpid()}\b.*CRONWELL_DATA_DIR"
        ):
            second.start()
        second.stop()
        assert ask(first.url, "select 1") == 1
        first.stop()
        second.start()


def test_what_a_killed_owner_left_running_is_adopted(data_dir: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, data_dir], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner, embedded(data_dir) as server:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        with pytest.raises(errors.ConfigError, match=f"in use by process {owner.pid}"):
            server.start()
        owner.kill()
        owner.wait()
        assert is_alive(pid)
        url = server.start()
        assert server.pid == pid
        assert ask(url, "select 1") == 1
        server.stop()
        assert not is_alive(pid)


async def test_a_server_that_is_still_stopping_is_waited_for(data_dir: Path) -> None:
    reports: list[str] = []
    server = EmbeddedPostgres(data_dir, extra=UNSAFE_BUT_FAST, report=reports.append)
    connection = await asyncpg.connect(await asyncio.to_thread(server.start))
    first_pid = server.pid
    # A smart shutdown waits for the connection, as long as it stays.
    os.kill(first_pid, signal.SIGTERM)
    await until(lambda: "stopping" in (data_dir / "postgres" / "postmaster.pid").read_text())
    starting = asyncio.create_task(asyncio.to_thread(server.start))
    await until(lambda: any("finish stopping" in report for report in reports))
    await connection.close()
    try:
        await starting
        assert server.pid != first_pid
    finally:
        await asyncio.to_thread(server.stop, "immediate")


# After a crash


def test_a_killed_server_comes_back_with_all_that_was_committed(data_dir: Path) -> None:
    with embedded(data_dir, {"synchronous_commit": "on"}) as server:
        ask(server.start(), "create table notes as select n from generate_series(1, 10000) n")
        kill(server.pid)
        assert not server.is_running
        assert server.ensure_running()
        assert not server.ensure_running()
        assert ask(server.url, "select count(*) from notes") == 10000


def test_a_stale_process_number_that_belongs_to_somebody_else_by_now_is_no_trouble(data_dir: Path) -> None:
    with embedded(data_dir) as server:
        server.start()
        kill(server.pid)
        account = Account.of_server()
        with subprocess.Popen(
            ["/bin/sh", "-c", "echo here; read line"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **account.identity,
        ) as stranger:
            assert stranger.stdout is not None
            assert stranger.stdin is not None
            stranger.stdout.readline()
            for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
                file = data_dir / "postgres" / name
                _, *rest = file.read_text().splitlines()
                file.write_text("\n".join([str(stranger.pid), *rest]) + "\n")
            assert not server.is_running
            assert ask(server.start(), "select 1") == 1
            assert stranger.poll() is None
            stranger.stdin.close()


def test_processes_that_outlive_their_server_are_ended_first(data_dir: Path) -> None:
    with embedded(data_dir) as server:
        orphan = 0

        async def scenario() -> None:
            nonlocal orphan
            connection = await asyncpg.connect(server.start())
            orphan = connection.get_server_pid()
            # It counts without ever looking whether its server is there.
            busy = asyncio.create_task(
                connection.execute("select count(*) from generate_series(1, 1e10::bigint)")
            )
            await until(lambda: "SELECT" in Path(f"/proc/{orphan}/cmdline").read_text())
            os.kill(server.pid, signal.SIGSTOP)
            os.kill(orphan, signal.SIGSTOP)
            os.kill(server.pid, signal.SIGKILL)
            os.kill(orphan, signal.SIGCONT)
            await until(lambda: not server.is_running)
            assert is_alive(orphan)
            await asyncio.to_thread(server.start)
            await asyncio.wait({busy})
            assert busy.exception() is not None
            connection.terminate()

        asyncio.run(scenario())
        assert not is_alive(orphan)
        assert ask(server.url, "select 1") == 1


def test_a_first_start_that_was_interrupted_is_begun_anew(directory: Path) -> None:
    left_over = directory / "data" / "postgres.new"
    left_over.mkdir(parents=True)
    (left_over / "PG_VERSION").write_text("18\n")
    with embedded(directory / "data") as server:
        assert ask(server.start(), "select 1") == 1
        assert not left_over.exists()


# What cannot be started


@pytest.mark.parametrize(
    ("place", "why"),
    [("file/data", "File exists"), ("file", "Not a directory"), ("x" * 300, "File name too long")],
)
def test_a_data_directory_that_cannot_be_made_is_told_with_the_reason_and_the_way_out(
    directory: Path, place: str, why: str
) -> None:
    (directory / "file").touch()
    told = rf"{re.escape(str(directory / place))} cannot be made .*{why}.*; choose another with --data-dir or CRONWELL_DATA_DIR"
    with embedded(directory / place) as server, pytest.raises(errors.ConfigError, match=told):
        server.start()


def test_data_of_another_version_is_refused_and_left_alone(data_dir: Path) -> None:
    version = data_dir / "postgres" / "PG_VERSION"
    version.write_text("16\n")
    with embedded(data_dir) as server:
        with pytest.raises(errors.ConfigError, match="PostgreSQL 16, and this release brings 18"):
            server.start()
        assert version.read_text() == "16\n"
        version.write_text("18\n")
        server.start()


def test_a_directory_that_holds_something_else_is_refused(directory: Path) -> None:
    (directory / "data" / "postgres").mkdir(parents=True)
    (directory / "data" / "postgres" / "thesis.txt").write_text("years of work")
    with (
        embedded(directory / "data") as server,
        pytest.raises(errors.ConfigError, match="holds no PostgreSQL"),
    ):
        server.start()
    assert (directory / "data" / "postgres" / "thesis.txt").exists()


def test_a_server_that_does_not_come_up_says_why_and_the_next_try_is_free(data_dir: Path) -> None:
    with embedded(data_dir, {"shared_buffers": "much"}) as broken, embedded(data_dir) as sound:
        with pytest.raises(errors.StoreUnavailable, match='invalid value for parameter "shared_buffers"'):
            broken.start()
        sound.start()


# Stopping


def test_abandoning_it_does_not_wait_and_it_ends(data_dir: Path) -> None:
    with embedded(data_dir) as server:
        server.abandon()
        server.start()
        pid = server.pid
        server.abandon()
        until_blocking(lambda: not server.is_running and not is_alive(pid))


def test_a_stop_that_takes_too_long_is_made_shorter(data_dir: Path) -> None:
    with embedded(data_dir) as server:

        async def scenario() -> None:
            connection = await asyncpg.connect(server.start())
            backend = connection.get_server_pid()
            os.kill(backend, signal.SIGSTOP)
            pid = server.pid
            await asyncio.to_thread(server.stop, deadline=timedelta(milliseconds=100))
            assert not is_alive(pid)
            connection.terminate()

        asyncio.run(scenario())
        assert ask(server.start(), "select 1") == 1


def test_stopping_what_never_started_does_nothing(directory: Path) -> None:
    EmbeddedPostgres(directory / "data").stop()
    assert not (directory / "data").exists()
