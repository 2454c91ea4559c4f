"""Reads what the database has to say: its log of changes, and its state at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import asyncpg
import orjson

from tests.faults import history
from tests.faults.history import End, Key, Lost, Row
from tests.faults.link import Served

LOG = """
select seq, xid::text::bigint as xid, extract(epoch from at)::float8 as at, pid, source, op, old::text, new::text,
    extract(epoch from pg_xact_commit_timestamp(xid::xid))::float8 as committed
from witness.log
order by seq
"""


Stamp = tuple[int, int, float, float, str]


class Log:
    """The log of changes, by what changed."""

    def __init__(self, served: Iterable[Served]) -> None:
        self._served = sorted(served, key=lambda each: each.since)
        self.jobs: list[history.JobChange] = []
        self.cursors: list[history.CursorChange] = []
        self.executions: list[history.ExecutionChange] = []
        self.skips: list[history.SkipChange] = []
        self.shards: list[history.ShardChange] = []
        self.workers: list[history.WorkerChange] = []
        self._by_pid: dict[int, list[Served]] = {}
        for each in self._served:
            self._by_pid.setdefault(each.pid, []).append(each)

    def take(self, entry: asyncpg.Record) -> None:
        old = orjson.loads(entry["old"]) if entry["old"] else {}
        new = orjson.loads(entry["new"]) if entry["new"] else {}
        stamp = (
            entry["seq"],
            entry["xid"],
            entry["at"],
            entry["committed"] or entry["at"],
            self._process(entry["pid"], entry["at"]),
        )
        getattr(self, f"_take_{entry['source']}")(stamp, entry["op"], old, new)

    def _process(self, pid: int, at: float) -> str:
        """Which life of which node a server process worked for at a moment."""
        found = [each for each in self._by_pid.get(pid, []) if each.since <= at + 0.5]
        return found[-1].process if found else f"rig-{pid}"

    def _take_jobs(self, stamp: Stamp, op: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        del op, old
        job, spec = _job(new), new["spec"]
        self.jobs.append(history.JobChange(*stamp, job, new["name"], new["state"], new["revision"], spec))

    def _take_cursors(self, stamp: Stamp, op: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        either = new or old
        self.cursors.append(
            history.CursorChange(
                *stamp,
                _job(either),
                either["shard"],
                op,
                _moment(old.get("next_slot")),
                _moment(new.get("next_slot")),
                old.get("revision"),
                new.get("revision"),
                bool(old.get("is_held")),
                bool(new.get("is_held")),
            )
        )

    def _take_executions(self, stamp: Stamp, op: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        either = new or old
        self.executions.append(
            history.ExecutionChange(
                *stamp,
                _key(either),
                op,
                old.get("state"),
                new.get("state"),
                old.get("fence", 0),
                new.get("fence", 0),
                either["attempt"],
                either["worker"],
                either["reason"],
                _moment(either["ready_at"]),
            )
        )

    def _take_skips(self, stamp: Stamp, op: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        del op, old
        begin, end = _moment(new["from_slot"]), _moment(new["to_slot"])
        assert begin is not None
        assert end is not None
        self.skips.append(history.SkipChange(*stamp, _job(new), new["reason"], begin, end))

    def _take_shards(self, stamp: Stamp, op: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        del op
        self.shards.append(
            history.ShardChange(*stamp, new["shard"], old["epoch"], new["epoch"], new["owner"])
        )

    def _take_workers(self, stamp: Stamp, op: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        del op, old
        lease = datetime.fromisoformat(new["lease_until"]).timestamp()
        self.workers.append(history.WorkerChange(*stamp, new["id"], new["state"], lease))


async def read_log(connection: asyncpg.Connection[asyncpg.Record], served: Iterable[Served]) -> Log:
    log = Log(served)
    async with connection.transaction():
        async for entry in connection.cursor(LOG, prefetch=5000):
            log.take(entry)
    return log


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Which transactions had committed when the end was read."""

    oldest: int
    following: int
    under_way: frozenset[int]

    @classmethod
    def read(cls, text: str) -> Snapshot:
        """Read what `pg_current_snapshot()` answers: `xmin:xmax:xip,xip`."""
        oldest, following, under_way = text.split(":")
        return cls(int(oldest), int(following), frozenset(int(xid) for xid in under_way.split(",") if xid))

    def has(self, xid: int) -> bool:
        return xid < self.oldest or (xid < self.following and xid not in self.under_way)


async def read_end(connection: asyncpg.Connection[asyncpg.Record]) -> tuple[End, Snapshot]:
    """The state of the database in one snapshot, and what that has seen."""
    async with connection.transaction(isolation="repeatable_read"):
        # In one breath of the server: between two answers to a client on a busy machine much is delivered.
        await connection.execute(
            "create temp table ended on commit drop as select clock_timestamp() as at, pg_current_snapshot()::text as seen"
        )
        now = await connection.fetchval("select at from ended")
        snapshot = Snapshot.read(await connection.fetchval("select seen from ended"))
        executions = await connection.fetch("select * from executions")
        attempts = await connection.fetch("select * from attempts")
        workers = await connection.fetch(
            "select id, lease_until from workers where state in ('active', 'draining')"
        )
        shards = await connection.fetch("select shard, marked_at from shards")
        cursors = await connection.fetch(
            "select job_id, next_slot from cursors where not is_held and not awaits"
        )
    end = End(
        at=now.timestamp(),
        executions=tuple(
            Row(
                _row_key(row),
                row["state"],
                row["fence"],
                row["attempt"],
                row["reason"],
                None if row["worker"] is None else str(row["worker"]),
                _seconds(row["started_at"]),
                _seconds(row["finished_at"]),
            )
            for row in executions
        ),
        attempts=tuple(
            Lost(
                _row_key(row),
                row["fence"],
                row["attempt"],
                row["result"],
                row["error_kind"],
                _seconds(row["started_at"]),
            )
            for row in attempts
        ),
        workers={str(row["id"]): row["lease_until"].timestamp() for row in workers},
        marked={row["shard"]: _seconds(row["marked_at"]) or 0.0 for row in shards},
        cursors={row["job_id"].hex: row["next_slot"] for row in cursors},
    )
    return end, snapshot


def _job(row: Mapping[str, Any]) -> str:
    return str(row["job_id"] if "job_id" in row else row["id"]).replace("-", "")


def _key(row: Mapping[str, Any]) -> Key:
    slot = _moment(row["slot"])
    assert slot is not None
    return _job(row), row["kind"], slot


def _row_key(row: asyncpg.Record) -> Key:
    return row["job_id"].hex, row["kind"], row["slot"]


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
