"""The rig's own parts do what they are for: nights come, wires misbehave as told, reports count."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias, cast
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from tests.faults import nemesis, oracle
from tests.faults.broker import BrokerFrozen, BrokerKilled
from tests.faults.checker import check
from tests.faults.clock_changes import falls_back, night, springs_forward
from tests.faults.cluster import Cluster
from tests.faults.history import ShardChange, Window, execution_id, key_of
from tests.faults.link import Link
from tests.faults.made import START, clean, key
from tests.faults.report import Report
from tests.faults.scenarios import chance, takeovers
from tests.faults.witness import Snapshot
from tests.support.redis import LACKING
from tests.support.rules import zone
from tests.support.waiting import until, until_async

MOMENT = int(START) + 17


def test_a_clock_that_falls_back_shows_the_minute_twice_and_it_is_due_once() -> None:
    change = falls_back("Asia/Beirut", MOMENT, size=6, near=7200)
    clock = zone(change.zone, change.posix)
    faces = [oracle.at(MOMENT + after).astimezone(clock).strftime("%H:%M:%S") for after in (0, 6)]
    assert faces[0] == faces[1]
    minute, hour = change.cron.split()[:2]
    assert faces[0] == f"{int(hour):02d}:{int(minute):02d}:00"
    assert _due(change.cron, change.zone, change.posix) == [change.slot]


def test_a_clock_that_springs_forward_never_shows_the_minute_and_it_is_due_once() -> None:
    change = springs_forward("Asia/Beirut", MOMENT, near=7200)
    clock = zone(change.zone, change.posix)
    minute, hour = change.cron.split()[:2]
    faces = {oracle.at(MOMENT + after).astimezone(clock).strftime("%H:%M") for after in range(-120, 120)}
    assert f"{int(hour):02d}:{int(minute):02d}" not in faces
    assert _due(change.cron, change.zone, change.posix) == [change.slot]


def test_a_night_has_clocks_that_change_in_both_directions() -> None:
    assert len({change.zone for change in night(MOMENT)}) == 5


def _due(cron: str, name: str, posix: str) -> list[object]:
    oracle.go_by({name: posix})
    try:
        schedule = {"schedule": {"cron": cron, "timezone": name}}
        hour = timedelta(minutes=30)
        return list(oracle.slots(schedule, oracle.at(MOMENT) - hour, oracle.at(MOMENT) + hour))
    finally:
        oracle.go_by({})


@pytest.mark.parametrize("second", [3, 3.25])
def test_an_id_names_its_execution(second: float) -> None:
    assert key_of(execution_id(key(second))) == key(second)


def test_a_report_counts_what_happened_in_each_faults_time(tmp_path: Path) -> None:
    made = clean()
    made.windows.append(Window("cut", "worker-1", START + 2.5, START + 5.5))
    made.drop("rows", lambda row: row.key == key(4))
    made.drop("executions", lambda change: change.key == key(4))
    history = made.history()
    report = Report("made", "make it", history, check(history))
    lines = {line.fault: line for line in report.lines()}
    assert (lines["cut"].times, lines["cut"].slots, lines["cut"].missed) == (1, 7, 1)
    assert (lines["between faults"].slots, lines["between faults"].missed) == (2, 0)
    assert lines["all"].slots == 9
    assert (lines["cut"].verdict, lines["between faults"].verdict) == ("BROKEN", "held")
    assert "make it" in report.show()
    report.keep(tmp_path)
    assert (tmp_path / "faults-made.png").stat().st_size > 1000


def test_a_takeover_is_timed_from_the_kill_to_the_last_shards_new_epoch() -> None:
    made = clean()
    made.windows.append(Window("kill -9 of a scheduler", "scheduler-1", START + 3, START + 5))
    made.shards.append(ShardChange(*made.stamp(6.999, "scheduler-2#1"), 5, 1, 2, "m2"))
    assert takeovers(made.history())["takeover max s"] == pytest.approx(4.0)


def test_chance_tells_like_samples_from_unlike_ones() -> None:
    assert chance([1.0, 2.0, 3.0] * 20, [1.0, 2.0, 3.0] * 20) > 0.5
    assert chance([1.0, 2.0, 3.0] * 20, [4.0, 5.0, 6.0] * 20) < 0.01


def test_no_two_faults_have_one_name() -> None:
    names = [fault.name for fault in nemesis.everything()]
    assert len(names) == len(set(names))


def test_faults_of_a_broker_that_is_not_there_say_why() -> None:
    without = cast("Cluster", SimpleNamespace(broker=None))
    for fault in (BrokerKilled(), BrokerFrozen()):
        assert fault.impossible(without) in (LACKING, "no job of this run publishes")


@pytest.fixture
async def link(database_url: str) -> AsyncIterator[Link]:
    opened = Link(f"{parse_qs(urlsplit(database_url).query)['host'][0]}/.s.PGSQL.5432", time.time)
    opened.process = "worker-1#1"
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def connection(link: Link, database_url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    parts = urlsplit(database_url)
    opened = await asyncpg.connect(
        f"postgresql://{parts.username}@127.0.0.1:{link.port}{parts.path}?sslmode=disable"
    )
    await opened.execute("create table t (n int)")
    yield opened
    opened.terminate()


Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def _rows(database_url: str) -> int:
    direct = await asyncpg.connect(database_url)
    try:
        count: int = await direct.fetchval("select count(*) from t")
        return count
    finally:
        await direct.close()


async def test_a_link_knows_whose_a_server_process_is(link: Link, connection: Connection) -> None:
    assert [(each.pid, each.process) for each in link.served] == [(connection.get_server_pid(), "worker-1#1")]


async def test_a_commit_that_is_cut_has_happened_although_nobody_was_told(
    link: Link, connection: Connection, database_url: str
) -> None:
    link.commit_of = b"-- fill"
    link.commits_to_cut = 1
    await connection.execute("begin")
    await connection.fetch("-- fill\ninsert into t values ($1)", 1)
    with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
        await connection.execute("commit")
    await until_async(lambda: _rows(database_url))
    assert link.commits_caught == 1


async def test_a_commit_of_something_else_is_left_alone(link: Link, connection: Connection) -> None:
    link.commit_of = b"-- fill"
    link.commits_to_cut = 1
    async with connection.transaction():
        await connection.fetch("insert into t values ($1)", 1)
    assert link.commits_caught == 0


async def test_a_held_commit_arrives_although_its_client_has_gone(
    link: Link, connection: Connection, database_url: str
) -> None:
    link.commit_hold = 0.5
    await connection.execute("begin")
    await connection.execute("insert into t values (1)")
    committing = asyncio.create_task(connection.execute("commit"))
    await until(lambda: link.commits_caught == 1)
    assert await _rows(database_url) == 0
    connection.terminate()
    await asyncio.gather(committing, return_exceptions=True)
    assert await until_async(lambda: _rows(database_url)) == 1


@pytest.mark.parametrize(("notices", "count"), [("pass", 1), ("drop", 0), ("double", 2), ("replay", 2)])
async def test_notifications_come_as_often_as_told(
    link: Link, connection: Connection, notices: str, count: int
) -> None:
    link.notices = notices  # type: ignore[assignment]  # one of its words
    heard: list[object] = []
    await connection.add_listener("news", lambda *told: heard.append(told))
    await connection.execute("notify news")
    assert await connection.fetchval("select 1") == 1
    assert len(heard) == count


async def test_a_deaf_client_hears_nothing_until_the_wire_is_healed(
    link: Link, connection: Connection
) -> None:
    link.down.clear()
    asking = asyncio.create_task(connection.fetchval("select 7"))
    done, _ = await asyncio.wait([asking], timeout=0.2)
    assert not done
    link.heal()
    assert await asking == 7


def test_a_snapshot_tells_what_had_committed() -> None:
    snapshot = Snapshot.read("100:105:100,103")
    assert [snapshot.has(xid) for xid in range(99, 106)] == [True, False, True, True, False, True, False]
    assert Snapshot.read("7:7:").has(6)
